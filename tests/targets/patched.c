// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that writes a jump over one of its functions, as live patches and hooks inside a program do, and then
// calls that and another one. It ends with 0 if each call came to where it should.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 1000, PAGE = 4096 };

static volatile int replaced, original;

__attribute__((noinline, aligned(64))) void w_patched(int n)
{
	original += n;
	__asm__ volatile("" ::: "rbx", "memory");
	original -= n - 1;
}

__attribute__((noinline, aligned(64))) void w_plain(int n)
{
	original += n;
	__asm__ volatile("" ::: "rbx", "memory");
	original -= n - 1;
}

static __attribute__((noinline)) void replacement(int n)
{
	(void)n;
	replaced++;
}

// jmp *0(%rip), and the address.
static int patch(void (*function)(int))
{
	unsigned char jump[14] = { 0xff, 0x25 };
	char *page = (char *)((unsigned long)function / PAGE * PAGE);
	void (*target)(int) = replacement;

	memcpy(jump + 6, &target, sizeof(target));
	if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		return -1;
	memcpy((void *)function, jump, sizeof(jump));
	return mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
}

int main(void)
{
	void (*volatile calls[])(int) = { w_patched, w_plain };

	if (patch(w_patched))
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	getchar();
	for (int i = 0; i < CALLS; i++) {
		calls[0](i);
		calls[1](i);
	}
	printf("%d %d\n", replaced, original);
	return !(replaced == CALLS && original == CALLS);
}
