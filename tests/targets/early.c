// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls functions whose begin and end are seen at jumps, in each of their ways.
#include "harness.h"

#include <pthread.h>
#include <setjmp.h>

int leaf(int n);
int framed(int n);
int several(int (*callback)(int), int n);
int lock(int *word, int (*callback)(int));
int chosen(int n);

static void ways(void)
{
	int sum = 0, word = 0;

	for (int i = 0; i < 50; i++) {
		sum += framed(i) + framed(-1 - i);
		sum += several(leaf, i % 3) + several(framed, 1);
		sum += lock(&word, leaf) + lock(&word, framed);
		sum += chosen(i % 2);
	}
	dprintf(STDOUT_FILENO, "sum %d, word %d\n", sum, word);
	for (int i = 0; i < 50; i++) {
		static const char *times[] = { "leaf*2", "leaf", "leaf*3" };

		truth("framed(leaf) framed several(%s) several(framed(leaf)) lock lock(framed(leaf)) chosen(leaf)",
		      times[i % 3]);
	}
}

static jmp_buf back;

static int jump(int n)
{
	longjmp(back, n);
}

// A call that is left by a jump is over when its caller makes the next one.
static void left(void)
{
	volatile int count = 0;
	int word = 1;

	for (volatile int i = 0; i < 20; i++) {
		if (setjmp(back) == 0)
			several(jump, 1);
		count += framed(-1);
		if (setjmp(back) == 0)
			lock(&word, jump);
		word = 0;
		count += lock(&word, leaf);
	}
	dprintf(STDOUT_FILENO, "count %d\n", count);
	for (int i = 0; i < 20; i++)
		truth("several! framed lock! lock");
}

static int leave(int n)
{
	leaf(n);
	pthread_exit(NULL);
}

static void *unwind(void *unused)
{
	(void)unused;
	truth("several~(leaf)");
	several(leave, 1);
	return NULL;
}

static void unwound(void)
{
	pthread_t thread;

	for (int i = 0; i < 10; i++) {
		pthread_create(&thread, NULL, unwind, NULL);
		pthread_join(thread, NULL);
	}
}

static const struct scenario scenarios[] = { { "ways", ways }, { "left", left }, { "unwound", unwound } };

SCENARIOS(scenarios)
