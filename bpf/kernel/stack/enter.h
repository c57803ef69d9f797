/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where functions enter: which call they were called from, which calls that shows to be over, and what is known of a
 * new one.
 *
 * Pure logic like stack.h, where the rules stand.
 */
#ifndef RTRACE_ENTER_H
#define RTRACE_ENTER_H

#include "stack.h"

/* Whether the hit decides about the frame, whatever stack it looks for callers on. */
static __always_inline int rt_is_concerned(const struct rt_hit *hit, const struct rt_frame *frame)
{
	return rt_spans(frame, hit->slot) || frame->stack == RT_STACK_SIGNAL;
}

rt_step(rt_youngest_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame)
		return 1;
	if (frame->stack != walk->stack && !rt_is_concerned(walk->hit, frame))
		return 0;
	walk->found = index;
	return 1;
}

rt_step(rt_next_above_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame)
		return 1;
	if (rt_is_concerned(walk->hit, frame)) {
		walk->found = index;
		return 1;
	}
	if (frame->stack != walk->stack)
		return 0;
	if (frame->slot < walk->hit->slot) {
		if (frame->doubt && walk->doubtful == RT_NONE)
			walk->doubtful = index;
	} else if (frame->slot > walk->hit->slot && frame->slot < walk->slot) {
		walk->slot = frame->slot;
		walk->found = index;
	}
	return 0;
}

rt_step(rt_same_slot_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (frame && frame->slot == walk->hit->slot && (!walk->stack || frame->region != walk->hit->region))
		return 0;
	walk->found = frame && frame->slot == walk->hit->slot ? RT_DEAD : 0;
	return 1;
}

rt_step(rt_doubt_chain_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame || frame->slot != walk->hit->slot || frame->doubt == 1 + RT_UNTIMED_AMBIGUOUS)
		return 1;
	frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
	return 0;
}

/*
 * Whether the frame at the hit's own slot has ended in a jump to the function that enters. That is sure where its call
 * can enter no other function. If it is as likely to have been left, nobody knows. Where it may jump anywhere and its
 * caller may catch what leaves it, or where it may have returned unseen, the same function a second time means that the
 * first is over, not that it jumped in a circle. The walk is used anew.
 */
static __always_inline int rt_is_tail_caller(struct rt_walk *walk, struct rt_frame *frame, u32 index)
{
	const struct rt_hit *hit = walk->hit;
	u32 is_fixed = frame->behind & RT_BEHIND_FIXED, is_doubtful = frame->tails == RT_TAILS_DOUBTFUL, is_over;

	if (!rt_may_jump(hit, frame))
		return 0;
	rt_doubt_again(hit, frame);
	is_over = frame->doubt || (frame->tails == RT_TAILS_ANYWHERE && frame->behind & RT_BEHIND_CATCHES);
	walk->start = index + 1;
	walk->found = RT_NONE;
	/* A coroutine that will never go on leaves no trace, and its stack is used again. */
	walk->stack = is_over || is_doubtful || !rt_is_ordered(frame->stack);
	rt_repeat(RT_TAILS_MAX, rt_same_slot_step, walk);
	if (walk->found == RT_DEAD && is_over && !is_doubtful)
		return 0;
	if (walk->found == 0 && (is_fixed || (!is_doubtful && rt_is_ordered(frame->stack))))
		return 1;
	if (walk->found != RT_NONE) {
		if (!frame->doubt)
			frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
		return 0;
	}
	/* Too many in a row: they would all return with the last, and some of what they called would be missing. */
	walk->start = index + 1;
	rt_repeat(RT_TAILS_MAX, rt_doubt_chain_step, walk);
	return 0;
}

