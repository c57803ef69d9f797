// SPDX-License-Identifier: Apache-2.0 OR MIT
// A process that may read, write and end, and is killed for any other system call.
#include "zoo.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(void)
{
	int sum = 0;

	ready();
	truth("z_mid", 1000, 0);
	truth("z_leaf", 4000, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 97;
	for (int i = 0; i < 1000; i++)
		sum += z_mid(i);
	if (sum == 2010000 && write(STDOUT_FILENO, "well\n", 5) == 5)
		syscall(SYS_exit, 11);
	syscall(SYS_exit, 12);
}
