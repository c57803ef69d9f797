// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that know how often they write to a variable of the library, and what another one holds.
#include "harness.h"

#include <pthread.h>

enum { ROUNDS = 50, VALUES = 100 };

static volatile short stamp;

struct work {
	int writes;
	struct work *inner;
};

static void work(void *argument)
{
	const struct work *work_here = argument;

	for (int i = 0; i < work_here->writes; i++)
		noted = i;
	if (work_here->inner)
		visit(work, work_here->inner);
}

// Tells of each call how often it and its callees write, in the order of the calls.
static void *calls(void *unused)
{
	(void)unused;
	for (int round = 0; round < ROUNDS; round++) {
		struct work inner = { .writes = round % 4 }, outer = { .writes = 7 + round % 3, .inner = &inner };

		visit(work, &outer);
		noted = -1;
		dprintf(STDERR_FILENO, "wrote %d %ld %d %d\n", getpid(), syscall(SYS_gettid),
			outer.writes + inner.writes, inner.writes);
		dprintf(STDERR_FILENO, "wrote %d %ld %d 0\n", getpid(), syscall(SYS_gettid), inner.writes);
	}
	truth("visit*%d(visit)", ROUNDS);
	return NULL;
}

static void writes(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, calls, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	calls(NULL);
	for (int i = 0; i < VALUES; i++)
		stamp = 100 - 7 * i;
}

static const struct scenario scenarios[] = {
	{ "writes", writes },
};

SCENARIOS(scenarios)
