// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exceptions that a signal handler throws through a function of a C library.
#include "zoo.h"

#include <csignal>

static int caught, sum;
static const int cells[4] = {1, 2, 3, 4};

static void handler(int signal)
{
	throw signal;
}

NOIPA static void attempt(int i)
{
	try {
		sum += z_deref(i & 1 ? nullptr : cells, 4);
	} catch (int signal) {
		caught += signal == SIGSEGV;
		sum += z_leaf(signal);
	}
}

int main()
{
	struct sigaction action = {};

	action.sa_handler = handler;
	action.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &action, nullptr);
	ready();
	for (int i = 0; i < 1000; i++)
		attempt(i);
	dprintf(STDOUT_FILENO, "caught %d, sum %d\n", caught, sum);
	truth("z_deref", 1000, 500);
	truth("z_leaf", 500, 0);
	return caught % 251;
}
