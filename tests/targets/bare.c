// SPDX-License-Identifier: Apache-2.0 OR MIT
// What depends on return addresses, or on where the stack is, in a program that imports nothing by
// which that could be told.
#include "rounds.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { STACK = 64 * 1024, INTERRUPTED = 2000 };

static int is_ours(const void *address)
{
	extern const char __executable_start, etext;

	return (const char *)address >= &__executable_start && (const char *)address < &etext;
}

static int asks_for_callers(void)
{
	return is_ours(w_who()) + is_ours(w_tail_who()) + w_walk(5);
}

static int saved_return_address(void)
{
	return TIMED("w_attempt", w_attempt(2)) + TIMED("w_attempt", w_attempt(3));
}

static void ask(void *unused)
{
	(void)unused;
	w_who();
}

static volatile sig_atomic_t ticks;

static void tick(int number)
{
	ticks += number > 0;
}

// Signals at ten thousand a second, anywhere in these calls and around them.
static int signals_often(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < INTERRUPTED; i++)
		w_visit(ask, NULL);
	setitimer(ITIMER_REAL, &never, NULL);
	return 1;
}

static void *coroutine, *resumer;

static void switching_body(void)
{
	for (;;) {
		w_visit_too(ask, NULL);
		u_switch(&coroutine, resumer);
	}
}

static void make_coroutine(char *stack, size_t size)
{
	enum { SAVED = 6 };
	void **top = (void **)(stack + size);

	// Nothing is behind the body, which starts with the stack as a call leaves it.
	*--top = NULL;
	*--top = (void *)switching_body;
	coroutine = memset(top - SAVED, 0, SAVED * sizeof(*top));
}

static void resume(void *unused)
{
	(void)unused;
	u_switch(&resumer, coroutine);
}

// A stack in the frame of main lies above every frame that is in use, and in the same mapping.
static char *in_main_frame;

static int coroutine_in_frame(void)
{
	if (!coroutine)
		make_coroutine(in_main_frame, STACK);
	w_visit(resume, NULL);
	return 1;
}

static void *resuming_thread(void *unused)
{
	for (int i = 0; i < 5; i++) {
		w_visit(resume, NULL);
		truth("w_visit w_visit_too(w_who)");
	}
	return unused;
}

// The kernel makes one mapping of this stack and the next thread's, as nothing is between them.
static int coroutine_beside_thread(void)
{
	enum { POOL = 16 << 20 };
	char *pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pthread_t thread;

	make_coroutine(pool, POOL);
	if (pthread_create(&thread, NULL, resuming_thread, NULL) != 0)
		exit(1);
	pthread_join(thread, NULL);
	munmap(pool, POOL);
	return 1;
}

// There is another program that throws out of that callback.
static int replaced(void)
{
	w_visit(ask, NULL);
	return 1;
}

static const struct round rounds[] = {
	{ "asks_for_callers", asks_for_callers, "w_who w_tail_who(w_who) w_walk(w_walk(w_walk(w_walk(w_walk(w_walk)))))" },
	{ "saved_return_address", saved_return_address,
	  "w_attempt(w_nlr_push(w_nlr_push_tail) w_work) w_attempt(w_nlr_push(w_nlr_push_tail) w_work!(w_nlr_jump!))" },
	{ "signals_often", signals_often, "w_visit*2000(w_who)" },
	{ "coroutine_in_frame", coroutine_in_frame, "w_visit w_visit_too(w_who)" },
	{ "coroutine_beside_thread", coroutine_beside_thread, NULL },
	{ "replaced", replaced, "w_visit(w_who)" },
};

int main(int argc, char **argv)
{
	char room[STACK] __attribute__((aligned(16)));

	in_main_frame = room;
	return play(argc, argv, rounds, sizeof(rounds) / sizeof(rounds[0]));
}
