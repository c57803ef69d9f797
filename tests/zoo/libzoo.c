// SPDX-License-Identifier: Apache-2.0 OR MIT
// The library that the programs of the zoo call.
#include "zoo.h"

#define EXPORTED NOIPA __attribute__((visibility("protected")))

EXPORTED int z_leaf(int n)
{
	for (volatile int i = 2; i > 0; i--)
		;
	return n + 1;
}

EXPORTED int z_mid(int n)
{
	int sum = 0;

	for (int i = 0; i < 4; i++)
		sum += z_leaf(n + i);
	return sum;
}

EXPORTED int z_cb(void (*f)(void *), void *a)
{
	f(a);
	__asm__ volatile("");
	return 3;
}

EXPORTED int z_cb2(void (*f)(void *), void *a)
{
	f(a);
	__asm__ volatile("");
	return 4;
}

EXPORTED int z_deref(const volatile int *p, int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += p[i];
	return sum;
}

EXPORTED void *z_who(void)
{
	return __builtin_return_address(0);
}
