// SPDX-License-Identifier: Apache-2.0 OR MIT
// Loads the library under test itself, again and again, from beside the program.
#include "harness.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

static void call_outer_from_library(void)
{
	char path[PATH_MAX] = "";

	if (readlink("/proc/self/exe", path, sizeof(path) - 16) < 0)
		exit(1);
	strcat(dirname(path), "/libtruth.so");

	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*function)(int) = library ? (int (*)(int))dlsym(library, "outer") : NULL;

	if (!function) {
		dprintf(STDOUT_FILENO, "%s\n", dlerror());
		exit(1);
	}
	for (int i = 0; i < 10; i++)
		function(i);
	dlclose(library);
	dprintf(STDOUT_FILENO, "still loaded %d\n", dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL);
}

static void reopen(void)
{
	for (int i = 0; i < 5; i++)
		call_outer_from_library();
	truth("outer*50(middle(leaf*2) leaf)");
}

static const struct scenario scenarios[] = { { "reopen", reopen } };

SCENARIOS(scenarios)
