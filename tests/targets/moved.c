// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that moves its code to memory of its own, as those do that want it in huge pages, and then calls a
// function there. `all`: no page of its code is left in the file's mapping; else those of the functions under test go.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 1000, PAGE = 4096 };

static volatile int sum;

__attribute__((noinline, aligned(PAGE))) void w_moved(int n)
{
	sum += n;
	__asm__ volatile("" ::: "rbx", "memory");
	sum -= n - 1;
}

__attribute__((noinline, aligned(PAGE))) void w_left(int n)
{
	sum += n;
	__asm__ volatile("" ::: "rbx", "memory");
	sum -= n - 1;
}

// mremap puts the copy in the place of the code at once, so that it may be the code that runs.
static int move(char *begin, char *end)
{
	char *copy = mmap(NULL, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return -1;
	memcpy(copy, begin, end - begin);
	if (mprotect(copy, end - begin, PROT_READ | PROT_EXEC))
		return -1;
	return mremap(copy, end - begin, end - begin, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == begin ? 0 : -1;
}

// The segment with this function's code.
static int move_all(void)
{
	char line[512];
	unsigned long start, end;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx r-xp", &start, &end) == 2 && start <= (unsigned long)move_all &&
		    (unsigned long)move_all < end) {
			fclose(maps);
			return move((char *)start, (char *)end);
		}
	}
	return -1;
}

int main(int argc, char **argv)
{
	void (*volatile calls[])(int) = { w_moved, w_left };

	(void)argc;
	if (strcmp(argv[1], "all") == 0 ? move_all() : move((char *)w_moved, (char *)w_moved + PAGE))
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	getchar();
	for (int i = 0; i < CALLS; i++) {
		calls[0](i);
		calls[1](i);
	}
	return sum != 2 * CALLS;
}
