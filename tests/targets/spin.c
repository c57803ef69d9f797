// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with a body of known length, of 1 and of 10 microseconds: a loop of a number of turns that
// is found once, at the start, and is the same from then on. Of each there is a copy that nobody traces,
// which takes what the function would, on a machine that is not always as fast.
//
// Each line of standard input asks for `WORK THREADS CALLS`: so many calls of the function of that name,
// by the only thread, and as many of its copy, in turns. After them a line tells what those of the copy
// took, "took NS", and one says that they are done.
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

enum { BLOCK = 50 };

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

#define CALLING(name, turns, callee)                        \
	__attribute__((noinline, aligned(64))) void name(void) \
	{                                                      \
		__asm__ volatile("" ::: "rbx");                 \
		spin(turns);                                    \
		callee();                                       \
		__asm__ volatile("" ::: "memory");              \
	}

#define ALL(of)                                             \
	PUSHING(of##pushing_short, short_turns)                \
	PUSHING(of##pushing_long, long_turns)                  \
	PUSHING(of##callee, short_turns)                       \
	STEPPED(of##stepped_short, short_turns)                \
	STEPPED(of##stepped_long, long_turns)                  \
	CALLING(of##calling_short, short_turns, of##callee)    \
	CALLING(of##calling_long, long_turns, of##callee)

ALL()
ALL(copy_of_)

#define WORK(name) { #name, name, copy_of_##name }

static const struct work {
	const char *name;
	void (*run)(void);
	void (*copy)(void);
} works[] = {
	WORK(pushing_short), WORK(pushing_long), WORK(callee), WORK(stepped_short),
	WORK(stepped_long), WORK(calling_short), WORK(calling_long),
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
	copy_of_pushing_short();
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
		double took = 0;

		if (!work)
			return 1;
		for (long done = 0; done < calls; done += BLOCK) {
			double begin;

			for (int i = 0; i < BLOCK; i++)
				work->run();
			begin = now();
			for (int i = 0; i < BLOCK; i++)
				work->copy();
			took += now() - begin;
		}
		printf("took %.0f\ndone\n", took);
		fflush(stdout);
	}
	return 0;
}
