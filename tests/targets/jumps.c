// SPDX-License-Identifier: Apache-2.0 OR MIT
// Control that leaves functions by other ways than a return, and other stacks than the thread's.
#include "harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

enum { ROUNDS = 100, STACK = 256 * 1024, GUARD = 4096 };

static jmp_buf landing;

static void jump_back(void *unused)
{
	(void)unused;
	leaf(0);
	longjmp(landing, 1);
}

static void visit_and_jump(void *unused)
{
	visit(jump_back, unused);
}

static void land(void *unused)
{
	if (setjmp(landing) == 0)
		visit(visit_and_jump, unused);
	leaf(0);
}

static void long_jumps(void)
{
	for (int i = 0; i < ROUNDS; i++)
		visit(land, NULL);
	truth("visit*%d(visit!(visit!(leaf)) leaf)", ROUNDS);
}

static void land_and_wait(void)
{
	if (setjmp(landing) == 0)
		visit(jump_back, NULL);
	else
		usleep(200);
}

// Returns of setjmp, which nobody traces, are all that is seen where it is called.
static void long_jumps_for_a_second(void)
{
	enum { MANY = 3000 };

	for (int i = 0; i < MANY; i++)
		land_and_wait();
	truth("visit!*%d(leaf)", MANY);
}

static void land_and_go_deeper(void *unused)
{
	if (setjmp(landing) == 0)
		visit(visit_and_jump, unused);
	leaf_far_below(0);
}

static void deeper_after_long_jumps(void)
{
	for (int i = 0; i < ROUNDS; i++)
		visit(land_and_go_deeper, NULL);
	truth("visit*%d(visit!(visit!(leaf)) leaf)", ROUNDS);
}

static sigjmp_buf signal_landing;

static void jump_from_handler(int number)
{
	leaf(number);
	siglongjmp(signal_landing, 1);
}

static void raise_in_callback(void *unused)
{
	(void)unused;
	raise(SIGUSR1);
}

static void land_from_signal(void *unused)
{
	if (sigsetjmp(signal_landing, 1) == 0)
		visit(raise_in_callback, unused);
	leaf(0);
}

static void signal_jumps(void)
{
	signal(SIGUSR1, jump_from_handler);
	for (int i = 0; i < ROUNDS; i++)
		visit(land_from_signal, NULL);
	truth("visit*%d(visit!(leaf) leaf)", ROUNDS);
}

static void calling_handler(int number)
{
	middle(number);
}

static void handle(int flags)
{
	struct sigaction action = { .sa_handler = calling_handler, .sa_flags = flags };

	sigaction(SIGUSR1, &action, NULL);
}

static void raise_and_call(void *unused)
{
	raise_in_callback(unused);
	leaf(0);
}

static void raise_rounds(void)
{
	for (int i = 0; i < ROUNDS; i++)
		visit(raise_and_call, NULL);
	truth("visit*%d(middle(leaf*2) leaf)", ROUNDS);
}

static void signals(void)
{
	handle(0);
	raise_rounds();
}

static void use_alternate_stack(void *memory)
{
	stack_t stack = { .ss_sp = memory, .ss_size = STACK };

	sigaltstack(&stack, NULL);
	handle(SA_ONSTACK);
	raise_rounds();
}

static void signals_below(void)
{
	static char memory[STACK];

	use_alternate_stack(memory);
}

static void *signals_on_upper_stack(void *upper)
{
	use_alternate_stack(upper);
	return NULL;
}

// Runs body on a thread with a stack of its own, and gives it a free stack above that one.
static void below_another_stack(void *(*body)(void *upper))
{
	char *both = mmap(NULL, STACK + GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attributes;
	pthread_t thread;

	mprotect(both + STACK, GUARD, PROT_NONE);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, both, STACK);
	if (pthread_create(&thread, &attributes, body, both + STACK + GUARD) != 0)
		exit(1);
	pthread_join(thread, NULL);
}

static void signals_above(void)
{
	below_another_stack(signals_on_upper_stack);
}

static volatile sig_atomic_t ticks;

static void tick(int number)
{
	ticks++;
	middle(number);
}

// Signals at any time; only the numbers of calls are known, and told as if nothing were nested.
static void timer(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	int rounds = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (; ticks < 200; rounds++)
		outer(rounds);
	setitimer(ITIMER_REAL, &never, NULL);
	truth("outer*%d middle*%d leaf*%d", rounds, rounds + ticks, 3 * rounds + 2 * ticks);
}

