// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads of OpenMP whose work is as 1 to 2 to 3 and so on. Before and after, only the first one lives on.
// Each tells in a line how long it worked, and waited at barriers, in nanoseconds:
//
//     thread TID WORK BARRIERS
#define _GNU_SOURCE
#include "clock.h"

#include <omp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 5, SHARE = 50000000, ALONE = 20000000 };

int main(void)
{
	sleep_until(now() + ALONE);
#pragma omp parallel num_threads(THREADS)
	{
		long work = 0, barriers = 0, begin;

		for (int i = 0; i < ROUNDS; i++) {
			begin = now();
			sleep_until(begin + (omp_get_thread_num() + 1L) * SHARE);
			work += now() - begin;
			begin = now();
#pragma omp barrier
			barriers += now() - begin;
		}
		dprintf(1, "thread %ld %ld %ld\n", syscall(SYS_gettid), work, barriers);
	}
	sleep_until(now() + ALONE);
	return 0;
}
