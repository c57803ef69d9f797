// SPDX-License-Identifier: Apache-2.0 OR MIT
// Children that call as soon as there are, and end at once; some execute a program instead, or share the memory.
#include "zoo.h"

#include <sys/wait.h>

enum { CHILDREN = 24, CALLS = 10 };

NOIPA int w_child(int n)
{
	__asm__ volatile("");
	return n + 1;
}

int main(void)
{
	int sum = 0, status;

	ready();
	for (int child = 0; child < CHILDREN; child++) {
		pid_t pid = fork();

		if (!pid) {
			for (int i = 0; i < CALLS; i++)
				sum += w_child(i);
			_exit(sum);
		}
		waitpid(pid, &status, 0);
		sum += WEXITSTATUS(status);
		sum = w_child(sum) + system("exit 2") / 256;
	}
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("w_child", CHILDREN * (CALLS + 1), 0);
	return 2;
}
