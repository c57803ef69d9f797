// SPDX-License-Identifier: Apache-2.0 OR MIT
// Two versions of a symbol, one of which an IFUNC chooses; as LIBRARY, and the program that calls both.
#include "zoo.h"

#ifdef LIBRARY
NOIPA static int fast(int n)
{
	__asm__ volatile("");
	return n + 2;
}

static int (*pick(void))(int)
{
	return fast;
}

int chosen(int) __attribute__((ifunc("pick")));

NOIPA int old(int n)
{
	__asm__ volatile("");
	return n + 1;
}

NOIPA int new(int n)
{
	return chosen(n) + 1;
}

__asm__(".symver old,calc@VER_1");
__asm__(".symver new,calc@@VER_2");
#else
#include <dlfcn.h>

int calc(int);

int main(void)
{
	int (*old)(int), sum = 0;

	ready();
	old = (int (*)(int))dlvsym(RTLD_DEFAULT, "calc", "VER_1");
	for (int i = 0; i < 99; i++)
		sum += calc(i);
	for (int i = 0; i < 40; i++)
		sum += old(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("calc@@VER_2", 99, 0);
	truth("calc@VER_1", 40, 0);
	truth("chosen", 99, 0);
	return 15;
}
#endif
