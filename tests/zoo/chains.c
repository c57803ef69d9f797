// SPDX-License-Identifier: Apache-2.0 OR MIT
// An interpreter whose operations end in tail calls of the next: short programs, and one of 30,000 operations.
#include "zoo.h"

typedef long operation(const unsigned char *code, long sum);

static long w_add(const unsigned char *code, long sum), w_twice(const unsigned char *code, long sum);
static long w_stop(const unsigned char *code, long sum);
static operation *const operations[] = { w_stop, w_add, w_twice };
static long calls[3];

#define NEXT(code, sum) __attribute__((musttail)) return operations[*(code)]((code), (sum))
#define OPERATION __attribute__((noinline)) static long

OPERATION w_add(const unsigned char *code, long sum)
{
	calls[1]++;
	NEXT(code + 1, sum + 1);
}

OPERATION w_twice(const unsigned char *code, long sum)
{
	calls[2]++;
	NEXT(code + 1, (sum * 2) % 1000003);
}

OPERATION w_stop(const unsigned char *code, long sum)
{
	(void)code;
	calls[0]++;
	return sum;
}

int main(void)
{
	enum { LONG = 30000, SHORT = 40 };
	static unsigned char code[LONG + 1];
	volatile long sum = 0;

	for (int i = 0; i < LONG; i++)
		code[i] = i % 3 ? 1 : 2;
	ready();
	for (int i = 0; i < 50; i++)
		sum += operations[*(code + LONG - SHORT)](code + LONG - SHORT, i);
	for (int i = 0; i < 3; i++)
		sum += operations[*code](code, i);
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("w_stop", calls[0], 0);
	truth("w_add", calls[1], 0);
	truth("w_twice", calls[2], 0);
	return 17;
}
