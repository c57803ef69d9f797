// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several threads, and threads that end inside a call.
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

enum { THREADS = 4 };

static void run_thread(void *(*body)(void *), void *argument)
{
	pthread_t thread;

	pthread_create(&thread, NULL, body, argument);
	pthread_join(thread, NULL);
}

static void *many_calls(void *argument)
{
	int rounds = 1000 + *(int *)argument, sum = 0;

	for (int i = 0; i < rounds; i++)
		sum += outer(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("outer*%d(middle(leaf*2) leaf)", rounds);
	return NULL;
}

static void parallel(void)
{
	pthread_t threads[THREADS];
	int numbers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, many_calls, &numbers[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	leaf(1);
	truth("leaf");
}

enum { BURST = 30000 };

static void *burst(void *unused)
{
	(void)unused;
	for (int i = 0; i < BURST; i++)
		leaf(i);
	for (int i = 0; i < BURST; i++)
		middle(i);
	truth("leaf*%d middle*%d(leaf*2)", BURST, BURST);
	return NULL;
}

static void bursts(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, burst, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void *few_calls(void *argument)
{
	leaf(*(int *)argument);
	truth("leaf");
	return NULL;
}

// Thread ids may come back: each is a life of its own.
static void short_lived(void)
{
	for (int i = 0; i < 200; i++)
		run_thread(few_calls, &i);
}

// So slowly that a recorder notices the end of each thread before the next begins.
static void paced(void)
{
	for (int i = 0; i < 3; i++) {
		run_thread(few_calls, &i);
		usleep(1500000);
	}
}

static void call_leaf(void *unused)
{
	(void)unused;
	leaf(0);
}

static void leave(void *unused)
{
	(void)unused;
	leaf(0);
	pthread_exit(NULL);
}

static void visit_and_leave(void *unused)
{
	visit(leave, unused);
}

static void *exits(void *unused)
{
	truth("visit~(visit~(leaf))");
	visit(visit_and_leave, unused);
	return NULL;
}

static void *exits_with_cleanup(void *unused)
{
	truth("visit!(visit!(leaf)) leaf");
	pthread_cleanup_push(call_leaf, NULL);
	visit(visit_and_leave, unused);
	pthread_cleanup_pop(0);
	return NULL;
}

static void exit_inside(void)
{
	run_thread(exits, NULL);
}

static void exit_inside_with_cleanup(void)
{
	run_thread(exits_with_cleanup, NULL);
}

static int inside[2];

static void wait_for_cancel(void *unused)
{
	(void)unused;
	leaf(0);
	if (write(inside[1], "", 1) == 1)
		pause();
}

static void *is_cancelled(void *unused)
{
	truth("visit~(leaf)");
	visit(wait_for_cancel, unused);
	return NULL;
}

static void *is_cancelled_with_cleanup(void *unused)
{
	truth("visit!(leaf) leaf");
	pthread_cleanup_push(call_leaf, NULL);
	visit(wait_for_cancel, unused);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel_thread(void *(*body)(void *))
{
	pthread_t thread;
	void *result;
	char byte;

	if (pipe(inside) != 0)
		exit(1);
	pthread_create(&thread, NULL, body, NULL);
	if (read(inside[0], &byte, 1) != 1)
		exit(1);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	dprintf(STDOUT_FILENO, "cancelled %d\n", result == PTHREAD_CANCELED);
}

static void cancel_inside(void)
{
	cancel_thread(is_cancelled);
}

static void cancel_inside_with_cleanup(void)
{
	cancel_thread(is_cancelled_with_cleanup);
}

static void rest(void *unused)
{
	(void)unused;
	usleep(500);
}

static void *visit_briefly(void *unused)
{
	visit(rest, unused);
	return NULL;
}

// Threads that end inside of milliseconds, up to the end of the standard input.
static void restless(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	while (poll(&input, 1, 0) == 0) {
		pthread_t threads[THREADS];

		for (int i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, visit_briefly, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
}

// Whether the first thread of a process runs.
static bool has_memory(int pid)
{
	char path[32], byte;
	int memory;
	bool some;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	memory = open(path, O_RDONLY);
	some = read(memory, &byte, 1) == 1;
	close(memory);
	return some;
}

// Goes on after the first thread, up to the end of the standard input.
static void *outlives_first(void *unused)
{
	char byte;

	do
		usleep(1000);
	while (has_memory(getpid()));
	for (int i = 0; i < 3; i++)
		leaf(i);
	truth("leaf*3");
	while (read(STDIN_FILENO, &byte, 1) == 1)
		continue;
	exit(0);
	return unused;
}

static void without_first(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, outlives_first, NULL);
	pthread_exit(NULL);
}

static const struct scenario scenarios[] = {
	{ "parallel", parallel },
	{ "bursts", bursts },
	{ "short_lived", short_lived },
	{ "paced", paced },
	{ "restless", restless },
	{ "without_first", without_first },
	{ "exit", exit_inside },
	{ "exit_cleanup", exit_inside_with_cleanup },
	{ "cancel", cancel_inside },
	{ "cancel_cleanup", cancel_inside_with_cleanup },
};

SCENARIOS(scenarios)
