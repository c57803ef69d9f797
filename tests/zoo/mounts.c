// SPDX-License-Identifier: Apache-2.0 OR MIT
// Mounts a file system, calls a library that lies there, and unmounts it again.
#include "zoo.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	char command[600], path[300];
	int sum = 0, status;

	if (argc < 3 || (mkdir(argv[2], 0700) && errno != EEXIST))
		return 98;
	ready();
	if (mount("none", argv[2], "tmpfs", 0, NULL))
		return 97;
	snprintf(path, sizeof(path), "%s/libplug.so", argv[2]);
	snprintf(command, sizeof(command), "cp %s %s", argv[1], path);
	if (system(command))
		return 96;
	for (int round = 0; round < 3; round++) {
		void *library = dlopen(path, RTLD_NOW);
		int (*leaf)(int) = library ? (int (*)(int))dlsym(library, "z_leaf") : NULL;

		if (!leaf)
			return 95;
		for (int i = 0; i < 100; i++) {
			sum += leaf(i);
			usleep(1000);
		}
		dlclose(library);
	}
	status = umount(argv[2]) ? errno : 0;
	dprintf(STDOUT_FILENO, "sum %d, umount: %s\n", sum, strerror(status));
	return 4;
}
