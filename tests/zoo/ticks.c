// SPDX-License-Identifier: Apache-2.0 OR MIT
// Signals at 10 kHz, and nothing that jumps.
#include "zoo.h"

#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 50000 };

static volatile long ticks;
static long calls;

static void tick(int signal)
{
	(void)signal;
	ticks++;
	z_mid(1);
}

NOIPA void once(void *unused)
{
	(void)unused;
	calls += z_leaf(1);
}

int main(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval on = { { 0, 100 }, { 0, 100 } }, off = { 0 };
	long sum = 0;

	sigaction(SIGALRM, &action, NULL);
	ready();
	setitimer(ITIMER_REAL, &on, NULL);
	for (int i = 0; i < ROUNDS; i++)
		sum += z_cb(once, NULL);
	setitimer(ITIMER_REAL, &off, NULL);
	dprintf(STDOUT_FILENO, "sum %ld, %ld\n", sum, calls);
	truth("z_cb", ROUNDS, 0);
	truth("z_mid", ticks, 0);
	truth("z_leaf", ROUNDS + 4 * ticks, 0);
	return 5;
}
