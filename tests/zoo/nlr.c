// SPDX-License-Identifier: Apache-2.0 OR MIT
// A non-local return through a saved return address, as MicroPython's nlr_push does it.
#include "zoo.h"

struct nlr {
	void *registers[8];
};

int nlr_push(struct nlr *) __attribute__((returns_twice));
void nlr_jump(struct nlr *) __attribute__((noreturn));

NOIPA int nlr_push_tail(struct nlr *nlr)
{
	return !nlr->registers[0];
}

__asm__(".globl nlr_push, nlr_jump\n"
	".type nlr_push,@function\n"
	"nlr_push: mov (%rsp),%rax; mov %rax,(%rdi); mov %rbp,8(%rdi); mov %rsp,16(%rdi); mov %rbx,24(%rdi)\n"
	"mov %r12,32(%rdi); mov %r13,40(%rdi); mov %r14,48(%rdi); mov %r15,56(%rdi); jmp nlr_push_tail\n"
	".size nlr_push,.-nlr_push\n"
	".type nlr_jump,@function\n"
	"nlr_jump: mov (%rdi),%rax; mov 8(%rdi),%rbp; mov 16(%rdi),%rsp; mov 24(%rdi),%rbx; mov 32(%rdi),%r12\n"
	"mov 40(%rdi),%r13; mov 48(%rdi),%r14; mov 56(%rdi),%r15; mov %rax,(%rsp); mov $1,%eax; ret\n"
	".size nlr_jump,.-nlr_jump\n");

static struct nlr nlr;
static volatile int caught;

NOIPA int work(long i)
{
	if (i & 1)
		nlr_jump(&nlr);
	return i;
}

NOIPA void attempt(long i)
{
	if (nlr_push(&nlr)) {
		caught++;
		return;
	}
	work(i);
	__asm__ volatile("");
}

int main(void)
{
	ready();
	for (long i = 0; i < 1000; i++)
		attempt(i);
	dprintf(STDOUT_FILENO, "caught %d\n", caught);
	truth("attempt", 1000, 0);
	truth("work", 1000, 500);
	return caught % 251;
}
