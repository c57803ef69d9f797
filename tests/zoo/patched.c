// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that changes the target of one of its calls, as static calls do.
#include <sys/mman.h>

#include "zoo.h"

int site(int);
extern char target[];

NOIPA int one(int n)
{
	__asm__ volatile("");
	return n + 1;
}

NOIPA int thousand(int n)
{
	__asm__ volatile("");
	return n + 1000;
}

__asm__("site: push %rbx; call z_leaf@PLT; mov %eax,%edi\n"
	"target: call one; pop %rbx; ret\n"
	".type site,@function\n"
	".size site,.-site\n");

int main(void)
{
	char *page = (char *)((uintptr_t)target & ~4095UL);
	int before = 0, after = 0;

	ready();
	for (int i = 0; i < 200; i++)
		before += site(0);
	mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
	*(int *)(target + 1) = (int)((char *)thousand - (target + 5));
	mprotect(page, 8192, PROT_READ | PROT_EXEC);
	for (int i = 0; i < 200; i++)
		after += site(0);
	dprintf(STDOUT_FILENO, "before %d, after %d\n", before, after);
	truth("z_leaf", 400, 0);
	return 12;
}