/* The place of the frame that calls the function which is hit, with RT_DEAD if that was left. */
rt_rare u32 rt_search_caller(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE, .doubtful = RT_NONE, .slot = ~0ull };
	struct rt_frame *frame, *below;
	struct rt_hit hit;
	int is_running;
	u32 found;

	if (!rt_known(&hit, given))
		return RT_NONE;
	walk.hit = &hit;
	walk.start = hit.thread->frames;
	walk.stack = hit.stack;
	frame = rt_frame(&hit, walk.start - 1);
	if (!frame)
		return RT_NONE;
	/* The first frame on the signal stack: the signal interrupted one on the stack of the last hit. */
	if (hit.stack == RT_STACK_SIGNAL && frame->stack != RT_STACK_SIGNAL)
		walk.stack = hit.thread->stack_key;
	if (rt_is_ordered(hit.stack))
		rt_repeat(RT_FRAMES, rt_youngest_step, &walk);
	else
		rt_repeat(RT_FRAMES, rt_next_above_step, &walk);
	found = walk.found;
	frame = rt_frame(&hit, found);
	below = rt_frame(&hit, walk.doubtful);
	/* Its caller, or who called that, calls again from further up. */
	if (below && below->parent >= (frame ? frame->id : 0))
		return walk.doubtful | RT_DEAD;
	if (!frame)
		return RT_NONE;
	if (frame->slot == hit.slot)
		is_running = rt_is_tail_caller(&walk, frame, found);
	else
		is_running = !rt_was_left(&hit, frame);
	return is_running ? found : found | RT_DEAD;
}

/*
 * Whether the frame at this place may have returned unseen, and its caller is over: where slots prove nothing, this
 * shows that it did.
 */
rt_rare u32 rt_is_forsaken(u32 index)
{
	struct rt_frame *frame;
	struct rt_hit hit = {};

	if (!rt_meet(&hit))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame || !frame->doubt || !frame->parent || rt_is_ordered(frame->stack))
		return 0;
	return rt_search_older(frame->parent, index) == RT_NONE;
}

rt_step(rt_caller_step)
{
	struct rt_walk *walk = context;
	u32 found = rt_search_caller(walk->hit);

	if (found == RT_NONE || (!(found & RT_DEAD) && !rt_is_forsaken(found))) {
		walk->found = found;
		return 1;
	}
	rt_put_aside(walk->hit, found & ~RT_DEAD);
	return 0;
}

/*
 * Finds the frame that calls the function which is hit; those in the way that were left are put aside.
 * The verifier does not know the pointers of the hit any more afterwards.
 */
static __always_inline void rt_clear_way(struct rt_walk *walk)
{
	walk->found = RT_NONE;
	rt_repeat(RT_FRAMES, rt_caller_step, walk);
}

/* The frame that calls the function which is hit. */
static __always_inline struct rt_frame *rt_caller(struct rt_hit *hit)
{
	struct rt_measured *measured = hit->measured;
	struct rt_thread *thread = hit->thread;
	struct rt_walk walk = { .hit = hit };
	struct rt_frame *top;

	if (!rt_may_be_left(hit)) {
		if (thread->frames == 0)
			return 0;
		top = rt_frame(hit, thread->frames - 1);
		if (top && top->stack == hit->stack && rt_is_ordered(hit->stack) && top->slot != hit->slot &&
		    !rt_was_left(hit, top))
			return top;
	}
	if (!hit->now)
		hit->now = rt_now();
	rt_clear_way(&walk);
	if (thread->left_places & rt_left_bit(hit->slot))
		rt_settle_left(hit);
	hit->thread = thread;
	hit->measured = measured;
	hit->far = 0;
	return rt_frame(hit, walk.found);
}

/*
 * The return address in a slot, also where it is replaced by the trampoline, which is noted; 0: it is not known.
 * `arrival` becomes what is known of it. Nothing is known of the trampoline, so mostly nobody has to look for it.
 */
static __always_inline u64 rt_read_return(const struct rt_hit *hit, u64 slot, u64 *arrival, u32 *is_hooked)
{
	u64 word;

	*arrival = RT_UNKNOWN;
	if (rt_read_slot(slot, &word) || !word)
		return 0;
	*arrival = rt_known_arrival(hit, word);
	if (*arrival != RT_UNKNOWN || word != rt_trampoline())
		return word;
	*is_hooked = 1;
	return rt_replaced(slot);
}

