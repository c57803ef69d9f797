// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the C and C++ programs of the zoo share: how they wait, how they tell what they called, and the library.
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __clang__
#define NOIPA __attribute__((noinline, optnone))
#else
#define NOIPA __attribute__((noipa))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// n + 1, after a short loop.
int z_leaf(int n);
// Calls z_leaf four times.
int z_mid(int n);
// Call f(a) and go on afterwards; give 3 and 4.
int z_cb(void (*f)(void *), void *a);
int z_cb2(void (*f)(void *), void *a);
// The sum of n values.
int z_deref(const volatile int *p, int n);
// Its return address.
void *z_who(void);

#ifdef __cplusplus
}
#endif

// Says that the program is ready, and waits for a line.
__attribute__((unused)) static void ready(void)
{
	char byte;

	dprintf(STDOUT_FILENO, "ready %d\n", getpid());
	while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
		;
}

// So many calls there were of a function; of these, so many were left by a jump or an exception.
__attribute__((unused)) static void truth(const char *function, long calls, long left)
{
	dprintf(STDOUT_FILENO, "truth %s %ld %ld\n", function, calls, left);
}
