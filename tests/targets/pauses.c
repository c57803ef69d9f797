// SPDX-License-Identifier: Apache-2.0 OR MIT
// How long it is held up. It reads the clock without end, and between two readings maps and unmaps a
// page, for which it needs what the kernel locks to place a probe. For each line of standard input it
// prints the longest time between two readings since the line before, in nanoseconds: with, and
// without, the time that it only waited for a CPU.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// Shorter times are not looked into.
enum { SHORT = 5000 };

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

// Nanoseconds that this thread has waited for a CPU so far.
static long waited(int schedstat)
{
	char text[96] = "";
	long on_cpu, waiting = 0;

	if (pread(schedstat, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%ld %ld", &on_cpu, &waiting);
	return waiting;
}

int main(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	long longest = 0, longest_pause = 0, waited_before = waited(schedstat), last = now();
	char line[64];

	for (;;) {
		char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		long gap;

		*(volatile char *)page = 1;
		munmap(page, 4096);
		gap = now() - last;
		if (gap > longest)
			longest = gap;
		if (gap > SHORT) {
			long waited_now = waited(schedstat), pause = gap - (waited_now - waited_before);

			if (pause > longest_pause)
				longest_pause = pause;
			waited_before = waited_now;
		}
		if (poll(&input, 1, 0) > 0) {
			if (!fgets(line, sizeof(line), stdin))
				return 0;
			printf("%ld %ld\n", longest, longest_pause);
			fflush(stdout);
			longest = longest_pause = 0;
		}
		last = now();
	}
}
