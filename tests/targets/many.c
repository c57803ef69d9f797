// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls without a pause, while it loads a library of many functions from beside the program.
#include "harness.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static atomic_bool is_over;

static void *call_on(void *unused)
{
	unsigned calls = 0;

	(void)unused;
	while (!is_over)
		leaf(calls++);
	truth("leaf*%u", calls);
	return NULL;
}

// Goes on to the end of its standard input.
static void load(void)
{
	char path[PATH_MAX] = "", byte;
	pthread_t thread;

	if (readlink("/proc/self/exe", path, sizeof(path) - 16) < 0)
		exit(1);
	strcat(dirname(path), "/libmany.so");
	pthread_create(&thread, NULL, call_on, NULL);
	if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
		dprintf(STDOUT_FILENO, "%s\n", dlerror());
		exit(1);
	}
	while (read(STDIN_FILENO, &byte, 1) == 1)
		continue;
	is_over = true;
	pthread_join(thread, NULL);
}

static const struct scenario scenarios[] = { { "load", load } };

SCENARIOS(scenarios)
