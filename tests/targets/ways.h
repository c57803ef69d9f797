// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions that are left in every way a function can be left. Traced are those whose names begin
// with `w_`; what begins with `u_` is code like theirs that is not. In the comments, what one call of
// each looks like in the notation of harness.h.
//
// A program can say how long calls took:
//
//     span TID NAME outside|inside BEGIN END     (CLOCK_MONOTONIC, ns)
//
// A window outside a call began just before it and ended when control was back at its caller; one
// inside a call lies within it.
#pragma once

#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPANS = 8192, BUSY_NS = 20000 };
struct span {
	const char *name;
	long thread;
	int is_inside;
	long long begin, end;
};
extern struct span spans[SPANS];
extern int span_count;
void u_note(const char *name, int is_inside, long long begin, long long end);

static inline long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// A call that is measured: its value, and a window outside it.
#define TIMED(name, call) ({ \
	long long begin_ = now(); \
	__typeof__(call) value_ = (call); \
	u_note(name, 0, begin_, now()); \
	value_; })

// Hides a value from the optimizer, so that calls stay calls.
#define OPAQUE(value) ({ int opaque = (value); __asm__ volatile("" : "+r"(opaque)); opaque; })

// Protected, so that calls and jumps within a library are direct.
#define TRACED __attribute__((noipa, visibility("protected")))
#define UNTRACED __attribute__((noipa)) static

typedef int function(int);

int w_leaf(int n);	      // w_leaf, which takes BUSY_NS, and gives n + 1
int w_other(int n);	      // as w_leaf, but n + 2

int w_load(const int *from); // w_load, which reads that with its first instruction

// Tail calls.
int w_tail_direct(int n);     // w_tail_direct(w_leaf)
int w_tail_indirect(function *callee, int n); // w_tail_indirect(callee), by `jmp *%reg`
int w_tail_plt(int n);	      // w_tail_plt(leaf), a jump through the PLT
int w_tail_libc(const char *n); // w_tail_libc, a jump to a function that is not traced
int w_tail_hidden(int n);     // w_tail_hidden, which is busy in a function that is not traced
int w_tail_hidden_calls(int n); // w_tail_hidden_calls(w_leaf), called from there
int w_chain(int n);	      // w_chain(w_chain_2(w_chain_3(w_leaf)))
int w_even(int n);	      // w_even(w_odd(w_even(...(w_leaf)))): n + 1 calls by jumps, then w_leaf
int w_again(int n);	      // w_again(w_again(...(w_leaf))): n + 1 calls by jumps, then w_leaf
int w_recurse_out(int n);     // w_recurse_out(w_recurse_out(...(w_leaf))): n + 1 real calls, then a jump
int w_recurse(int n);	      // w_recurse(w_recurse(...)): n + 1 calls
int w_tail_visit(int (*callback)(void *), void *argument); // w_tail_visit(w_call(what callback calls))
int w_call(int (*callback)(void *), void *argument); // w_call(what callback calls)

// In libways.S.
int w_table(int n);	      // n % 4: w_table, w_table(w_leaf) by a jump, by a call, w_table(w_other) by a jump
int w_loop(int n);	      // w_loop, whose loop begins at its first instruction
int w_loop_behind(int n);     // w_loop_behind, whose loop begins behind it
int u_call_pop(int n);	      // w_pop(w_leaf), which returns by `ret $16`
int w_only(int n);	      // w_only(w_leaf), where w_only returns right behind the call, as all of these do
int w_only_twice(int n);      // w_only_twice(w_only(w_leaf))
int w_only_tail(int n);	      // w_only_tail(w_tail_direct(w_leaf))
int u_only(int n);	      // w_leaf
int u_only_bare(int n);	      // w_leaf, behind two calls without any stack in between
int u_only_pops(int n);	      // w_leaf, with pops before the return
int u_only_leave(int n);      // w_leaf, with `leave`
int u_only_deep(int n);	      // w_leaf, under six such callers

// Frames whose size is not known before they run.
int w_array(int n);	      // w_array(w_leaf), or w_array where n < 0: returns before the array
int w_alloca(int n);	      // as w_array

// Long jumps.
int w_land(function *callee, int n); // w_land(callee!(...) w_leaf)
int w_land_each(function *const *callees, int count); // w_land_each(callee!(...) or callee, ...)
int w_dive(int n);	      // w_dive!(w_dive!(...(w_leaf))): n + 1 calls, left by a jump to w_land
int w_tail_dive(int n);	      // w_tail_dive!(w_dive!(...))
int w_only_dive(int n);	      // w_only_dive!(w_dive!(...)), in libways.S
int w_lands(int n, int to);   // w_lands(w_lands(w_lands!...)): n + 1 calls; that with n == to lands, then w_leaf

// Signals.
void w_handle(int number);    // w_handle(w_leaf), a handler
void w_handle_and_jump(int number); // w_handle_and_jump!, to w_land_from_signal
int w_land_from_signal(int n); // w_land_from_signal(w_raise!(w_handle_and_jump!) w_leaf)
int w_raise(int n);	      // w_raise(what the handler calls)
int w_tail_raise(int n);      // w_tail_raise(w_raise(...))

// First functions of others.
void *w_thread(void *n);      // w_thread(w_leaf), a thread's first function
int w_compare(const void *a, const void *b); // w_compare(w_leaf)

// In libbare.c: a library that imports nothing by which it can be told what it does.
void w_visit(void (*callback)(void *), void *argument); // w_visit(what callback calls)
void w_visit_too(void (*callback)(void *), void *argument); // w_visit_too(what callback calls)
int w_deref(const volatile int *cell, int n); // w_deref; it only computes

void *w_who(void);	      // w_who, gives its return address
void *w_tail_who(void);	      // w_tail_who(w_who)
int w_walk(int n);	      // w_walk(w_walk(...)): n + 1 calls; gives how many frames know their caller

// A return through a saved return address, as MicroPython does it.
struct nlr {
	void *saved[8];
};
int w_nlr_push(struct nlr *nlr) __attribute__((returns_twice)); // w_nlr_push(w_nlr_push_tail)
int w_nlr_push_tail(struct nlr *nlr);
void w_nlr_jump(struct nlr *nlr) __attribute__((noreturn));	// w_nlr_jump!, where w_nlr_push comes back
int w_attempt(int n); // w_attempt(w_nlr_push(w_nlr_push_tail) w_work), n odd: w_work!(w_nlr_jump!)
int w_work(int n);

// Leaves the stack that it runs on for another one.
void u_switch(void **from, void *to);

#ifdef __cplusplus
}
#endif
