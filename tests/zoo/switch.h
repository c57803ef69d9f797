// SPDX-License-Identifier: Apache-2.0 OR MIT
// A coroutine that is resumed under a call, and calls, too: by a switch of stacks of its own, which no import tells of,
// or by swapcontext.
#pragma once
#include "zoo.h"

static long in_coroutine, sum;

NOIPA void nothing(void *unused)
{
	(void)unused;
	__asm__ volatile("");
}

#ifdef UCONTEXT
#include <ucontext.h>

static ucontext_t coroutine, caller;
#define TO_COROUTINE() swapcontext(&caller, &coroutine)
#define TO_CALLER() swapcontext(&coroutine, &caller)
#else
void stack_switch(void **from, void *to);
__asm__(".globl stack_switch\n.type stack_switch,@function\n"
	"stack_switch: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15; mov %rsp,(%rdi)\n"
	"mov %rsi,%rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n"
	".size stack_switch,.-stack_switch\n");

static void *coroutine, *caller;
#define TO_COROUTINE() stack_switch(&caller, coroutine)
#define TO_CALLER() stack_switch(&coroutine, caller)
#endif

NOIPA void body(void)
{
	for (;;) {
		in_coroutine += z_cb2(nothing, NULL);
		TO_CALLER();
	}
}

static void make(char *stack, size_t size)
{
#ifdef UCONTEXT
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = size;
	makecontext(&coroutine, body, 0);
#else
	void **top = (void **)(stack + size);

	*--top = NULL;
	*--top = (void *)body;
	coroutine = memset(top - 6, 0, 6 * sizeof(*top));
#endif
}

NOIPA void resume(void *unused)
{
	(void)unused;
	TO_COROUTINE();
	__asm__ volatile("");
}

static void rounds(void)
{
	for (int i = 0; i < 1000; i++)
		sum += z_cb(resume, NULL);
}

static int done(void)
{
	dprintf(STDOUT_FILENO, "sum %ld, in the coroutine %ld\n", sum, in_coroutine);
	truth("z_cb", 1000, 0);
	truth("z_cb2", 1000, 0);
	return sum % 251;
}
