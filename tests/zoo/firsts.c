// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that have no other before them from their place, and no other after them: through pointers, by a wrapper that
// jumps on, and as the last thing that main does.
#include "zoo.h"

NOIPA int w_nap(int ms)
{
	usleep(1000 * ms);
	__asm__ volatile("");
	return ms;
}

static int (*volatile nap)(int) = w_nap;

NOIPA int w_wrap(int ms)
{
	return nap(ms);
}

NOIPA int w_last(int ms)
{
	truth("w_nap", 5, 0);
	truth("w_wrap", 1, 0);
	truth("w_last", 1, 0);
	return w_nap(ms) + 1;
}

int main(void)
{
	int sum = 0;

	ready();
	sum += nap(60);
	__asm__ volatile("");
	sum += nap(61);
	__asm__ volatile("");
	sum += nap(62);
	sum += w_wrap(63);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	return w_last(64);
}
