// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that go deep and come back by a longjmp now and then: for builds that check or change the stack.
#include "zoo.h"

#include <setjmp.h>

static jmp_buf back;

NOIPA int w_deep(int n)
{
	char room[300];

	memset(room, n, sizeof(room));
	__asm__ volatile("" : : "r"(room) : "memory");
	if (n == 0)
		return 1;
	if (n == 1000)
		longjmp(back, 1);
	return w_deep(n - 1) + room[7];
}

int main(void)
{
	volatile int sum = 0, jumps = 0;

	ready();
	for (volatile int round = 0; round < 40; round++) {
		if (setjmp(back))
			jumps++;
		else
			sum += w_deep(round % 4 ? 200 : 1200);
	}
	dprintf(STDOUT_FILENO, "sum %d, jumps %d\n", sum, jumps);
	truth("w_deep", 30 * 201 + 10 * 201, 10 * 201);
	return 13;
}
