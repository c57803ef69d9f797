// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every way to leave a call, but for exceptions.
#include "rounds.h"

#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 64 * 1024, LONG_US = 20000 };

static int direct_tail(void)
{
	return TIMED("w_tail_direct", w_tail_direct(1));
}

static int indirect_tail(void)
{
	return TIMED("w_tail_indirect", w_tail_indirect(w_leaf, 1)) + w_tail_indirect(w_other, 1);
}

static int tail_into_library(void)
{
	return TIMED("w_tail_plt", w_tail_plt(1)) + (TIMED("w_tail_libc", w_tail_libc("ways")) > 0);
}

static int tail_into_untraced(void)
{
	return TIMED("w_tail_hidden", w_tail_hidden(1)) + TIMED("w_tail_hidden_calls", w_tail_hidden_calls(1));
}

static int chained_tails(void)
{
	return TIMED("w_chain", w_chain(1));
}

static int mutual_tails(void)
{
	return TIMED("w_even", w_even(6)) + w_even(1) + w_even(0);
}

static int self_tails(void)
{
	return TIMED("w_again", w_again(3)) + w_again(0);
}

static int tail_out_of_recursion(void)
{
	return TIMED("w_recurse_out", w_recurse_out(2));
}

static int jump_table(void)
{
	int sum = 0;

	for (int i = 0; i < 4; i++)
		sum += TIMED("w_table", w_table(i));
	return sum;
}

static int loops_from_the_entry(void)
{
	return w_loop(9) + w_loop(1) + w_loop(30) + w_loop_behind(8);
}

static int callee_pops(void)
{
	/* It is single-stepped, which is measured, too. */
	return u_call_pop(3);
}

static int early_returns(void)
{
	return w_array(-3) + TIMED("w_array", w_array(5)) + w_alloca(-4) + TIMED("w_alloca", w_alloca(5));
}

static int only_returns(void)
{
	int sum = TIMED("w_leaf", u_only(1)) + TIMED("w_leaf", u_only_bare(1)) + TIMED("w_leaf", u_only_pops(1));

	return sum + TIMED("w_leaf", u_only_leave(1)) + TIMED("w_leaf", u_only_deep(1));
}

static int traced_only_returns(void)
{
	return TIMED("w_only", w_only(1)) + TIMED("w_only_twice", w_only_twice(1)) + TIMED("w_only_tail", w_only_tail(1));
}

__attribute__((noipa)) static int untraced(int n)
{
	long long begin = now();

	while (now() - begin < BUSY_NS)
		;
	return n;
}

// All calls of a table, from one place.
__attribute__((noipa)) static int call_each(function *const *callees, const char *const *names, int count)
{
	int sum = 0;

	for (int i = 0; i < count; i++) {
		long long begin = now();

		sum += callees[i](i);
		if (names[i])
			u_note(names[i], 0, begin, now());
	}
	return sum;
}

#define CALL_EACH(callees, ...) ({ \
	static const char *const names_[] = { __VA_ARGS__ }; \
	call_each(callees, names_, sizeof(names_) / sizeof(names_[0])); })

static int virtual_traced_or_not(void)
{
	static function *const callees[] = { w_leaf, untraced, w_leaf, untraced, untraced, w_leaf };

	return CALL_EACH(callees, "w_leaf", NULL, "w_leaf", NULL, NULL, "w_leaf");
}

static int virtual_traced(void)
{
	static function *const callees[] = { w_leaf, w_other, w_leaf, w_leaf, w_other };

	return CALL_EACH(callees, "w_leaf", "w_other", "w_leaf", "w_leaf", "w_other");
}

// A call and what it jumps to have the place that they return to in common with calls made one after
// the other.
static int virtual_tails(void)
{
	static function *const callees[] = { w_tail_direct, w_leaf, u_only, w_chain, w_leaf, w_only, w_tail_direct };

	return CALL_EACH(callees, "w_tail_direct", "w_leaf", "w_leaf", "w_chain", "w_leaf", "w_only", "w_tail_direct");
}

static int catching_dive(int n)
{
	return w_land(w_dive, n);
}

static int virtual_jumps(void)
{
	static function *const callees[] = { w_leaf, catching_dive, w_leaf, catching_dive, catching_dive, w_other };

	return CALL_EACH(callees, "w_leaf", NULL, "w_leaf", NULL, NULL, "w_other");
}

// What was left by a jump, and what is called next from the same place on the same stack.
static int jumps_to_the_same_place(void)
{
	static function *const callees[] = { w_dive, w_leaf, w_dive, w_dive, w_other };

	return TIMED("w_land_each", w_land_each(callees, 5));
}

