// SPDX-License-Identifier: Apache-2.0 OR MIT
// A process whose name is no text, and looks like fields of /proc/PID/stat.
#include <sys/prctl.h>

#include "zoo.h"

NOIPA int n_leaf(int n)
{
	__asm__ volatile("");
	return n + 1;
}

int main(void)
{
	int sum = 0;

	prctl(PR_SET_NAME, "\xff) R 1\n");
	ready();
	for (int i = 0; i < 500; i++)
		sum += n_leaf(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("n_leaf", 500, 0);
	return 14;
}
