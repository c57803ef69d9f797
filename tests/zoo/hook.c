// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that changes its own text: a jump written over a function, before it is ready or after (`late`); a trap of
// its own (`trap`); its text copied to anonymous memory after it is ready (`move`).
#include "zoo.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { CALLS = 1000, PAGE = 4096, OFFSET = 16 };

static volatile int replaced, original, traps;

__attribute__((noipa, aligned(64))) void w_hooked(int n)
{
	original += n;
	__asm__ volatile(".skip 24, 0x90" ::: "memory");
	original -= n - 1;
}

__attribute__((noipa, aligned(64))) void w_plain(int n)
{
	original += n;
	__asm__ volatile("" ::: "memory");
	original -= n - 1;
}

static NOIPA void replacement(int n)
{
	(void)n;
	replaced++;
}

static char *page_of(void (*function)(int))
{
	return (char *)((uintptr_t)function / PAGE * PAGE);
}

static void write_text(char *at, const void *bytes, size_t count)
{
	char *page = page_of((void (*)(int))at);

	if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		_exit(96);
	memcpy(at, bytes, count);
	mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
}

// jmp *0(%rip), and the address.
static void hook(void)
{
	unsigned char jump[14] = { 0xff, 0x25 };
	void (*target)(int) = replacement;

	memcpy(jump + 6, &target, sizeof(target));
	write_text((char *)w_hooked, jump, sizeof(jump));
}

static void on_trap(int signal)
{
	(void)signal;
	traps++;
}

// A page of text into anonymous memory, and that in its place.
static void move(void)
{
	char *from = page_of(w_hooked);
	char *to = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(to, from, 2 * PAGE);
	mprotect(to, 2 * PAGE, PROT_READ | PROT_EXEC);
	if (mremap(to, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
		_exit(97);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	void (*volatile calls[])(int) = { w_hooked, w_plain };

	signal(SIGTRAP, on_trap);
	if (!strcmp(what, "early"))
		hook();
	if (!strcmp(what, "trap"))
		write_text((char *)w_hooked + OFFSET, "\xcc", 1);
	ready();
	if (!strcmp(what, "late"))
		hook();
	if (!strcmp(what, "move"))
		move();
	for (int i = 0; i < CALLS; i++) {
		calls[0](i);
		calls[1](i);
		// The probes of what has not changed come back meanwhile.
		usleep(200);
	}
	dprintf(STDOUT_FILENO, "replaced %d, original %d, traps %d\n", replaced, original, traps);
	truth("w_plain", CALLS, 0);
	// What has become of the probes can be looked at while the process is there.
	if (!strcmp(what, "late"))
		sleep(4);
	return 9;
}
