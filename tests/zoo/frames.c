// SPDX-License-Identifier: Apache-2.0 OR MIT
// Returns before the stack frame has its final size: early ones, and arrays of variable length.
#include "zoo.h"

NOIPA int w_frame(int n)
{
	if (n <= 0)
		return n;
	char room[n];

	memset(room, n, n);
	__asm__ volatile("" : : "r"(room) : "memory");
	return z_leaf(room[n - 1]);
}

int main(void)
{
	int sum = 0;

	ready();
	for (int i = 0; i < 1000; i++)
		sum += w_frame(i % 7 ? 0 : 100);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("w_frame", 1000, 0);
	return 2;
}
