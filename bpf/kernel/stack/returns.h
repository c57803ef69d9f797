/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the calls on the shadow stack end: by a return to their home, or with their thread. Calls that were
 * left, and return after all, end here, too.
 *
 * Pure logic like stack.h, where the rules stand.
 */
#ifndef RTRACE_RETURNS_H
#define RTRACE_RETURNS_H

#include "stack.h"

/* Whether the hit is where the return of this frame arrives. */
static __always_inline int rt_returns_here(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (frame->policy != RT_POLICY_RETURN_SITE)
		return 0;
	if (hit->slot == rt_home_slot(frame))
		return frame->home == hit->word;
	/* One of the callers that only return may have got a probe since the frame entered. */
	return hit->only_returns && rt_spans(frame, hit->slot) &&
	       (hit->slot != frame->slot || hit->word == frame->word);
}

/* Whether this frame stands above the hit, on its stack. */
static __always_inline int rt_is_higher(const struct rt_hit *hit, const struct rt_frame *frame)
{
	return frame->stack == hit->stack && frame->slot > hit->slot;
}

/* Whether this frame, and with it all older ones of its stack, stands above the hit. */
static __always_inline int rt_is_above(const struct rt_hit *hit, const struct rt_frame *frame)
{
	return rt_is_higher(hit, frame) && rt_is_ordered(frame->stack);
}

/* Walks down over all frames. The hit that the walk knows is gone afterwards. */
static __always_inline void rt_search(const struct rt_hit *given, struct rt_walk *walk, rt_step_of *step)
{
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return;
	walk->hit = &hit;
	walk->start = hit.thread->frames;
	rt_repeat(RT_FRAMES, step, walk);
}

rt_step(rt_home_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame)
		return 1;
	if (rt_returns_here(walk->hit, frame))
		walk->found = index;
	else if (!rt_is_above(walk->hit, frame))
		return 0;
	return 1;
}

/* The place of the youngest frame that returns to the hit. */
rt_rare u32 rt_search_home(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE };

	rt_search(given, &walk, rt_home_step);
	return walk.found;
}

/*
 * Whether the stack pointer is above this frame: then it is no longer running, unless the hit is its
 * return.
 */
static __always_inline int rt_is_below(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (frame->stack != hit->stack)
		return frame->stack == RT_STACK_SIGNAL;
	/* The word right below the stack pointer is nobody's on any stack. */
	return rt_spans(frame, hit->slot) || (rt_is_ordered(frame->stack) && frame->slot <= hit->slot);
}

rt_step(rt_below_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame || (walk->found != RT_NONE && index <= walk->found) || rt_is_above(walk->hit, frame))
		return 1;
	if (rt_is_below(walk->hit, frame) && !rt_returns_here(walk->hit, frame)) {
		walk->slot = index;
		return 1;
	}
	return 0;
}

/* The place of the youngest frame above the one at `index` that was left; RT_NONE if there is none. */
rt_rare u32 rt_search_below(const struct rt_hit *given, u32 index)
{
	struct rt_walk walk = { .found = index, .slot = RT_NONE };

	rt_search(given, &walk, rt_below_step);
	return walk.slot;
}

/*
 * How a frame ends by a hit at its home. Where returns there were not detected when it entered, and not all
 * calls that return there enter its function, the hit may be another call's return. Where its slot is not as
 * it was, its caller has called others meanwhile, after something was thrown, and has only come by; as far as
 * signal handlers (the red zone) and other tracers leave the slot alone.
 */
static __always_inline u32 rt_ending(const struct rt_hit *hit, struct rt_frame *frame)
{
	if (rt_was_dropped(frame, hit->since)) {
		frame->doubt = 1 + RT_UNTIMED_DROPPED;
		return RT_UNSEEN;
	}
	/* Its caller may have returned home without another call of it. */
	if (frame->doubt &&
	    (!hit->is_fixed || hit->slot != frame->slot || frame->doubt == 1 + RT_UNTIMED_AMBIGUOUS))
		return RT_UNSEEN;
	if (frame->rise < hit->reach && !frame->overwritten && !rt_is_intact(frame))
		return frame->doubt ? RT_UNSEEN : RT_UNWOUND;
	return RT_RETURNED;
}

/* The call returns. Those that were left and seem to be its callees are not, if they return after all. */
rt_rare int rt_orphan(u64 id)
{
	struct rt_left *left = rt_left(0);
	u32 i;

	if (!left)
		return 0;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		if (left->call[i].frame.parent == id)
			left->call[i].is_orphan = 1;
	}
	return 0;
}

/* Ends the frame at this place, to whose home the hit is a return. */
rt_rare int rt_arrive(const struct rt_hit *given, u32 index)
{
	struct rt_frame *frame;
	struct rt_hit hit;
	u32 ending;

	if (!rt_known(&hit, given))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame)
		return 0;
	ending = rt_ending(&hit, frame);
	if (ending == RT_RETURNED && hit.thread->left_places)
		rt_orphan(frame->id);
	rt_close(&hit, frame, index, ending);
	return 1;
}

