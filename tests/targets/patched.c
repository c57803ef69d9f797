// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that writes a jump over one of its functions, as live patches and hooks inside a program do, and calls
// that and another one: `first` before it says that it is ready, `later` between calls. `restored` puts the code of its
// file back instead, as a program does that repairs itself. `front` writes a shorter jump over the first instruction of
// a third function. It ends with 0 if each call came to where it should.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 1000, PAGE = 4096 };

static volatile int replaced, original;

__attribute__((noipa, aligned(64))) void w_patched(int n)
{
	original += n;
	__asm__ volatile("" ::: "rbx", "memory");
	original -= n - 1;
}

__attribute__((noipa, aligned(64))) void w_plain(int n)
{
	original += n;
	__asm__ volatile("" ::: "rbx", "memory");
	original -= n - 1;
}

// Behind the first instruction is one that costs less to probe.
__attribute__((noipa, aligned(64))) void w_front(int n)
{
	original += n;
	__asm__ volatile(".skip 8, 0x90" ::: "memory");
	original -= n - 1;
}

static __attribute__((noinline)) void replacement(int n)
{
	(void)n;
	replaced++;
}

static int write_code(char *place, const void *code, unsigned long length)
{
	char *page = (char *)((unsigned long)place / PAGE * PAGE);
	unsigned long pages = (place + length - page + PAGE - 1) / PAGE * PAGE;

	if (mprotect(page, pages, PROT_READ | PROT_WRITE | PROT_EXEC))
		return -1;
	memcpy(place, code, length);
	return mprotect(page, pages, PROT_READ | PROT_EXEC);
}

// jmp *0(%rip), and the address.
static int patch(void (*function)(int))
{
	unsigned char jump[14] = { 0xff, 0x25 };
	void (*target)(int) = replacement;

	memcpy(jump + 6, &target, sizeof(target));
	return write_code((char *)function, jump, sizeof(jump));
}

// jmp, and the distance.
static int patch_briefly(void (*function)(int))
{
	unsigned char jump[5] = { 0xe9 };
	int distance = (char *)replacement - ((char *)function + sizeof(jump));

	memcpy(jump + 1, &distance, sizeof(distance));
	return write_code((char *)function, jump, sizeof(jump));
}

// The segment of the functions, from the file.
static int restore(void)
{
	char line[512], *code;
	unsigned long start, end, offset;
	FILE *maps = fopen("/proc/self/maps", "r"), *file = fopen("/proc/self/exe", "r");

	while (maps && file && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx r-xp %lx", &start, &end, &offset) == 3 && start <= (unsigned long)w_plain &&
		    (unsigned long)w_plain < end) {
			code = malloc(end - start);
			if (!code || fseek(file, offset, SEEK_SET) || fread(code, end - start, 1, file) != 1)
				return -1;
			return write_code((char *)start, code, end - start);
		}
	}
	return -1;
}

static void call(int with_front)
{
	for (int i = 0; i < CALLS; i++) {
		w_patched(i);
		w_plain(i);
		if (with_front)
			w_front(i);
	}
}

static int change(const char *how)
{
	if (strcmp(how, "restored") == 0)
		return restore();
	return strcmp(how, "front") == 0 ? patch_briefly(w_front) : patch(w_patched);
}

int main(int argc, char **argv)
{
	const char *how = argc < 2 ? "first" : argv[1];
	int is_first = strcmp(how, "first") == 0, is_front = strcmp(how, "front") == 0, is_restored = strcmp(how, "restored") == 0;

	if (is_first && change(how))
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	getchar();
	if (!is_first) {
		call(is_front);
		if (change(how))
			return 3;
	}
	call(is_front);
	printf("called\n");
	fflush(stdout);
	getchar();

	int calls = (is_first ? 2 : is_front ? 6 : 4) * CALLS, hidden = is_restored ? 0 : CALLS;

	return !(replaced == hidden && original == calls - hidden);
}
