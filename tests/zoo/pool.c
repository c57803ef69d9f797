// SPDX-License-Identifier: Apache-2.0 OR MIT
// Coroutines whose stacks are cut from one mapping, without guard pages, the first one highest.
#include <sys/mman.h>
#include <ucontext.h>

#include "zoo.h"

enum { COROUTINES = 8, STACK = 65536 };

static ucontext_t scheduler, coroutines[COROUTINES];
static int current;

static void yield(void *unused)
{
	int self = current;

	(void)unused;
	swapcontext(&coroutines[self], &scheduler);
}

static void body(void)
{
	for (;;) {
		z_cb(yield, NULL);
		yield(NULL);
	}
}

int main(void)
{
	char *pool = mmap(NULL, COROUTINES * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < COROUTINES; i++) {
		getcontext(&coroutines[i]);
		coroutines[i].uc_stack.ss_sp = pool + (COROUTINES - 1 - i) * STACK;
		coroutines[i].uc_stack.ss_size = STACK;
		makecontext(&coroutines[i], body, 0);
	}
	ready();
	for (int round = 0; round < 400; round++)
		for (current = 0; current < COROUTINES; current++)
			swapcontext(&scheduler, &coroutines[current]);
	dprintf(STDOUT_FILENO, "done\n");
	truth("z_cb", 200 * COROUTINES, 0);
	return 10;
}
