// SPDX-License-Identifier: Apache-2.0 OR MIT
// A function that takes its arguments off the stack when it returns, as Pascal's convention has it.
#include "zoo.h"

long pop16(long, long);
long caller(long);

__asm__(".globl pop16, caller\n"
	".type pop16,@function\n"
	"pop16: mov 8(%rsp),%rax; add 16(%rsp),%rax; ret $16\n"
	".size pop16,.-pop16\n"
	".type caller,@function\n"
	"caller: push %rdi; push %rdi; call pop16; add $1,%rax; ret\n"
	".size caller,.-caller\n");

int main(void)
{
	long sum = 0;

	ready();
	for (int i = 0; i < 1000; i++)
		sum += caller(i);
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("pop16", 1000, 0);
	truth("caller", 1000, 0);
	return 8;
}