static int long_jumps(void)
{
	int sum = 0;

	for (int i = 0; i < 3; i++)
		sum += TIMED("w_land", w_land(w_dive, i));
	return sum;
}

static int long_jumps_over_tails(void)
{
	return TIMED("w_land", w_land(w_tail_dive, 1)) + TIMED("w_land", w_land(w_only_dive, 1));
}

static int long_jumps_to_depths(void)
{
	int sum = 0;

	for (int to = 0; to < 4; to++)
		sum += TIMED("w_lands", w_lands(3, to));
	return sum;
}

static jmp_buf here;

static int leap(int n)
{
	longjmp(here, n);
}

static int busy(void *n)
{
	return untraced((int)(intptr_t)n);
}

__attribute__((noipa)) static int next_to(int n)
{
	return n + 1;
}

// Calls one function or the other from one place, and does more than return then. It catches nothing.
__attribute__((noipa)) static int between(void *callee, void *argument)
{
	int (*called)(void *, long) = callee;

	return next_to(called(argument, 1)) + 1;
}

// Goes on for long, and calls nothing that is traced, once it has said when it landed.
__attribute__((noipa)) static int land(void *callee, void *argument)
{
	volatile long long begin = now();

	if (setjmp(here) != 0) {
		u_note("w_tail_indirect", 0, begin, now());
		return usleep(LONG_US) + 5;
	}
	return OPAQUE(between(callee, argument)) + 1;
}

// Who jumps ends in a jump to what is not known, so it could have called what enters there next.
static int long_jumps_over_callers(void)
{
	return land(w_tail_indirect, leap) + land(w_call, busy);
}

static int recursion(void)
{
	return TIMED("w_recurse", w_recurse(10)) + OPAQUE(w_recurse(300));
}

static int callbacks(void)
{
	static const int key = 5;
	const int *found = TIMED("w_compare", bsearch(&key, &key, 1, sizeof(key), w_compare));

	return *found;
}

static void call_leaf(void *unused)
{
	(void)unused;
	w_leaf(1);
}

static void handle(void (*handler)(int), int flags)
{
	static char memory[STACK];
	stack_t stack = { .ss_sp = memory, .ss_size = STACK };
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
}

static int raise_both(void)
{
	return TIMED("w_raise", w_raise(1)) + TIMED("w_tail_raise", w_tail_raise(1));
}

static int signals(void)
{
	handle(w_handle, 0);
	return raise_both();
}

static int signals_on_another_stack(void)
{
	handle(w_handle, SA_ONSTACK);
	return raise_both();
}

static int signal_jumps(void)
{
	handle(w_handle_and_jump, 0);
	return TIMED("w_land_from_signal", w_land_from_signal(1));
}

static int signal_jumps_off_another_stack(void)
{
	handle(w_handle_and_jump, SA_ONSTACK);
	return TIMED("w_land_from_signal", w_land_from_signal(1));
}

static int *pages[2]; // neither of which can be read until it is repaired
static sigjmp_buf loaded;

static void repair(int number, siginfo_t *info, void *context)
{
	int first = info->si_addr == pages[0];

	(void)number, (void)context;
	if (!first && info->si_addr != pages[1])
		siglongjmp(loaded, w_leaf(0));
	w_leaf(first ? w_load(pages[1]) : 0);
	mprotect(first ? pages[0] : pages[1], sizeof(int), PROT_READ);
}

