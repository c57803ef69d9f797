// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shapes of call trees on one thread.
#include "harness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

static void nested(void)
{
	int sum = 0;

	for (int i = 0; i < 1000; i++)
		sum += outer(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("outer*1000(middle(leaf*2) leaf)");
}

static void branches(void)
{
	int sum = 0;

	for (int i = 0; i < 600; i++)
		sum += choose(i % 6);
	for (int i = 0; i < 100; i++)
		sum += choose(5);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	for (int i = 0; i < 99; i++)
		truth("choose*5 choose(leaf)");
	truth("choose*5 choose*101(leaf)");
}

// Prints a chain of depth + 1 calls, each of them inside the one before.
static void truth_chain(const char *first, const char *second, int depth)
{
	char calls[4096] = "";

	for (int i = 0; i <= depth; i++) {
		strcat(calls, i % 2 ? second : first);
		strcat(calls, i < depth ? "(" : "");
	}
	memset(calls + strlen(calls), ')', depth);
	truth("%s", calls);
}

static void mutual(void)
{
	dprintf(STDOUT_FILENO, "depth %d\n", ping(9) + pong(4));
	truth_chain("ping", "pong", 9);
	truth_chain("pong", "ping", 4);
}

static void recursion(void)
{
	dprintf(STDOUT_FILENO, "depth %d\n", recurse(149));
	truth_chain("recurse", "recurse", 149);
	dprintf(STDOUT_FILENO, "depth %d\n", recurse(2));
	truth_chain("recurse", "recurse", 2);
}

static void call_tail(void *sum)
{
	*(int *)sum += tail(*(int *)sum % 100);
}

// A jump to leaf leaves tail: then leaf is called where tail was.
static void tails(void)
{
	int sum = 1;

	for (int i = 0; i < 100; i++)
		visit(call_tail, &sum);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("visit*100(tail(leaf))");
}

static void call_next(void *sum)
{
	*(int *)sum = next(*(int *)sum);
}

static void brief(void)
{
	int sum = 1;

	for (int i = 0; i < 100; i++)
		visit(call_next, &sum);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("visit*100(next)");
}

static void call_leaf(void *unused)
{
	(void)unused;
	leaf(0);
}

static void sleep_and_call_leaf(void *unused)
{
	usleep(25000);
	call_leaf(unused);
}

static void call_twice(void *unused)
{
	visit(call_leaf, unused);
	visit(sleep_and_call_leaf, unused);
}

static void pauses(void)
{
	for (int i = 0; i < 5; i++)
		visit(call_twice, NULL);
	truth("visit*5(visit*2(leaf))");
}

// The same call instruction calls a function that nobody traces, and leaf. It does more than return then: else leaf would
// be seen to return to the callers of this one, of which each calls but one of both.
__attribute__((noinline, noclone)) static int call_by(int (*volatile *callee)(int), int n)
{
	int result = (*callee)(n);

	for (int i = result & 1; i >= 0; i--)
		__asm__ volatile("" : "+r"(result));
	return result * 3;
}

__attribute__((noinline, noclone)) static int untraced(int n)
{
	return n + 1;
}

enum { FIRST = 5 };

// Calls leaf from there until there is a probe.
static void meet(void)
{
	int (*volatile callee)(int) = leaf;

	for (int i = 0; i < FIRST; i++) {
		call_by(&callee, i);
		usleep(20000);
	}
}

// For a time hardly anything that is traced is called from there, later nothing else.
static void seldom_then_often(void)
{
	enum { SELDOM = 2000, OTHERS = 1000, OFTEN = 1000000 };
	int (*volatile callee)(int);
	int sum = 0;

	meet();
	for (int i = 0; i < SELDOM; i++) {
		callee = leaf;
		sum += call_by(&callee, i);
		callee = untraced;
		for (int k = 0; k < OTHERS; k++)
			sum += call_by(&callee, k);
	}
	callee = leaf;
	for (int i = 0; i < OFTEN; i++)
		sum += call_by(&callee, i & 1);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("leaf*%d", FIRST + SELDOM + OFTEN);
}

// The same in a program that is executed where the call instruction was met before.
static void executed(void)
{
	meet();
	truth("leaf*%d", FIRST);
	execl("/proc/self/exe", "shapes", "seldom_then_often", NULL);
	exit(1);
}

// Maps the code of a copy of this program, at that address if there is one, and calls leaf from there.
static char *call_from_copy(char *address, int calls, int pause_us)
{
	char copy[] = "/tmp/copyXXXXXX", line[512], *code = NULL;
	int to = mkstemp(copy), from = open("/proc/self/exe", O_RDONLY);
	int (*volatile callee)(int) = leaf;
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, offset, function = (unsigned long)call_by;

	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	while (!code && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= function && function < end)
			code = mmap(address, end - start, PROT_READ | PROT_EXEC, MAP_PRIVATE, to, offset);
	}
	if (!code || code == MAP_FAILED || (address && code != address))
		exit(1);
	for (int i = 0; i < calls; i++) {
		((int (*)(int (*volatile *)(int), int))(code + (function - start)))(&callee, i & 1);
		if (pause_us)
			usleep(pause_us);
	}
	munmap(code, end - start);
	fclose(maps);
	close(to);
	close(from);
	unlink(copy);
	return code;
}

// Another file comes where one was whose return site is known.
static void replaced(void)
{
	enum { AFTER = 200000 };

	call_from_copy(call_from_copy(NULL, FIRST, 20000), AFTER, 0);
	truth("leaf*%d", FIRST + AFTER);
}

static const struct scenario scenarios[] = {
	{ "nested", nested }, { "branches", branches },
	{ "mutual", mutual }, { "seldom_then_often", seldom_then_often },
	{ "executed", executed }, { "recursion", recursion },
	{ "tails", tails }, { "pauses", pauses },
	{ "brief", brief }, { "replaced", replaced },
};

SCENARIOS(scenarios)
