// SPDX-License-Identifier: Apache-2.0 OR MIT
// A function of about 50 ns called in a tight loop by each of some threads, and slow ones called
// rarely by the main thread.
//
// usage: budget THREADS SECONDS [PASSES | wait]
//
// Prints "ready PID", waits for a line, then works for so long. Each loop begins anew after PASSES
// passes. Every quarter of a second it prints "rate MS NS", the CPU time of a pass of all loops then,
// and at the end "truth NAME CALLS" for each function, and as "truth share" the percentage of the time
// for which a thread ran, on average.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 16, BLOCK = 1024 };

static volatile unsigned sink;
static atomic_int over;
static long passes = 1L << 40;
static struct counter {
	_Alignas(64) atomic_long calls;
	atomic_long cpu;
} counters[MOST_THREADS];

static long now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) void hot(unsigned number)
{
	for (int i = 0; i < 70; i++) {
		number = number * 1664525 + 1013904223;
		__asm__ volatile("" : "+r"(number));
	}
	sink = number;
}

__attribute__((noinline)) void rare_inner(void)
{
	usleep(2000);
	sink++;
}

__attribute__((noinline)) void rare(void)
{
	rare_inner();
	rare_inner();
	sink++;
}

static void loop(struct counter *counter)
{
	for (long i = 1; i <= passes; i++) {
		hot(7);
		if (i % BLOCK == 0) {
			counter->calls += BLOCK;
			counter->cpu = now(CLOCK_THREAD_CPUTIME_ID);
			if (over)
				return;
		}
	}
	counter->calls += passes % BLOCK;
}

static void *work(void *argument)
{
	while (!over)
		loop(argument);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	double seconds = argc > 2 ? atof(argv[2]) : 2;
	pthread_t started[MOST_THREADS];
	long calls = 0, cpu = 0, rares = 0, begin;

	if (argc > 3 && atol(argv[3]) > 0)
		passes = atol(argv[3]);
	if (threads < 1 || threads > MOST_THREADS)
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	begin = now(CLOCK_MONOTONIC);
	for (int i = 0; i < threads; i++)
		pthread_create(&started[i], NULL, work, &counters[i]);
	while (now(CLOCK_MONOTONIC) - begin < seconds * 1e9) {
		long calls_now = 0, cpu_now = 0;

		for (int i = 0; i < 25; i++, rares++) {
			rare();
			usleep(6000);
		}
		for (int i = 0; i < threads; i++) {
			calls_now += counters[i].calls;
			cpu_now += counters[i].cpu;
		}
		if (calls_now > calls)
			printf("rate %ld %.2f\n", (now(CLOCK_MONOTONIC) - begin) / 1000000,
			       (double)(cpu_now - cpu) / (calls_now - calls));
		fflush(stdout);
		calls = calls_now;
		cpu = cpu_now;
	}
	over = 1;
	calls = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(started[i], NULL);
		calls += counters[i].calls;
	}
	printf("truth hot %ld\ntruth rare %ld\ntruth rare_inner %ld\n", calls, rares, 2 * rares);
	printf("truth share %ld\n", 100 * now(CLOCK_PROCESS_CPUTIME_ID) / threads / (now(CLOCK_MONOTONIC) - begin));
	return 0;
}
