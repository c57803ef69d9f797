// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions that return otherwise than by a `ret` at the slot of their return address: they take arguments off the stack, as
// Pascal's convention has it, or return through words that they have pushed.
#include "zoo.h"

#define FUNCTION(name, code) ".globl " #name "\n.type " #name ",@function\n" #name ": " code "\n.size " #name ",.-" #name "\n"
#define CALLER(name) FUNCTION(caller_##name, "push %rdi; push %rdi; call " #name "; add $16,%rsp; add $1,%rax; ret")
// Selectors of code and stack in 64-bit programs.
#define CODE "$0x33"
#define STACK "$0x2b"

long caller(long);
long caller_by_far(long), caller_by_far_pop(long), caller_by_interrupt(long), caller_by_push(long), caller_by_jump(long),
	caller_far(long), caller_lower(long);

__asm__(FUNCTION(pop16, "mov 8(%rsp),%rax; add 16(%rsp),%rax; ret $16")
	FUNCTION(caller, "push %rdi; push %rdi; call pop16; add $1,%rax; ret")
	// Its return address is above the code selector.
	FUNCTION(by_far, "mov 8(%rsp),%rax; pop %rcx; push " CODE "; push %rcx; lretq") CALLER(by_far)
	FUNCTION(by_far_pop, "mov 8(%rsp),%rax; mov (%rsp),%rcx; push " CODE "; push %rcx; lretq $8") CALLER(by_far_pop)
	FUNCTION(by_interrupt, "mov 8(%rsp),%rax; pop %rcx; mov %rsp,%rdx; push " STACK "; push %rdx; pushfq; push " CODE
			       "; push %rcx; iretq") CALLER(by_interrupt)
	FUNCTION(by_push, "mov 8(%rsp),%rax; push (%rsp); ret $8") CALLER(by_push)
	// What it saves is where its return address was.
	FUNCTION(by_jump, "pop %rdx; push %rbx; mov %rdi,%rbx; mov %rbx,%rax; pop %rbx; jmp *%rdx") CALLER(by_jump)
	// A far call.
	FUNCTION(far, "mov 16(%rsp),%rax; lretq")
	FUNCTION(caller_far, "push %rdi; push %rdi; push " CODE "; call far; add $16,%rsp; add $1,%rax; ret")
	// It leaves room on the stack.
	FUNCTION(lower, "mov 8(%rsp),%rax; pop %rcx; sub %rdi,%rsp; and $-8,%rsp; jmp *%rcx")
	FUNCTION(caller_lower, "push %rbp; mov %rsp,%rbp; push %rdi; push %rdi; call lower; leave; add $1,%rax; ret"));

int main(void)
{
	long sum = 0;

	ready();
	for (int i = 0; i < 1000; i++)
		sum += caller(i) + caller_by_far(i) + caller_by_far_pop(i) + caller_by_interrupt(i) + caller_by_push(i) +
		       caller_by_jump(i) + caller_far(i) + caller_lower(i);
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("pop16", 1000, 0);
	truth("caller", 1000, 0);
	truth("by_far", 1000, 0);
	truth("by_far_pop", 1000, 0);
	truth("by_interrupt", 1000, 0);
	truth("by_push", 1000, 0);
	truth("by_jump", 1000, 0);
	truth("far", 1000, 0);
	truth("lower", 1000, 0);
	return 8;
}
