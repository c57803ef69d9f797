// SPDX-License-Identifier: Apache-2.0 OR MIT
// A function that is called in a tight loop only while probes are placed, and many that are never called.
//
// usage: placed
//
// Prints "ready PID", then looks for breakpoints in its own code, and sleeps as long as there are none. From when `hot`
// and some others have one, it calls `hot`, until every other function has one. Then it sleeps until its standard
// input ends, and prints "truth hot CALLS".
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of each function so many bytes are looked at: a probe may sit behind its first instructions. */
enum { LOOKED_AT = 12, NUMBER = 512, SOME = 64 };

static volatile unsigned sink;

#define ALIGNED __attribute__((noinline, aligned(32), used))
ALIGNED void hot(unsigned number)
{
	sink = number * 1664525 + sink;
}

#define QUIET(n) ALIGNED void quiet_##n(unsigned number) { sink = number * n + sink; }
#define TIMES8(do, n) do(n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7)
#define TIMES64(do, n) TIMES8(do, n##0) TIMES8(do, n##1) TIMES8(do, n##2) TIMES8(do, n##3) TIMES8(do, n##4) TIMES8(do, n##5) TIMES8(do, n##6) TIMES8(do, n##7)
#define TIMES512(do) TIMES64(do, 10) TIMES64(do, 11) TIMES64(do, 12) TIMES64(do, 13) TIMES64(do, 14) TIMES64(do, 15) TIMES64(do, 16) TIMES64(do, 17)
TIMES512(QUIET)

#define ADDRESS(n) quiet_##n,
static void (*const quiet[NUMBER])(unsigned) = { TIMES512(ADDRESS) };

static unsigned char before[NUMBER + 1][LOOKED_AT];

static void *code(int function)
{
	return (void *)(function < NUMBER ? quiet[function] : hot);
}

static int has_breakpoint(int function)
{
	return memcmp(before[function], code(function), LOOKED_AT) != 0;
}

static int breakpoints(void)
{
	int number = 0;

	for (int function = 0; function < NUMBER; function++)
		number += has_breakpoint(function);
	return number;
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	long calls = 0;

	for (int function = 0; function <= NUMBER; function++)
		memcpy(before[function], code(function), LOOKED_AT);
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (!(has_breakpoint(NUMBER) && breakpoints() >= SOME) && poll(&input, 1, 0) == 0)
		usleep(1000);
	while (breakpoints() < NUMBER && poll(&input, 1, 0) == 0)
		for (int i = 0; i < 1000; i++, calls++)
			hot(7);
	poll(&input, 1, -1);
	printf("truth hot %ld\n", calls);
	return 0;
}
