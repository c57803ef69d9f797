// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions that a kernel must single-step: they begin by moving the stack pointer or by computing.
#include <stdarg.h>
#include <stdio.h>

int step(int n)
{
	return n + 1;
}

int format(char *out, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsprintf(out, format, arguments);
	va_end(arguments);
	return length;
}

int through(void (*callback)(int), int n)
{
	volatile char room[200];

	room[0] = 1;
	callback(n);
	return room[0];
}

// Calls of `within`.
volatile int entered;

int within(int n)
{
	volatile char room[200];

	room[0] = 1;
	entered++;
	return step(n) + room[0];
}
