// SPDX-License-Identifier: Apache-2.0 OR MIT
// What every target does the same way.
//
// usage: PROGRAM SCENARIO [wait]
//
// With `wait` the program prints "ready PID" and goes on when it reads a line from its standard
// input, so that a tracer can attach in between. A scenario tells what it really does, thread by
// thread, in lines
//
//     truth PID TID CALLS
//
// CALLS is a list of calls in the order of their begins, parted by blanks:
//
//     NAME[MARK][*COUNT][(CALLS)]     MARK: ! left by an unwind, ~ never left
//
// so `outer*3(middle(leaf*2) leaf)` is three calls of outer, each calling middle, which calls leaf
// twice, and then leaf. Several lines of one thread follow each other. Everything is written
// unbuffered, so that nothing is printed twice after a fork.
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "truth.h"

struct scenario {
	const char *name;
	void (*run)(void);
};

__attribute__((format(printf, 1, 2))) static void truth(const char *format, ...)
{
	char calls[8192];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(calls, sizeof(calls), format, arguments);
	va_end(arguments);
	dprintf(STDOUT_FILENO, "truth %d %ld %s\n", getpid(), syscall(SYS_gettid), calls);
}

// Calls leaf from far below its caller on the stack, and writes to all of the stack in between.
__attribute__((noinline, unused)) static void leaf_far_below(int number)
{
	char room[4096];

	memset(room, number, sizeof(room));
	__asm__ volatile("" : : "r"(room) : "memory");
	leaf(number);
}

// Waits for a line where that is asked for.
static void wait_for_line(int argc, char **argv)
{
	char newline;

	if (argc < 3 || strcmp(argv[2], "wait") != 0)
		return;
	dprintf(STDOUT_FILENO, "ready %d\n", getpid());
	if (read(STDIN_FILENO, &newline, 1) != 1)
		exit(1);
}

__attribute__((unused)) static int run_scenario(int argc, char **argv, const struct scenario *scenarios, int count)
{
	for (int i = 0; argc > 1 && i < count; i++) {
		if (strcmp(argv[1], scenarios[i].name) != 0)
			continue;
		wait_for_line(argc, argv);
		scenarios[i].run();
		return 0;
	}
	fprintf(stderr, "usage: %s SCENARIO [wait]; scenarios:", argv[0]);
	for (int i = 0; i < count; i++)
		fprintf(stderr, " %s", scenarios[i].name);
	fprintf(stderr, "\n");
	return 2;
}

#define SCENARIOS(table) \
	int main(int argc, char **argv) \
	{ \
		return run_scenario(argc, argv, table, sizeof(table) / sizeof(table[0])); \
	}