static ucontext_t caller, coroutine;

static void coroutine_body(void)
{
	for (;;) {
		middle(0);
		swapcontext(&coroutine, &caller);
	}
}

static void make_coroutine(void (*body)(void), void *memory)
{
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = memory;
	coroutine.uc_stack.ss_size = STACK;
	coroutine.uc_link = &caller;
	makecontext(&coroutine, body, 0);
}

static void resume(void *unused)
{
	(void)unused;
	swapcontext(&caller, &coroutine);
	leaf(0);
}

// What runs on the coroutine's stack was called by nobody on that stack.
static void *run_coroutine(void *memory)
{
	make_coroutine(coroutine_body, memory);
	for (int i = 0; i < ROUNDS; i++) {
		visit(resume, NULL);
		truth("visit(leaf) middle(leaf*2)");
	}
	return NULL;
}

static void coroutine_below(void)
{
	static char memory[STACK];

	run_coroutine(memory);
}

static void coroutine_above(void)
{
	below_another_stack(run_coroutine);
}

static void suspend(void *unused)
{
	(void)unused;
	leaf(0);
	swapcontext(&coroutine, &caller);
	leaf(0);
}

static void suspending_body(void)
{
	for (int i = 0; i < ROUNDS; i++)
		visit(suspend, NULL);
}

// Calls of the coroutine stay open while calls of its caller end: they are not nested in each
// other, so only the numbers of calls are told.
static void interleaved(void)
{
	static char memory[STACK];

	make_coroutine(suspending_body, memory);
	for (int i = 0; i <= ROUNDS; i++)
		visit(resume, NULL);
	truth("visit*%d leaf*%d", 2 * ROUNDS + 1, 3 * ROUNDS + 1);
}

static void *go_on(void *unused)
{
	swapcontext(&caller, &coroutine);
	return unused;
}

static void stop(void *unused)
{
	(void)unused;
	swapcontext(&coroutine, &caller);
}

static void call_untraced(void (*callback)(void *), void *argument)
{
	callback(argument);
	noted++;
}

static void moving_body(void)
{
	void (*const functions[])(void (*)(void *), void *) = { visit, call_untraced };

	for (int i = 0;; i++) {
		functions[i % 2](stop, NULL);
		noted++;
	}
}

// Each call of visit returns on another thread. What next returns to the same place of the coroutine, on the thread where
// visit was called, is another function.
static void coroutine_changes_threads(void)
{
	pthread_t thread;

	make_coroutine(moving_body, mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	for (int i = 0; i < ROUNDS; i++) {
		go_on(NULL);
		if (pthread_create(&thread, NULL, go_on, NULL) != 0)
			exit(1);
		pthread_join(thread, NULL);
	}
	truth("visit*%d", ROUNDS);
}

static ucontext_t both[2];
static int which;

static void stop_one(void *unused)
{
	(void)unused;
	swapcontext(&both[which], &caller);
}

static void stopping_body(void)
{
	for (;;) {
		visit(stop_one, NULL);
		stop_one(NULL);
	}
}

// The first coroutine's stack lies above that of the second, and its call begins and ends first.
static void coroutines_in_one_mapping(void)
{
	char *memory = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (which = 0; which < 2; which++) {
		make_coroutine(stopping_body, memory + (1 - which) * STACK);
		both[which] = coroutine;
		both[which].uc_mcontext.fpregs = &both[which].__fpregs_mem;
	}
	for (int i = 0; i < 2 * ROUNDS; i++) {
		for (which = 0; which < 2; which++)
			swapcontext(&caller, &both[which]);
	}
	truth("visit*%d", 2 * ROUNDS);
}

static const struct scenario scenarios[] = {
	{ "long_jumps", long_jumps },
	{ "long_jumps_for_a_second", long_jumps_for_a_second },
	{ "deeper_after_long_jumps", deeper_after_long_jumps },
	{ "signal_jumps", signal_jumps },
	{ "signals", signals },
	{ "signals_below", signals_below },
	{ "signals_above", signals_above },
	{ "timer", timer },
	{ "coroutine_below", coroutine_below },
	{ "coroutine_above", coroutine_above },
	{ "interleaved", interleaved },
	{ "coroutine_changes_threads", coroutine_changes_threads },
	{ "coroutines_in_one_mapping", coroutines_in_one_mapping },
};

SCENARIOS(scenarios)
