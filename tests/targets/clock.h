// SPDX-License-Identifier: Apache-2.0 OR MIT
// The clock of traces, in nanoseconds.
#pragma once

#include <time.h>

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void sleep_until(long nanoseconds)
{
	struct timespec time = { .tv_sec = nanoseconds / 1000000000L, .tv_nsec = nanoseconds % 1000000000L };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
}
