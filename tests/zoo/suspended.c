// SPDX-License-Identifier: Apache-2.0 OR MIT
// More calls are suspended at once than a tracer keeps aside, on a coroutine's stack in one mapping with its thread's.
#include "zoo.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIZE = 1 << 20, DEPTH = 40, ROUNDS = 100 };

static ucontext_t caller, coroutine;
static long calls;

static void suspend(void *unused)
{
	(void)unused;
	swapcontext(&coroutine, &caller);
}

static void descend(void *left)
{
	calls++;
	z_cb((long)left > 1 ? descend : suspend, (void *)((long)left - 1));
}

static void body(void)
{
	for (;;) {
		descend((void *)DEPTH);
		suspend(NULL);
	}
}

static void *thread(void *stack)
{
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = SIZE;
	makecontext(&coroutine, body, 0);
	for (int round = 0; round < ROUNDS; round++) {
		swapcontext(&caller, &coroutine);
		z_leaf(round);
		swapcontext(&caller, &coroutine);
	}
	return NULL;
}

int main(void)
{
	char *stacks = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attributes;
	pthread_t worker;

	ready();
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stacks + SIZE, SIZE);
	if (pthread_create(&worker, &attributes, thread, stacks))
		return 98;
	pthread_join(worker, NULL);
	truth("z_cb", calls, 0);
	truth("z_leaf", ROUNDS, 0);
	return 5;
}
