// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls a function of the C library from many depths, through frames of all kinds that compilers make. What it does is
// the same each time: its random numbers do not depend on anything.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline, noipa))

static volatile unsigned long state = 12345;
static volatile long sum;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (state >> 33) % below;
}

static inline __attribute__((always_inline)) void ask(void)
{
	sum += getppid();
	sum++;
}

APART void descend(int depth);

APART void leaf(void)
{
	ask();
}

// More than fits into the red zone.
APART void large(int depth)
{
	char bytes[3000];

	memset(bytes, depth, sizeof(bytes));
	sum += bytes[draw(sizeof(bytes))];
	descend(depth - 1);
	sum += bytes[1];
}

// The frame's size is not known before it runs: a frame pointer is needed.
APART void variable(int depth)
{
	volatile char *bytes = __builtin_alloca(16 + draw(200));

	bytes[0] = 1;
	descend(depth - 1);
	sum += bytes[0];
}

// The stack is aligned anew.
APART void aligned(int depth)
{
	char bytes[64] __attribute__((aligned(64)));

	memset(bytes, depth, sizeof(bytes));
	sum += bytes[draw(sizeof(bytes))];
	descend(depth - 1);
	sum += bytes[3];
}

// The stack is aligned anew, and some arguments are on it.
APART long crowded(int depth, long b, long c, long d, long e, long f, long g, long h)
{
	char bytes[64] __attribute__((aligned(64)));

	memset(bytes, depth, sizeof(bytes));
	descend(depth - 1);
	sum += bytes[draw(sizeof(bytes))];
	return b + c + d + e + f + g + h;
}

static int compare(const void *left, const void *right)
{
	ask();
	return *(const int *)left - *(const int *)right;
}

// A library that is not traced calls back.
APART void sorts(void)
{
	int values[3] = { 3, 1, 2 };

	qsort(values, 3, sizeof(*values), compare);
	sum += values[0];
}

APART void descend(int depth)
{
	if (depth <= 0) {
		leaf();
		sum++;
		return;
	}
	switch (draw(7)) {
	case 0:
		large(depth);
		break;
	case 1:
		variable(depth);
		break;
	case 2:
		aligned(depth);
		break;
	case 3:
		sum += crowded(depth, 1, 2, 3, 4, 5, 6, 7);
		break;
	case 4:
		sorts();
		break;
	case 5:
		descend(depth - 1);
		leaf();
		break;
	default:
		descend(depth - 2);
		descend(depth - 3);
	}
	sum++;
}

int main(void)
{
	for (int i = 0; i < 3000; i++) {
		descend(draw(12));
		// Until return sites are in place.
		if (i < 50)
			usleep(20000);
	}
	return 0;
}
