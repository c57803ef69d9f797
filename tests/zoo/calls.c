// SPDX-License-Identifier: Apache-2.0 OR MIT
// Plain calls, for what is uncommon about how the program was built or is run.
#include "zoo.h"

NOIPA int w_inner(int n)
{
	__asm__ volatile("");
	return n + 1;
}

NOIPA int w_outer(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += w_inner(i);
	return sum;
}

#ifdef OWN_ENTRY
// Nobody calls it: on the stack are the program's arguments.
__asm__(".globl own_entry\n.type own_entry,@function\n"
	"own_entry: xor %ebp, %ebp\n"
	"jmp _start\n"
	".size own_entry,.-own_entry\n");
#endif

int main(int argc, char **argv)
{
	int sum = 0;

	(void)argv;
	ready();
	for (int i = 0; i < 200; i++)
		sum += w_outer(50);
	dprintf(STDOUT_FILENO, "%d arguments, sum %d\n", argc, sum);
	truth("w_outer", 200, 0);
	truth("w_inner", 10000, 0);
	return 7;
}
