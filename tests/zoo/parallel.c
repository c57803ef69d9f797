// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads of OpenMP, which come and go, and calls within them.
#include "zoo.h"

int main(void)
{
	long sum = 0;

	ready();
	for (int round = 0; round < 20; round++) {
#pragma omp parallel for num_threads(4) reduction(+ : sum)
		for (int i = 0; i < 100; i++)
			sum += z_mid(i);
	}
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("z_mid", 2000, 0);
	truth("z_leaf", 8000, 0);
	return 12;
}