/*
 * The frame at this place lies below the hit. If the hit has its return address, it may have returned there, and have
 * taken words off the stack.
 */
rt_rare int rt_doubt_below(const struct rt_hit *given, u32 index)
{
	struct rt_frame *frame;
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame || frame->home != hit.word || frame->stack != hit.stack || rt_spans(frame, hit.slot))
		return 0;
	rt_doubt_again(&hit, frame);
	if (!frame->doubt && hit.slot - rt_home_slot(frame) <= RT_POPS_MAX * sizeof(u64))
		frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
	return 0;
}

/*
 * Ends all that the hit is the return of, and puts aside what it shows to be left: a frame a step, since
 * programs may not be nested deeply.
 */
rt_step(rt_return_step)
{
	struct rt_walk *walk = context;
	u32 found = rt_search_home(walk->hit);
	u32 left = rt_search_below(walk->hit, found);

	if (left != RT_NONE) {
		rt_doubt_below(walk->hit, left);
		rt_put_aside(walk->hit, left);
		return 0;
	}
	if (found == RT_NONE)
		return 1;
	walk->found = found;
	rt_arrive(walk->hit, found);
	return 0;
}

rt_step(rt_share_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (frame && frame->stack == RT_STACK_OWN)
		frame->stack = RT_STACK_SHARED;
	return !frame;
}

/* Other stacks lie in the thread's own: there, slots no longer tell which calls are over. */
rt_rare int rt_share_stack(void)
{
	struct rt_left *left = rt_left(0);
	struct rt_walk walk = {};
	struct rt_hit hit = {};
	u32 i;

	if (!rt_meet(&hit) || !left)
		return 0;
	hit.thread->shares_stack = 1;
	if (hit.thread->stack_key == RT_STACK_OWN)
		hit.thread->stack_key = RT_STACK_SHARED;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		if (left->call[i].frame.stack == RT_STACK_OWN)
			left->call[i].frame.stack = RT_STACK_SHARED;
	}
	walk.hit = &hit;
	walk.start = hit.thread->frames;
	rt_repeat(RT_FRAMES, rt_share_step, &walk);
	return 0;
}

/* The call at this place was left, and returns after all. Its caller has got its time until then. */
rt_rare int rt_resume(const struct rt_hit *given, u32 place)
{
	struct rt_left_call *call, *left_caller;
	struct rt_row *row = 0;
	struct rt_frame *parent;
	struct rt_left *left;
	struct rt_hit hit;
	u32 parent_index, i;
	long long count;

	if (!rt_known(&hit, given))
		return 0;
	left = rt_left(0);
	if (!left)
		return 0;
	call = &left->call[place % RT_LEFT_MAX];
	parent = rt_older(&hit, call->frame.parent, hit.thread->frames, &parent_index);
	if (parent) {
		parent->child += hit.now - call->left;
		if (rt_counters)
			row = rt_row(&hit, parent_index, 0);
	} else {
		left_caller = rt_left_caller(left, call);
		if (left_caller) {
			left_caller->later += hit.now - call->left;
			parent = &left_caller->frame;
			row = &left_caller->row;
		} else if (call->is_orphan) {
			rt_forget_caller(&call->frame);
		}
	}
	if (rt_words && call->row.values.has && call->row.values.waits)
		rt_complete_row(hit.measured, &call->row, call->frame.region);
	rt_for_counters(i) {
		count = hit.measured->now[i] - call->row.start[i];
		/* As in rt_measure(): an estimate may fall. */
		count &= ~(count >> 63);
		if (row)
			row->child[i] += count - call->readings[i].inclusive;
		hit.measured->readings[i].inclusive = count;
		hit.measured->readings[i].child = call->row.child[i];
	}
	if (call->frame.stack == RT_STACK_OWN)
		rt_share_stack();
	call->frame.child += call->later;
	rt_leave(&hit, &call->frame, parent, rt_valued(&call->row.values), hit.now - call->frame.start, RT_RETURNED);
	rt_orphan(call->frame.id);
	call->frame.id = 0;
	return 0;
}

/* The place of the youngest call that was left and ends by the hit; RT_NONE if there is none. */
rt_rare u32 rt_search_left_return(const struct rt_hit *given)
{
	struct rt_left *left = rt_left(0);
	u32 i, place = RT_NONE;
	struct rt_frame *frame;
	u64 youngest = 0;

	if (!given || !left)
		return RT_NONE;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		frame = &left->call[i].frame;
		/* What a jump was seen to leave is over, unless nothing else returns here. */
		if (frame->tails == RT_TAILS_JUMPED && !frame->rise && !given->is_fixed)
			continue;
		if (frame->id > youngest && rt_returns_here(given, frame) && rt_is_intact(frame)) {
			youngest = frame->id;
			place = i;
		}
	}
	return place;
}

