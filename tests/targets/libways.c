// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "ways.h"
#include "truth.h"

#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Inlined, so that the busy function is the one that was called.
#define BE_BUSY(name) do { \
	long long begin_ = now(), end_; \
	while ((end_ = now()) - begin_ < BUSY_NS) \
		; \
	if (name) \
		u_note(name, 1, begin_, end_); \
} while (0)

TRACED int w_leaf(int n)
{
	BE_BUSY("w_leaf");
	return n + 1;
}

TRACED int w_other(int n)
{
	BE_BUSY("w_other");
	return n + 2;
}

TRACED int w_call(int (*callback)(void *), void *argument)
{
	return OPAQUE(callback(argument));
}

TRACED int w_tail_visit(int (*callback)(void *), void *argument)
{
	return w_call(callback, argument);
}

TRACED int w_tail_direct(int n)
{
	return w_leaf(n);
}

TRACED int w_tail_indirect(function *callee, int n)
{
	return callee(n);
}

TRACED int w_tail_plt(int n)
{
	return leaf(n);
}

/* Not known to the compiler, which would do the comparison itself. */
char compared[] = "w";

TRACED int w_tail_libc(const char *n)
{
	return strcmp(n, compared);
}

UNTRACED int hidden(int n)
{
	BE_BUSY(NULL);
	return n + 3;
}

TRACED int w_tail_hidden(int n)
{
	return hidden(n);
}

UNTRACED int hidden_calls(int n)
{
	int called = w_leaf(n);

	BE_BUSY(NULL);
	return called + 1;
}

TRACED int w_tail_hidden_calls(int n)
{
	return hidden_calls(n);
}

TRACED int w_chain_3(int n)
{
	return w_leaf(n + 3);
}

TRACED int w_chain_2(int n)
{
	return w_chain_3(n + 2);
}

TRACED int w_chain(int n)
{
	return w_chain_2(n + 1);
}

int w_odd(int n);

TRACED int w_even(int n)
{
	return n == 0 ? w_leaf(n) : w_odd(n - 1);
}

TRACED int w_odd(int n)
{
	return n == 0 ? w_other(n) : w_even(n - 1);
}

// A pointer, so that the compiler makes no loop of it.
static function *volatile again = w_again;

TRACED int w_again(int n)
{
	return n == 0 ? w_leaf(n) : again(n - 1);
}

TRACED int w_recurse_out(int n)
{
	return n == 0 ? w_leaf(n) : OPAQUE(w_recurse_out(n - 1)) + 1;
}

TRACED int w_recurse(int n)
{
	return n == 0 ? 0 : OPAQUE(w_recurse(n - 1)) + 1;
}

UNTRACED int touch(int *n)
{
	return ++*n;
}

// Both have a frame when they return early, and a larger one later. They check it in one place, where the
// stack has one of two depths.
__attribute__((stack_protect)) TRACED int w_array(int n)
{
	if (touch(&n) < 1)
		return n;
	char room[n + 16];

	memset(room, n, sizeof(room));
	__asm__ volatile("" : : "r"(room) : "memory");
	return w_leaf(room[3]) + room[5];
}

__attribute__((stack_protect)) TRACED int w_alloca(int n)
{
	int result = n;

	if (n > 0) {
		char *room = alloca(n * 8 + 16);

		memset(room, n, 16);
		__asm__ volatile("" : : "r"(room) : "memory");
		result = w_leaf(room[3]) + room[5];
	}
	return result;
}

static jmp_buf landing, landings[16];
static sigjmp_buf signal_landing;
// Does return, as far as the compiler knows.
static void (*volatile jump)(jmp_buf, int) = longjmp;

TRACED int w_land(function *callee, int n)
{
	volatile int landed = 0;

	if (setjmp(landing) == 0)
		callee(n);
	else
		landed = 5;
	return w_leaf(n) + landed;
}

TRACED int w_land_each(function *const *callees, int count)
{
	volatile int sum = 0;

	for (volatile int i = 0; i < count; i++)
		if (setjmp(landing) == 0)
			sum += callees[i](0);
	return sum;
}

TRACED int w_dive(int n)
{
	if (n > 0)
		return OPAQUE(w_dive(n - 1)) + 1;
	w_leaf(n);
	jump(landing, 1);
	return n;
}

TRACED int w_tail_dive(int n)
{
	return w_dive(n);
}

TRACED int w_lands(int n, int to)
{
	if (setjmp(landings[n]) != 0)
		return OPAQUE(w_leaf(n)) + 7;
	if (n == 0)
		longjmp(landings[to], 1);
	return OPAQUE(w_lands(n - 1, to)) + 1;
}

TRACED void w_handle(int number)
{
	OPAQUE(w_leaf(number));
}

TRACED void w_handle_and_jump(int number)
{
	siglongjmp(signal_landing, number);
}

TRACED int w_raise(int n)
{
	return n + OPAQUE(raise(SIGUSR1));
}

TRACED int w_tail_raise(int n)
{
	return w_raise(n + 1);
}

TRACED int w_land_from_signal(int n)
{
	if (sigsetjmp(signal_landing, 1) == 0)
		return w_raise(n);
	return w_leaf(n) + 9;
}

TRACED void *w_thread(void *n)
{
	return (void *)(intptr_t)OPAQUE(w_leaf((int)(intptr_t)n));
}

TRACED int w_compare(const void *a, const void *b)
{
	return OPAQUE(w_leaf(*(const int *)a)) - 1 - *(const int *)b;
}
