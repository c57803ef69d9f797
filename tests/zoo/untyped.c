// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "zoo.h"

int untyped(int n);

int main(void)
{
	int sum = 0;

	ready();
	for (int i = 0; i < 1000; i++)
		sum = untyped(sum);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("untyped", 1000, 0);
	return 4;
}