/*
 * Where the return of a call will be detected: past what it takes off the stack, and callers that only return. `pops`: the
 * words, and RT_POPS_…
 */
static __always_inline void rt_find_home(const struct rt_hit *hit, struct rt_frame *frame, u64 arrival, u32 pops)
{
	u32 kind = RT_ARRIVAL_SKIP, rise = pops & RT_POPS_MAX, words = 0, is_hooked = 0, i;
	u64 home = hit->word, skipped = 0;

	for (i = 0; i <= RT_SKIPS_MAX && home; i++) {
		if (arrival == RT_UNKNOWN)
			arrival = rt_first_arrival(hit, home);
		if ((u32)arrival == RT_ARRIVAL_ASKED)
			arrival = rt_answer(hit, home);
		kind = arrival;
		words = arrival >> 32;
		if (kind != RT_ARRIVAL_SKIP)
			break;
		if (!skipped)
			frame->behind = arrival >> (32 + RT_SKIP_FIXED_BIT);
		skipped = home;
		rise += words & ~(1u << RT_SKIP_ASKED_BIT | 1u << RT_SKIP_FIXED_BIT);
		home = rt_read_return(hit, hit->slot + rise * sizeof(u64), &arrival, &is_hooked);
	}
	if (home && kind == RT_ARRIVAL_SKIP) {
		rt_ask_for_site(hit, skipped);
		kind = RT_ARRIVAL_ASKED;
	} else if (skipped && kind != RT_ARRIVAL_PLACED && !(frame->behind >> (RT_SKIP_ASKED_BIT - RT_SKIP_FIXED_BIT))) {
		rt_ask_for_interim(hit, hit->word);
	}
	frame->home = home;
	frame->rise = rise;
	frame->overwritten = is_hooked;
	if (kind != RT_ARRIVAL_PLACED)
		words = RT_BEHIND_CATCHES;
	if (skipped)
		frame->behind = (frame->behind & RT_BEHIND_FIXED) | (words & RT_BEHIND_LANDS);
	else
		frame->behind = words;
	if (words & RT_BEHIND_LANDS && frame->tails != RT_TAILS_NEVER)
		frame->tails = RT_TAILS_DOUBTFUL;
	if (!frame->doubt)
		frame->doubt = (words & RT_BEHIND_BACK) == RT_BEHIND_JOINED ? 1 + RT_UNTIMED_AMBIGUOUS :
										   rt_doubt(home ? kind : RT_ARRIVAL_SKIP);
}

/* What is known of a call when it enters; its caller may be null. */
static __always_inline void rt_begin(const struct rt_hit *hit, struct rt_frame *frame, const struct rt_frame *caller,
				     u32 policy, u32 tails, u32 pops, u64 arrival)
{
	frame->slot = hit->slot;
	frame->word = hit->word;
	frame->home = 0;
	frame->id = hit->thread->calls;
	frame->parent = caller ? caller->id : 0;
	frame->child = 0;
	frame->region = hit->region;
	frame->stack = hit->stack;
	frame->depth = caller ? caller->depth + 1 : 0;
	frame->rise = 0;
	frame->behind = RT_BEHIND_CATCHES;
	frame->overwritten = 0;
	frame->overwrites = (pops & RT_POPS_OVERWRITES) != 0;
	frame->policy = policy;
	frame->tails = tails;
	frame->doubt = pops & RT_POPS_UNKNOWN ? 1 + RT_UNTIMED_AMBIGUOUS : 0;
	frame->marked = 0;
	frame->opens = 0;
	frame->path = rt_path(hit->thread, caller, hit->region);
	if (policy == RT_POLICY_RETURN_SITE)
		rt_find_home(hit, frame, arrival, pops);
	/* The latest moment; but counters are read already, and time on a CPU begins with the duration. */
	frame->start = rt_counters ? hit->now : rt_now();
}

