// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exceptions through a C library's function that calls back.
#include "zoo.h"

static int caught;

NOIPA static void thrower(void *number)
{
	throw reinterpret_cast<long>(number);
}

NOIPA static void attempt(long number)
{
	try {
		z_cb(thrower, reinterpret_cast<void *>(number));
	} catch (long) {
		caught = z_leaf(caught);
	}
}

int main()
{
	ready();
	for (long i = 0; i < 500; i++)
		attempt(i);
	dprintf(STDOUT_FILENO, "caught %d\n", caught);
	truth("z_cb", 500, 500);
	truth("z_leaf", 500, 0);
	return 23;
}
