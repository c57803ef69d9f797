// SPDX-License-Identifier: Apache-2.0 OR MIT
// An oracle that shares nothing with uprobes: counts by breakpoints, through ptrace, how often a
// single-threaded program executes the instructions at given places of a file that it maps.
//
// usage: count_calls FILE OFFSETS COUNTS -- COMMAND...
//
// OFFSETS holds one decimal file offset a line; COUNTS gets "OFFSET COUNT" lines in the same order.
// Ends as COMMAND ends. Breakpoints are set when the first executable mapping of FILE appears, before
// any of its code runs; a child of COMMAND must not use FILE.
#define _GNU_SOURCE
#include <err.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct site {
	uint64_t offset;
	uint64_t address;
	uint64_t count;
	long text; // what stood there, eight bytes
};

static struct site *sites;
static size_t site_count;
static pid_t target;

static void read_sites(const char *path)
{
	FILE *file = fopen(path, "r");
	uint64_t offset;

	if (!file)
		err(125, "failed to open `%s`", path);
	while (fscanf(file, "%lu", &offset) == 1) {
		sites = realloc(sites, (site_count + 1) * sizeof(*sites));
		if (!sites)
			err(125, "failed to hold the sites");
		sites[site_count++] = (struct site){ .offset = offset };
	}
	fclose(file);
}

static void write_counts(const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file)
		err(125, "failed to create `%s`", path);
	for (size_t i = 0; i < site_count; i++)
		fprintf(file, "%lu %lu\n", sites[i].offset, sites[i].count);
	if (fclose(file) != 0)
		err(125, "failed to write `%s`", path);
}

// Puts a breakpoint on the site, or what stood there before.
static void set_breakpoint(const struct site *site, int set)
{
	long text = set ? (site->text & ~0xffL) | 0xcc : site->text;

	if (ptrace(PTRACE_POKETEXT, target, site->address, text) != 0)
		err(125, "failed to write the text at file offset %lu", site->offset);
}

// Sets all breakpoints that lie in one mapping; neighbours share words, so each is read back first.
static void set_breakpoints(uint64_t start, uint64_t end, uint64_t offset)
{
	for (size_t i = 0; i < site_count; i++) {
		struct site *site = &sites[i];

		if (site->offset < offset || site->offset >= offset + (end - start))
			continue;
		site->address = start + (site->offset - offset);
		site->text = ptrace(PTRACE_PEEKTEXT, target, site->address, 0);
		set_breakpoint(site, 1);
	}
}

static int map_sites(const char *library)
{
	char path[64], line[PATH_MAX + 128], mode[5], name[PATH_MAX];
	uint64_t start, end, offset;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", target);
	FILE *maps = fopen(path, "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %4095s", &start, &end, mode, &offset, name) != 5)
			continue;
		if (mode[2] != 'x' || strcmp(name, library) != 0)
			continue;
		set_breakpoints(start, end, offset);
		found = 1;
	}
	if (maps)
		fclose(maps);
	return found;
}

static int by_address(const void *a, const void *b)
{
	const struct site *left = a, *right = b;

	return (left->address > right->address) - (left->address < right->address);
}

// The target stopped after a breakpoint: counts, runs the instruction beneath, and sets it again.
static int pass_breakpoint(void)
{
	struct user_regs_struct registers;
	int status;

	ptrace(PTRACE_GETREGS, target, 0, &registers);
	struct site key = { .address = registers.rip - 1 };
	struct site *site = bsearch(&key, sites, site_count, sizeof(*sites), by_address);

	if (!site || site->address == 0)
		return 0;
	site->count++;
	registers.rip = site->address;
	ptrace(PTRACE_SETREGS, target, 0, &registers);
	set_breakpoint(site, 0);
	ptrace(PTRACE_SINGLESTEP, target, 0, 0);
	waitpid(target, &status, 0);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
		errx(125, "failed to step over file offset %lu", site->offset);
	set_breakpoint(site, 1);
	return 1;
}

static int run(const char *library)
{
	int status, mapped = 0, signal = 0;

	waitpid(target, &status, 0);
	ptrace(PTRACE_SETOPTIONS, target, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (;;) {
		ptrace(mapped ? PTRACE_CONT : PTRACE_SYSCALL, target, 0, signal);
		waitpid(target, &status, 0);
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (WIFSIGNALED(status))
			return 128 + WTERMSIG(status);
		signal = WSTOPSIG(status);
		if (signal == (SIGTRAP | 0x80)) {
			mapped = map_sites(library);
			if (mapped)
				qsort(sites, site_count, sizeof(*sites), by_address);
			signal = 0;
		} else if (signal == SIGTRAP && pass_breakpoint()) {
			signal = 0;
		}
	}
}

int main(int argc, char **argv)
{
	if (argc < 6 || strcmp(argv[4], "--") != 0)
		errx(125, "usage: count_calls FILE OFFSETS COUNTS -- COMMAND...");
	read_sites(argv[2]);
	target = fork();
	if (target == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execvp(argv[5], argv + 5);
		err(127, "failed to run `%s`", argv[5]);
	}
	int code = run(argv[1]);

	write_counts(argv[3]);
	return code;
}
