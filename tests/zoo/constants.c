// SPDX-License-Identifier: Apache-2.0 OR MIT
// Constants among the code: a table whose symbol says that it is a function, and bytes that look like a call.
#include "zoo.h"

unsigned long table_sum(void);
unsigned long pool_sum(void);

NOIPA int c_leaf(int n)
{
	__asm__ volatile("");
	return n + 1;
}

__asm__(".globl table, table_sum, pool_sum\n"
	".balign 8\n"
	".type table,@function\n"
	"table: .quad 0x1122334455667788, 0x0102030405060708, 0x5550c35d5550c35d\n"
	".size table,.-table\n"
	".type table_sum,@function\n"
	"table_sum: mov table(%rip),%rax; add table+8(%rip),%rax; add table+16(%rip),%rax; ret\n"
	".size table_sum,.-table_sum\n"
	".type pool_sum,@function\n"
	"pool_sum: push %rbx; jmp 2f\n"
	"1: .byte 0xe8; .long c_leaf-.-4; .byte 0x90,0x90,0x90,0x90\n"
	"2: mov $3,%edi; call c_leaf; mov 1b+5(%rip),%ebx; add %rbx,%rax; pop %rbx; ret\n"
	".size pool_sum,.-pool_sum\n");

int main(void)
{
	unsigned long sum = 0;

	ready();
	for (int i = 0; i < 300; i++)
		sum += table_sum() + pool_sum();
	dprintf(STDOUT_FILENO, "sum %lx\n", sum);
	truth("c_leaf", 300, 0);
	return 6;
}
