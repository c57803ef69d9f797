// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls a library from a place behind which there is nothing but instructions that the kernel single-steps.
#include "zoo.h"

int leaves(int);

__asm__("leaves: push %rbp; mov %rsp,%rbp; call z_leaf@PLT; leave; ret\n"
	".type leaves,@function\n"
	".size leaves,.-leaves\n");

int main(void)
{
	int sum = 0;

	ready();
	for (int i = 0; i < 2000; i++)
		sum += leaves(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("z_leaf", 2000, 0);
	return 13;
}
