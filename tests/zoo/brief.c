// SPDX-License-Identifier: Apache-2.0 OR MIT
// Loads a library, calls it a few times, and ends at once; with `child` children do so.
#include "zoo.h"

#include <dlfcn.h>
#include <sys/wait.h>

static int use(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	int (*mid)(int) = library ? (int (*)(int))dlsym(library, "z_mid") : NULL;

	return mid ? mid(1) : -1;
}

int main(int argc, char **argv)
{
	int children = argc > 2 ? 3 : 0, sum = 0;

	ready();
	for (int i = 0; i < children; i++) {
		int status;
		pid_t child = fork();

		if (!child)
			_exit(use(argv[1]));
		waitpid(child, &status, 0);
		sum += WEXITSTATUS(status);
	}
	if (!children)
		sum = use(argv[1]);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("z_mid", children ? children : 1, 0);
	return 1;
}
