// SPDX-License-Identifier: Apache-2.0 OR MIT
// One place calls a function that is left by a jump and could end in a tail call, then another one.
#include "zoo.h"

static void *landing[5];
static void nothing(void) {}
static void (*volatile hook)(void) = nothing;
static volatile int left, sink;

NOIPA void first(int x)
{
	sink = x;
	if (x)
		__builtin_longjmp(landing, 1);
	hook();
}

NOIPA void second(int x)
{
	for (int i = 0; i < 3; i++)
		sink = x;
}

NOIPA void dispatch(void (*op)(int), int x)
{
	if (__builtin_setjmp(landing)) {
		left = left + 1;
		return;
	}
	op(x);
	sink = sink + 1;
}

int main(void)
{
	ready();
	for (int i = 0; i < 500; i++) {
		dispatch(first, 1);
		dispatch(second, 0);
	}
	dprintf(STDOUT_FILENO, "%d left\n", left);
	truth("first", 500, 500);
	truth("second", 500, 0);
	return 11;
}
