// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with a body of known length, of 1 and of 10 microseconds: a loop of a number of turns that
// is found once, at the start, and is the same from then on.
//
// Each line of standard input asks for `WORK THREADS CALLS`: so many calls of the function of that name,
// by the only thread. After them a line tells what they took, "took NS", and one says that they are done.
#include <stdio.h>
#include <string.h>
#include <time.h>

static long short_turns, long_turns;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static inline __attribute__((always_inline)) void spin(long turns)
{
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(turns));
}

// The register that callees save makes a function begin with a push, which kernels emulate.
#define PUSHING(name, turns)                                \
	__attribute__((noinline, aligned(64))) void name(void) \
	{                                                      \
		__asm__ volatile("" ::: "rbx");                 \
		spin(turns);                                    \
	}

// Into the first instruction that a kernel emulates here, the loop jumps back.
#define STEPPED(name, turns)                                \
	__attribute__((noinline, aligned(64))) void name(void) \
	{                                                      \
		spin(turns);                                    \
	}

#define CALLING(name, turns)                                \
	__attribute__((noinline, aligned(64))) void name(void) \
	{                                                      \
		__asm__ volatile("" ::: "rbx");                 \
		spin(turns);                                    \
		callee();                                       \
		__asm__ volatile("" ::: "memory");              \
	}

PUSHING(pushing_short, short_turns)
PUSHING(pushing_long, long_turns)
PUSHING(callee, short_turns)
STEPPED(stepped_short, short_turns)
STEPPED(stepped_long, long_turns)
CALLING(calling_short, short_turns)
CALLING(calling_long, long_turns)

static const struct work {
	const char *name;
	void (*run)(void);
} works[] = {
	{ "pushing_short", pushing_short }, { "pushing_long", pushing_long }, { "callee", callee },
	{ "stepped_short", stepped_short }, { "stepped_long", stepped_long }, { "calling_short", calling_short },
	{ "calling_long", calling_long },
};

static const struct work *find(const char *name)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		if (strcmp(works[i].name, name) == 0)
			return &works[i];
	}
	return NULL;
}

static void calibrate(void)
{
	enum { TURNS = 10000000 };
	double begin;

	short_turns = TURNS;
	begin = now();
	pushing_short();
	short_turns = TURNS * 1e3 / (now() - begin);
	long_turns = 10 * short_turns;
}

int main(void)
{
	char name[16];
	long calls;

	calibrate();
	while (scanf("%15s 1 %ld", name, &calls) == 2) {
		const struct work *work = find(name);
		double begin = now();

		if (!work)
			return 1;
		for (long i = 0; i < calls; i++)
			work->run();
		printf("took %.0f\ndone\n", now() - begin);
		fflush(stdout);
	}
	return 0;
}
