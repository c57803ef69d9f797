// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "truth.h"

volatile long noted;

// Hides a value from the optimizer, so that calls stay calls.
#define OPAQUE(value) ({ int opaque = (value); __asm__ volatile("" : "+r"(opaque)); opaque; })

// It loops, so that its exit has a probe of its own.
int leaf(int n)
{
	for (int i = OPAQUE(2); i > 0; i--)
		__asm__ volatile("");
	return n + 1;
}

int next(int n)
{
	return n < 0 ? 0 : n + 1;
}

int middle(int n)
{
	return OPAQUE(leaf(n)) + OPAQUE(leaf(n + 1));
}

int outer(int n)
{
	return OPAQUE(middle(n)) + OPAQUE(leaf(n));
}

// Leaves through several returns, reached through a jump table.
int choose(int n)
{
	switch (n % 6) {
	case 0:
		return OPAQUE(3);
	case 1:
		return OPAQUE(n) * 5;
	case 2:
		return OPAQUE(n) - 7;
	case 3:
		return OPAQUE(n) ^ 11;
	case 4:
		return OPAQUE(n) << 2;
	default:
		return OPAQUE(leaf(n)) + 13;
	}
}

int recurse(int n)
{
	return n == 0 ? 0 : OPAQUE(recurse(n - 1)) + 1;
}

int ping(int n)
{
	return n == 0 ? 0 : OPAQUE(pong(n - 1)) + 1;
}

int pong(int n)
{
	return n == 0 ? 0 : OPAQUE(ping(n - 1)) + 1;
}

int tail(int n)
{
	return leaf(n * 2);
}

void visit(void (*callback)(void *), void *argument)
{
	callback(argument);
	__asm__ volatile("");
}