/*
 * The hit is the return of the call at this place, which was left, or of another call with its slot: then it had been
 * over before. Where both may be, nobody knows when it ended.
 */
rt_rare u32 rt_left_ending(const struct rt_hit *given, u32 place)
{
	struct rt_left *left = rt_left(0);
	struct rt_frame *frame;
	u32 ending;

	if (!given || !left)
		return RT_UNSEEN;
	frame = &left->call[place % RT_LEFT_MAX].frame;
	if (!frame->rise && !given->is_fixed)
		frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
	ending = rt_ending(given, frame);
	/* It seemed to be left for its place alone, as more would. */
	if (ending != RT_RETURNED && frame->tails != RT_TAILS_JUMPED && frame->stack == RT_STACK_OWN)
		rt_share_stack();
	return ending;
}

/* Looks for the hit's frame among those that were left. Returns how many have ended. */
rt_rare u32 rt_return_left(const struct rt_hit *given)
{
	u32 place, ended;
	struct rt_hit hit;

	if (!rt_known(&hit, given) || !rt_may_be_left(&hit))
		return 0;
	/* Callees before their callers. */
	for (ended = 0; ended < RT_LEFT_MAX; ended++) {
		place = rt_search_left_return(given);
		if (place == RT_NONE)
			break;
		if (rt_left_ending(given, place) == RT_RETURNED) {
			rt_resume(given, place);
		} else {
			rt_take_back(given, place);
			rt_give_up(given, place);
		}
	}
	return ended;
}

/* A return to a place that the frame on top of the stack does not return to. */
rt_rare u32 rt_return_elsewhere(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE };
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return 0;
	walk.hit = &hit;
	rt_repeat(RT_FRAMES, rt_return_step, &walk);
	/* One that was left may return with its callee. */
	return rt_return_left(given) || walk.found != RT_NONE;
}

/* Control is at the return address of the hit, and the stack pointer above its slot. Returns whether a call has ended. */
static __always_inline u32 rt_return(struct rt_hit *hit)
{
	u32 frames = hit->thread->frames, place;
	struct rt_frame *top = 0, *parent;
	int is_last, is_alone, may_be_left;

	if (frames)
		top = rt_frame(hit, frames - 1);
	if (!top || rt_is_above(hit, top))
		return rt_may_be_left(hit) ? rt_return_left(hit) : 0;
	if (!rt_returns_here(hit, top))
		return rt_return_elsewhere(hit);
	/*
	 * Its tail caller, or its caller that only returns, returns with it. That need not be its parent, as
	 * a frame that was left may have been taken for it; but it stands no higher than the parent does.
	 */
	parent = rt_older(hit, top->parent, frames - 1, &place);
	is_last = !top->parent || (parent && rt_is_higher(hit, parent));
	/* What stands below a call without a caller may be one that its hit did not find. */
	is_alone = top->parent || frames == 1;
	/* The verifier takes nothing of the hit for known behind a call that is given it. */
	may_be_left = rt_may_be_left(hit);
	rt_arrive(hit, frames - 1);
	if (!is_last || !is_alone || may_be_left)
		rt_return_elsewhere(hit);
	return 1;
}

rt_step(rt_abandon_step)
{
	struct rt_walk *walk = context;

	if (step >= walk->start)
		return 1;
	rt_finish(walk->hit, walk->start - 1 - step, RT_OPEN);
	return 0;
}

rt_rare int rt_give_up_left(const struct rt_hit *given)
{
	struct rt_frame *frame;
	struct rt_left *left;
	struct rt_hit hit;
	u32 i;

	if (!rt_known(&hit, given))
		return 0;
	left = rt_left(0);
	if (!left)
		return 0;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		frame = &left->call[i].frame;
		/* It may wait there for ever. */
		if (frame->id && frame->stack == RT_STACK_SHARED && rt_is_intact(frame)) {
			frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
			rt_take_back(given, i);
		}
		rt_give_up(given, i);
	}
	hit.thread->left_places = 0;
	return 0;
}

/* Returns whether the calls that run on the thread are to be handed over by who asks. */
static __always_inline u32 rt_take(struct rt_thread *thread, u32 by)
{
	return __sync_val_compare_and_swap(&thread->taken, RT_TAKEN_BY_NOBODY, by) == RT_TAKEN_BY_NOBODY;
}

/* The thread or its program ends: what still runs is closed as open. */
static __always_inline void rt_abandon(struct rt_hit *hit)
{
	struct rt_walk walk = { .hit = hit, .start = hit->thread->frames };
	struct rt_thread *thread = hit->thread;
	u32 left = thread->left;

	if (!rt_take(thread, RT_TAKEN_BY_THREAD))
		return;
	rt_repeat(RT_FRAMES, rt_abandon_step, &walk);
	if (left)
		rt_give_up_left(hit);
	thread->taken = RT_TAKEN_BY_NOBODY;
}

#endif