/* A call whose return is not waited for leaves at once. Apart, because stacks are short in the kernel. */
static __noinline void rt_pass(struct rt_hit *hit, struct rt_frame *caller)
{
	struct rt_frame frame;

	rt_begin(hit, &frame, caller, RT_POLICY_ENTRY_ONLY, RT_TAILS_NEVER, 0, RT_UNKNOWN);
	rt_untimed(hit->region, RT_UNTIMED_NOT_ASKED_FOR);
	rt_measure_nothing(hit);
	rt_leave(hit, &frame, caller, rt_valued(&hit->measured->entering), 0, RT_UNSEEN);
}

rt_step(rt_lap_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame)
		return 1;
	if (frame->stack != walk->hit->stack || frame->slot < walk->hit->slot)
		return 0;
	if (frame->slot == walk->hit->slot && frame->word == walk->hit->word && frame->region == walk->hit->region &&
	    frame->policy == RT_POLICY_RETURN_SITE)
		walk->found = index;
	return frame->slot == walk->hit->slot || rt_is_ordered(frame->stack);
}

/*
 * Whether a function that may come back to its first instruction is there again, and was not called. Where that cannot
 * be told, the hit is no call either, but counts as lost.
 */
rt_rare u32 rt_is_lap(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE };
	struct rt_frame *frame;
	struct rt_hit hit;

	if (!rt_known(&hit, given) || !hit.word)
		return 0;
	walk.hit = &hit;
	walk.start = hit.thread->frames;
	rt_repeat(RT_FRAMES, rt_lap_step, &walk);
	frame = rt_frame(&hit, walk.found);
	if (!frame)
		return 0;
	rt_doubt_again(&hit, frame);
	if (frame->doubt || frame->behind & RT_BEHIND_BACK || frame->tails >= RT_TAILS_ANYWHERE) {
		/* No hit can end it for sure any more. */
		frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
		rt_lost(hit.region, RT_LOSS_MAYBE_LAP);
	} else {
		rt_lost(hit.region, RT_LOSS_LAP);
	}
	return 1;
}

/* A call of the hit's region enters, whose function may do laps; `pops`: what is known of how it returns. */
static __always_inline void rt_enter(struct rt_hit *hit, u32 policy, u32 tails, u32 laps, u32 pops)
{
	struct rt_measured *measured = hit->measured;
	struct rt_thread *thread = hit->thread;
	struct rt_frame *caller, *frame;
	u64 arrival;
	u32 is_hooked;

	hit->word = rt_read_return(hit, hit->slot, &arrival, &is_hooked);
	if (laps && thread->frames && rt_is_lap(hit))
		return;
	/* The verifier does not know the pointers of the hit any more. */
	hit->thread = thread;
	hit->measured = measured;
	hit->far = 0;
	caller = rt_caller(hit);
	/* Those that open may have been left. */
	if (rt_is_outside(thread, hit->region))
		return;
	if (rt_levels)
		rt_see_context(hit, caller);
	thread->calls++;
	if (policy == RT_POLICY_ENTRY_ONLY) {
		rt_pass(hit, caller);
		return;
	}
	if (thread->frames >= RT_FRAMES_NEAR && !hit->far)
		hit->far = rt_far(1);
	frame = rt_frame(hit, thread->frames);
	if (!frame || !rt_count_from_here(hit, thread->frames)) {
		rt_lost(hit->region, thread->frames < RT_FRAMES ? RT_LOSS_NO_MEMORY : RT_LOSS_TOO_DEEP);
		return;
	}
	rt_begin(hit, frame, caller, policy, tails, pops, arrival);
	if (rt_within && rt_opens(hit->region)) {
		frame->opens = 1;
		thread->openers++;
	}
	if (rt_may_move(frame))
		rt_note_foreign(rt_home_slot(frame), frame->id);
	thread->frames++;
}

#endif
