// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program with a breakpoint of its own at a function, as a debugger inside a program has. For each line that it reads
// it calls the function. It ends with 0 if each call met the breakpoint.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 100, PAGE = 4096 };

void w_trapped(void);
void w_plain(void);
__asm__(".pushsection .text\n"
	".globl w_trapped\n.type w_trapped, @function\nw_trapped:\n\tnop\n\tret\n.size w_trapped, . - w_trapped\n"
	".globl w_plain\n.type w_plain, @function\nw_plain:\n\tnop\n\tret\n.size w_plain, . - w_plain\n"
	".popsection");

static volatile sig_atomic_t traps;

static void trapped(int signal)
{
	(void)signal;
	traps++;
}

int main(void)
{
	char *page = (char *)((unsigned long)w_trapped / PAGE * PAGE);
	int calls = 0;

	signal(SIGTRAP, trapped);
	if (mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		return 2;
	*(volatile unsigned char *)w_trapped = 0xcc;
	if (mprotect(page, PAGE, PROT_READ | PROT_EXEC))
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (getchar() != EOF) {
		for (int i = 0; i < CALLS; i++) {
			w_trapped();
			w_plain();
		}
		calls += CALLS;
		printf("called\n");
		fflush(stdout);
	}
	fprintf(stderr, "%d traps of %d\n", traps, calls);
	return traps != calls;
}