static int load_faulty(int flags)
{
	struct sigaction action = { .sa_sigaction = repair, .sa_flags = flags | SA_SIGINFO | SA_NODEFER };
	volatile int sum = 0;

	handle(w_handle, flags);
	sigaction(SIGSEGV, &action, NULL);
	for (int i = 0; i < 2; i++)
		pages[i] = mmap(NULL, sizeof(int), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sum += TIMED("w_load", w_load(pages[0]));
	sum += TIMED("w_load", w_load(pages[0]));
	for (volatile int i = 0; i < 3; i++) {
		if (sigsetjmp(loaded, 1) == 0)
			w_load((const int *)8);
		else
			sum++;
	}
	for (int i = 0; i < 2; i++)
		munmap(pages[i], sizeof(int));
	return sum;
}

static int faults_at_the_entry(void)
{
	return load_faulty(0);
}

static int faults_at_the_entry_and_another_stack(void)
{
	return load_faulty(SA_ONSTACK);
}

static void count_frames(void *count)
{
	void *frames[64];

	*(int *)count = backtrace(frames, 64);
}

static int backtraces(void)
{
	int count;

	w_visit(count_frames, &count);
	return count;
}

static int run_thread(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	void *result;

	if (pthread_create(&thread, NULL, body, argument) != 0 || pthread_join(thread, &result) != 0)
		exit(1);
	return result == PTHREAD_CANCELED ? 13 : (int)(intptr_t)result;
}

// A stack in the frame of main lies above every frame that is in use, and in the same mapping.
static char *in_main_frame;
static ucontext_t context, outside;

static void context_body(void)
{
	for (;;) {
		w_visit(call_leaf, NULL);
		swapcontext(&context, &outside);
	}
}

static void resume_context(void *unused)
{
	(void)unused;
	swapcontext(&outside, &context);
}

static int context_in_frame(void)
{
	if (!context.uc_stack.ss_sp) {
		getcontext(&context);
		context.uc_stack.ss_sp = in_main_frame;
		context.uc_stack.ss_size = STACK;
		makecontext(&context, context_body, 0);
	}
	visit(resume_context, NULL);
	return 1;
}

// Nothing but the traced function runs on that thread: its id is that of the window noted last.
static int thread_function(void)
{
	int returned = run_thread(w_thread, (void *)1);

	dprintf(STDOUT_FILENO, "truth %d %ld w_thread(w_leaf)\n", getpid(), spans[span_count - 1].thread);
	return returned;
}

static int leave_thread(void *unused)
{
	(void)unused;
	w_leaf(1);
	pthread_exit((void *)1);
}

static void *exiting_thread(void *unused)
{
	truth("w_tail_visit~(w_call~(w_leaf))");
	w_tail_visit(leave_thread, unused);
	return NULL;
}

static int thread_exits(void)
{
	return run_thread(exiting_thread, NULL);
}

static int wait_for_cancel(void *unused)
{
	(void)unused;
	w_leaf(1);
	pthread_cancel(pthread_self());
	pause();
	return 0;
}

static void *cancelled_thread(void *unused)
{
	truth("w_tail_visit!(w_call!(w_leaf)) w_leaf");
	pthread_cleanup_push(call_leaf, NULL);
	w_tail_visit(wait_for_cancel, unused);
	pthread_cleanup_pop(0);
	return NULL;
}

static int thread_cancelled(void)
{
	return run_thread(cancelled_thread, NULL);
}

// Called from code that is in no file, where no probe can be.
static int called_from_memory(void)
{
	// sub $8, %rsp; movabs $callee, %rax; call *%rax; add $8, %rsp; ret
	unsigned char code[] = { 0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0,	   0, 0, 0,
				 0,    0,    0,	   0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3 };
	void *callee = (void *)w_leaf;
	void *memory =
		mmap(NULL, sizeof(code), PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int sum;

	memcpy(code + 6, &callee, sizeof(callee));
	memcpy(memory, code, sizeof(code));
	sum = ((function *)memory)(1) + w_other(2);
	munmap(memory, sizeof(code));
	return sum;
}

// Reads as "NAME(NAME(...CALLS))".
static const char *chain(const char *name, int depth, const char *calls)
{
	static char text[8192];
	int length = 0;

	for (int i = 0; i < depth; i++)
		length += sprintf(text + length, "%s%s", i ? "(" : "", name);
	length += sprintf(text + length, "%s", calls);
	memset(text + length, ')', depth - 1);
	text[length + depth - 1] = '\0';
	return text;
}

static int told_recursion(void)
{
	int sum = recursion();

	truth("%s", chain("w_recurse", 11, ""));
	truth("%s", chain("w_recurse", 301, ""));
	return sum;
}

static const struct round ways[] = {
	{ "direct_tail", direct_tail, "w_tail_direct(w_leaf)" },
	{ "indirect_tail", indirect_tail, "w_tail_indirect(w_leaf) w_tail_indirect(w_other)" },
	{ "tail_into_library", tail_into_library, "w_tail_plt(leaf) w_tail_libc" },
	{ "tail_into_untraced", tail_into_untraced, "w_tail_hidden w_tail_hidden_calls(w_leaf)" },
	{ "chained_tails", chained_tails, "w_chain(w_chain_2(w_chain_3(w_leaf)))" },
	{ "mutual_tails", mutual_tails,
	  "w_even(w_odd(w_even(w_odd(w_even(w_odd(w_even(w_leaf))))))) w_even(w_odd(w_other)) w_even(w_leaf)" },
	{ "self_tails", self_tails, "w_again(w_again(w_again(w_again(w_leaf)))) w_again(w_leaf)" },
	{ "tail_out_of_recursion", tail_out_of_recursion, "w_recurse_out(w_recurse_out(w_recurse_out(w_leaf)))" },
	{ "jump_table", jump_table, "w_table w_table*2(w_leaf) w_table(w_other)" },
	{ "loops_from_the_entry", loops_from_the_entry, "w_loop*3 w_loop_behind" },
	{ "callee_pops", callee_pops, "w_pop(w_leaf)" },
	{ "early_returns", early_returns, "w_array w_array(w_leaf) w_alloca w_alloca(w_leaf)" },
	{ "only_returns", only_returns, "w_leaf*5" },
	{ "traced_only_returns", traced_only_returns,
	  "w_only(w_leaf) w_only_twice(w_only(w_leaf)) w_only_tail(w_tail_direct(w_leaf))" },
	{ "virtual_traced_or_not", virtual_traced_or_not, "w_leaf*3" },
	{ "virtual_traced", virtual_traced, "w_leaf w_other w_leaf*2 w_other" },
	{ "virtual_tails", virtual_tails,
	  "w_tail_direct(w_leaf) w_leaf*2 w_chain(w_chain_2(w_chain_3(w_leaf))) w_leaf w_only(w_leaf) "
	  "w_tail_direct(w_leaf)" },
	{ "virtual_jumps", virtual_jumps,
	  "w_leaf w_land(w_dive!(w_dive!(w_leaf)) w_leaf) w_leaf w_land(w_dive!(w_dive!(w_dive!(w_dive!(w_leaf)))) w_leaf) "
	  "w_land(w_dive!(w_dive!(w_dive!(w_dive!(w_dive!(w_leaf))))) w_leaf) w_other" },
	{ "jumps_to_the_same_place", jumps_to_the_same_place,
	  "w_land_each(w_dive!(w_leaf) w_leaf w_dive!(w_leaf) w_dive!(w_leaf) w_other)" },
	{ "long_jumps", long_jumps,
	  "w_land(w_dive!(w_leaf) w_leaf) w_land(w_dive!(w_dive!(w_leaf)) w_leaf) "
	  "w_land(w_dive!(w_dive!(w_dive!(w_leaf))) w_leaf)" },
	{ "long_jumps_over_callers", long_jumps_over_callers, "w_tail_indirect! w_call" },
	{ "long_jumps_over_tails", long_jumps_over_tails,
	  "w_land(w_tail_dive!(w_dive!(w_dive!(w_leaf))) w_leaf) w_land(w_only_dive!(w_dive!(w_dive!(w_leaf))) w_leaf)" },
	{ "long_jumps_to_depths", long_jumps_to_depths,
	  "w_lands(w_lands(w_lands(w_lands(w_leaf)))) w_lands(w_lands(w_lands(w_lands! w_leaf))) "
	  "w_lands(w_lands(w_lands!(w_lands!) w_leaf)) w_lands(w_lands!(w_lands!(w_lands!)) w_leaf)" },
	{ "recursion", told_recursion, NULL },
	{ "callbacks", callbacks, "w_compare(w_leaf)" },
	{ "signals", signals, "w_raise(w_handle(w_leaf)) w_tail_raise(w_raise(w_handle(w_leaf)))" },
	{ "signals_on_another_stack", signals_on_another_stack,
	  "w_raise(w_handle(w_leaf)) w_tail_raise(w_raise(w_handle(w_leaf)))" },
	{ "signal_jumps", signal_jumps, "w_land_from_signal(w_raise!(w_handle_and_jump!) w_leaf)" },
	{ "signal_jumps_off_another_stack", signal_jumps_off_another_stack,
	  "w_land_from_signal(w_raise!(w_handle_and_jump!) w_leaf)" },
	{ "faults_at_the_entry", faults_at_the_entry,
	  "w_load(w_load(w_leaf) w_leaf) w_load w_load!*3(w_leaf)" },
	{ "faults_at_the_entry_and_another_stack", faults_at_the_entry_and_another_stack,
	  "w_load(w_load(w_leaf) w_leaf) w_load w_load!*3(w_leaf)" },
	{ "backtraces", backtraces, "w_visit" },
	{ "context_in_frame", context_in_frame, "visit w_visit(w_leaf)" },
	{ "thread_function", thread_function, NULL },
	{ "thread_exits", thread_exits, NULL },
	{ "thread_cancelled", thread_cancelled, NULL },
	{ "called_from_memory", called_from_memory, "w_leaf w_other" },
};

int main(int argc, char **argv)
{
	char room[STACK] __attribute__((aligned(16)));

	in_main_frame = room;
	return play(argc, argv, ways, sizeof(ways) / sizeof(ways[0]));
}
