// SPDX-License-Identifier: Apache-2.0 OR MIT
// Instructions that fault where a probe may be: at an entry, where the handler jumps out or repairs, and behind a call.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "zoo.h"

int safe_read(const int *);
int barrier(const int *);

__asm__(".globl safe_read, barrier\n"
	".type safe_read,@function\n"
	"safe_read: mov (%rdi),%eax; push %rbx; pop %rbx; ret\n"
	".size safe_read,.-safe_read\n"
	".type barrier,@function\n"
	"barrier: mov (%rdi),%eax; ret\n"
	".size barrier,.-barrier\n");

static sigjmp_buf out;
static char *page;
static volatile int repairs, leaves;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	if ((char *)info->si_addr >= page && (char *)info->si_addr < page + 4096) {
		repairs++;
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
		return;
	}
	siglongjmp(out, 1);
}

NOIPA void store(int value)
{
	*(volatile int *)page = barrier(&value);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
	const int there = 5;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &action, NULL);
	ready();
	for (int i = 0; i < 500; i++) {
		if (!sigsetjmp(out, 1))
			safe_read(i & 1 ? (int *)8 : &there);
		else
			leaves++;
		if (i & 1)
			mprotect(page, 4096, PROT_NONE);
		barrier((int *)page);
		if (i & 1)
			mprotect(page, 4096, PROT_READ);
		store(i);
	}
	dprintf(STDOUT_FILENO, "%d repairs, %d left\n", repairs, leaves);
	truth("safe_read", 500, 250);
	truth("barrier", 1000, 0);
	return 9;
}
