/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The shadow stack: which calls are running on a thread, and how they end.
 *
 * Pure logic, compiled for BPF and for user space, where it is tested against a model. The
 * includer provides the functions declared below, and the macros rt_repeat() (bounded loop), rt_step() (what is done in one)
 * and rt_rare (a function apart).
 *
 * A frame is known by its slot, the address of the word that holds its return address, and by that
 * word. Its return is detected where it arrives: at the return address, with the stack pointer just
 * above the slot. Where the caller only returns from there, the return is detected one caller further
 * up: `home` is the return address there, and `rise` the distance of its slot.
 *
 * A hit with the return address W and the stack pointer above slot s ends all frames of (s, W): the
 * youngest has returned, the others have ended in the tail call of the next. Frames may also be left
 * without a return: by a longjmp, an exception, a switch of stacks that nobody told us of. On one
 * stack, slots fall from caller to callee, so at a hit with the slot s:
 *   - frames with a slot below s are left;
 *   - a frame at s is the caller of a tail call if the word is the same and its function can end in a
 *     jump to the one that enters, else it is left;
 *   - a frame above s is left if its slot no longer holds its return address, nor the trampoline by
 *     which the kernel replaces it where somebody hooks the return. Nothing writes to the slot of a
 *     running call. A slot that is as it was proves nothing.
 * Frames on other stacks say nothing about each other, so each frame also carries a key of its
 * stack. The alternate signal stack is as strict as the own one, and a hit elsewhere proves that
 * its handlers are over. Coroutine stacks may share a mapping and so a key: there a slot below s
 * proves nothing, and the caller is the frame next above in address, since stacks do not overlap. Only a
 * frame in doubt is taken to be over there, once its caller calls from further up.
 *
 * A frame that is left is nobody's caller any more, but while its slot is as it was it may still return:
 * a coroutine's stack may lie within that of the thread. So may one whose hooked return the kernel has not told of: a
 * signal may come on the way of it. So the last ones are kept aside (struct rt_left), and a return to the
 * place of one of them ends it after all, or, where others return there, too, without a known end; else it is recorded as
 * unwound when it was left. It cannot return any more once a function enters there. If one returns, or may have, that lay
 * on the thread's own stack, other stacks lie in that: from then on it is as any mapping that they share.
 *
 * A jump back to the first instruction of the function that is running hits its entry probe, too. Such a lap has the
 * slot, the return address and the function of a frame that is open. Where the return of that frame could not be missed,
 * and its caller gets control back by no other way, it is no call. Else it may be one: it counts as lost, and the frame
 * as ambiguous.
 *
 * A function that takes arguments off the stack as it returns leaves the stack pointer above these. Where their number
 * is known, its home is as much higher. Else a hit of its return address from further up may be its return, or that
 * of another call from there.
 *
 * A frame in doubt entered while returns to its home were not detected. A hit there ends it only if
 * all calls that return there enter the same traced function, so that a later one would have been seen;
 * otherwise the hit may be another call's. Where its caller only returns, a hit at its own return address
 * may come first. Where a frame in doubt is left or ends so, its return went
 * unseen and its duration is not known.
 *
 * Frames stand in the order of their enters, those on the signal stack above all others. Those that
 * were left are noticed where a hit looks for its caller. The time of a frame that ends is added to its
 * caller.
 */
#ifndef RTRACE_STACK_H
#define RTRACE_STACK_H

#include "counter.h"

/* Provided by the includer. */
/* Records a call. Returns whether there is a record of it. */
static u32 rt_emit(const struct rt_hit *hit, const struct rt_frame *frame, const struct rt_values *values, u64 duration,
		   u32 ending);
/* Whether rt_emit() would record it. */
static u32 rt_is_recorded(const struct rt_frame *frame, u64 duration, u32 ending);
/* Whether calls are recorded only within those of some regions, and this is one of them. */
rt_rare u32 rt_opens(u32 region);
/* Whether a call is not to be recorded, as none is running any more within which it would be; it is counted then. */
static u32 rt_is_outside(const struct rt_thread *thread, u32 region);
/* The call path of a call. */
static u32 rt_path(struct rt_thread *thread, const struct rt_frame *caller, u32 region);
/* A call is missing. */
static void rt_lost(u32 region, u32 reason);
/* A call has no duration. */
static void rt_untimed(u32 region, u32 reason);
/* Memory for deep frames; for frames that were left, which may be null. */
static struct rt_far *rt_far(u32 create);
static struct rt_left *rt_left(u32 create);
/* Reads a word of the thread's memory; 0: it was read. */
static int rt_read_slot(u64 slot, u64 *word);
static u64 rt_now(void);
/* Where the kernel's return trampoline is; 0: there is none. */
rt_rare u64 rt_trampoline(void);
/* The return address that the trampoline has replaced in that slot; 0: it is not known. */
rt_rare u64 rt_replaced(u64 slot);
/* What is known of a return address, as RT_ARRIVAL() packs it; RT_UNKNOWN: nothing, as of the trampoline. */
static u64 rt_known_arrival(const struct rt_hit *hit, u64 address);
/* The same of one of which nothing is known: it is found out, or asked for. */
static u64 rt_first_arrival(const struct rt_hit *hit, u64 address);
/* The same of one that was asked for: the answer, if it comes soon. */
static u64 rt_answer(const struct rt_hit *hit, u64 address);
/* Whether what is known of a return address is of another file, which was mapped there before; it is forgotten then. */
static u32 rt_is_replaced(const struct rt_hit *hit, u64 address);
/* Whether the probe that detects returns to an address is not in memory any more. */
static u32 rt_has_vanished(const struct rt_hit *hit, u64 address);
/* Asks for a probe at a return address from which callers only return, one above the other. */
static void rt_ask_for_site(const struct rt_hit *hit, u64 address);
/* Asks for a probe at a return address of RT_ARRIVAL_SKIP, which stays that, and gets RT_SKIP_ASKED_BIT. */
static void rt_ask_for_interim(const struct rt_hit *hit, u64 address);
/* Looks for the context of a call that enters; `caller`: the traced function around it, which may be null. */
static void rt_see_context(const struct rt_hit *hit, const struct rt_frame *caller);
/* Whether a region ends in jumps to another, where its tail calls are known. */
static u32 rt_is_known_tail(u32 from, u32 to);
/*
 * A call enters on a stack that is not the thread's own: another thread may go on there. `slot`: where it returns from.
 */
static void rt_note_foreign(u64 slot, u64 id);
/* Such a call ends on this thread. Returns whether it has ended on another one before, as far as is known. */
rt_rare u32 rt_ended_elsewhere(u64 slot, u64 id);
/* The thread that is hit; its counters, null while nothing is counted. */
static struct rt_thread *rt_thread(void);
static struct rt_measured *rt_measured(void);

#define RT_NONE 0xffffffffu
#define RT_DEAD 0x80000000u

static __always_inline struct rt_frame *rt_frame(struct rt_hit *hit, u32 index)
{
	struct rt_far *far = hit->far;

	if (index < RT_FRAMES_NEAR) {
		/* Else clang may check a copy: the verifier of Linux 6.1 does not know that it is one. */
		rt_apart(index);
		return index < RT_FRAMES_NEAR ? &hit->thread->near[index] : 0;
	}
	index -= RT_FRAMES_NEAR;
	if (index >= RT_FRAMES_FAR)
		return 0;
	rt_apart(index);
	if (!far) {
		far = rt_far(0);
		if (!far)
			return 0;
		hit->far = far;
	}
	rt_apart(index);
	if (index >= RT_FRAMES_FAR)
		return 0;
	return &far->frame[index];
}

/* Whether all slots with this key lie on one stack, so that their order tells callers from callees. */
static __always_inline int rt_is_ordered(u32 stack)
{
	return stack == RT_STACK_OWN || stack == RT_STACK_SIGNAL;
}

/* The key of the thread's own stack. */
static __always_inline u32 rt_own_stack(const struct rt_thread *thread)
{
	return thread->shares_stack ? RT_STACK_SHARED : RT_STACK_OWN;
}

/*
 * Whether the slot of a frame holds what it must while the frame is running, as far as can be told.
 * A process that has no trampoline yet has 0 for it, which is no return address.
 */
static __always_inline int rt_is_intact(const struct rt_frame *frame)
{
	u64 word;

	if (!frame->word || frame->overwrites || rt_read_slot(frame->slot, &word))
		return 1;
	return word == frame->word || (word && word == rt_trampoline());
}

/* The slot of the return address that is a frame's home. */
static __always_inline u64 rt_home_slot(const struct rt_frame *frame)
{
	return frame->slot + frame->rise * sizeof(u64);
}

/* Whether a slot is that of the frame, or of one of the callers that only return from it. */
static __always_inline int rt_spans(const struct rt_frame *frame, u64 slot)
{
	return slot - frame->slot <= frame->rise * sizeof(u64);
}

/*
 * Whether the hit shows that a frame at another slot is no longer running. A caller that only returns
 * does not run again while its callee does.
 */
static __always_inline int rt_was_left(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (rt_spans(frame, hit->slot))
		return 1;
	if (frame->stack != hit->stack) {
		if (frame->stack == RT_STACK_SIGNAL)
			return 1;
	} else if (rt_is_ordered(frame->stack) && frame->slot < hit->slot) {
		return 1;
	}
	return !rt_is_intact(frame);
}

/* Finds what a hit points to. Returns whether it is there. */
static __always_inline int rt_meet(struct rt_hit *hit)
{
	hit->thread = rt_thread();
	hit->far = 0;
	hit->measured = rt_measured();
	return hit->thread && (hit->measured || !rt_has_rows);
}

/*
 * A walk over frames, one per step. The place follows from the step alone: a counter of its own
 * would make the verifier look at every iteration apart.
 */
struct rt_walk {
	struct rt_hit *hit;
	u32 start; /* downward walks: one above the first frame; upward: the first frame */
	u32 found; /* RT_NONE or the index of the frame looked for */
	/* What it must have. */
	u32 stack;
	u32 doubtful; /* RT_NONE or the index of the youngest frame in doubt below the hit */
	union {
		u64 id;
		u64 slot; /* of the best frame so far */
	};
};

/* The frame of a downward walk at a step, null at the end; `index` is set to its place. */
static __always_inline struct rt_frame *rt_step_down(struct rt_walk *walk, u32 step, u32 *index)
{
	if (step >= walk->start)
		return 0;
	*index = walk->start - 1 - step;
	return rt_frame(walk->hit, *index);
}

rt_step(rt_shift_step)
{
	struct rt_walk *walk = context;
	u32 index = walk->start + step;
	struct rt_frame *to, *from;

	if (index + 1 >= walk->hit->thread->frames)
		return 1;
	to = rt_frame(walk->hit, index);
	from = rt_frame(walk->hit, index + 1);
	if (!to || !from)
		return 1;
	*to = *from;
	rt_move_row(walk->hit, index);
	return 0;
}

/* Those above the frame move down, onto it. */
rt_rare int rt_shift(u32 index)
{
	struct rt_walk walk = { .start = index };
	struct rt_hit hit = {};

	if (!rt_meet(&hit))
		return 0;
	walk.hit = &hit;
	rt_repeat(RT_FRAMES, rt_shift_step, &walk);
	return 0;
}

/* Takes the frame out. */
static __always_inline void rt_remove(struct rt_hit *hit, struct rt_frame *frame, u32 index)
{
	struct rt_thread *thread = hit->thread;

	if (frame->opens)
		thread->openers--;
	if (index + 1 < thread->frames)
		rt_shift(index);
	thread->frames--;
}

rt_step(rt_id_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame || frame->id < walk->id)
		return 1;
	if (frame->id != walk->id)
		return 0;
	walk->found = index;
	return 1;
}

/* The place of the frame with this call id among those below `index`; RT_NONE if it has ended. */
rt_rare u32 rt_search_older(u64 id, u32 index)
{
	struct rt_walk walk = { .start = index, .found = RT_NONE, .id = id };
	struct rt_hit hit = {};

	if (!rt_meet(&hit))
		return RT_NONE;
	walk.hit = &hit;
	rt_repeat(RT_FRAMES, rt_id_step, &walk);
	return walk.found;
}

/* The same, and the frame itself or null; mostly it is the one right below. */
static __always_inline struct rt_frame *rt_older(struct rt_hit *hit, u64 id, u32 index, u32 *place)
{
	struct rt_frame *below;

	*place = RT_NONE;
	if (id == 0 || index == 0)
		return 0;
	below = rt_frame(hit, index - 1);
	if (!below)
		return 0;
	if (below->id == id) {
		*place = index - 1;
		return below;
	}
	*place = rt_search_older(id, index);
	return rt_frame(hit, *place);
}

/*
 * A call leaves, its caller is still there or null. Who reads its record will look for its caller's. It may have
 * no values.
 */
static __always_inline void rt_leave(const struct rt_hit *hit, const struct rt_frame *frame, struct rt_frame *caller,
				     const struct rt_values *values, u64 duration, u32 ending)
{
	if (rt_emit(hit, frame, values, duration, ending) && caller)
		caller->marked = 1;
}

/* The frame at the index returns, and its values are not complete. */
rt_rare int rt_complete_values(u32 index, u32 region)
{
	struct rt_hit hit = {};
	struct rt_row *row;

	if (!rt_meet(&hit) || !hit.measured)
		return 0;
	row = rt_row(&hit, index, 0);
	if (row)
		rt_fetch_rest(hit.measured, row, region);
	return 0;
}

/* The call of the row returns, which lies elsewhere, and its values are not complete. */
rt_rare int rt_complete_row(struct rt_measured *measured, struct rt_row *row, u32 region)
{
	rt_fetch_rest(measured, row, region);
	return 0;
}

/* The values of the frame at the index; null: it has none. */
static __always_inline const struct rt_values *rt_values(struct rt_hit *hit, u32 index)
{
	struct rt_row *row = rt_has_values ? rt_row(hit, index, 0) : 0;

	return row ? rt_valued(&row->values) : 0;
}

/* The place of the call with this id among those that were left; RT_NONE if it is not there. */
rt_rare u32 rt_search_left(u64 id)
{
	struct rt_left *left = rt_left(0);
	u32 i;

	if (!left || !id)
		return RT_NONE;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		if (left->call[i].frame.id == id)
			return i;
	}
	return RT_NONE;
}

/* Whether another thread may go on with the call, and be where it returns. */
static __always_inline int rt_may_move(const struct rt_frame *frame)
{
	return frame->policy == RT_POLICY_RETURN_SITE && !rt_is_ordered(frame->stack) &&
	       frame->stack != RT_STACK_SHARED;
}

/* What has ended before the frame returns has not made it: it was on another stack of the same mapping. */
static __always_inline void rt_forget_caller(struct rt_frame *frame)
{
	frame->parent = 0;
	frame->depth = 0;
}

/* Ends one frame: the call leaves, its parent gets its time, it is taken out. */
static __always_inline void rt_close(struct rt_hit *hit, struct rt_frame *frame, u32 index, u32 ending)
{
	u32 parent_index;
	struct rt_frame *parent = rt_older(hit, frame->parent, index, &parent_index);
	const struct rt_values *values = rt_values(hit, index);
	u64 duration = hit->now - frame->start;

	if (!rt_is_ordered(frame->stack)) {
		if (rt_may_move(frame) && rt_ended_elsewhere(rt_home_slot(frame), frame->id)) {
			frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
			ending = RT_UNSEEN;
		}
		if (ending == RT_RETURNED && frame->parent && !parent && rt_search_left(frame->parent) == RT_NONE)
			rt_forget_caller(frame);
	}
	if (rt_words && values && values->waits && ending == RT_RETURNED)
		rt_complete_values(index, frame->region);
	if (ending == RT_UNSEEN) {
		rt_untimed(frame->region, frame->doubt - 1);
		duration = 0;
		/* What it called took time of its own caller. */
		if (parent)
			parent->child += frame->child;
		rt_hand_up(hit, index, parent_index);
		frame->child = 0;
		rt_measure_nothing(hit);
	} else {
		if (parent)
			parent->child += duration;
		rt_measure(hit, index, parent_index);
	}
	rt_leave(hit, frame, parent, rt_values(hit, index), duration, ending);
	rt_remove(hit, frame, index);
}

/*
 * The hit inside a rare function. The verifier looks at such a function once, on its own, and not
 * again for each caller, but there it does not know what the pointers in its argument point to, and
 * its caller no longer does afterwards.
 */
static __always_inline int rt_known(struct rt_hit *hit, const struct rt_hit *given)
{
	if (!given)
		return 0;
	*hit = *given;
	return rt_meet(hit);
}

/* Whether returns to an address may go undetected: 1 + enum rt_untimed_reason, or 0. */
static __always_inline u32 rt_doubt(u32 arrival)
{
	switch (arrival) {
	case RT_ARRIVAL_PLACED:
		return 0;
	case RT_ARRIVAL_ASKED:
		return 1 + RT_UNTIMED_NOT_YET_PLACED;
	case RT_ARRIVAL_IMPOSSIBLE:
		return 1 + RT_UNTIMED_NOT_PROBEABLE;
	case RT_ARRIVAL_DROPPED:
		return 1 + RT_UNTIMED_DROPPED;
	default:
		return 1 + RT_UNTIMED_OTHER;
	}
}

/*
 * Whether the probe at its home was taken out after the frame entered, `since` being the last time; 0: never. The
 * frame was in no doubt then, and its return may have gone unseen.
 */
static __always_inline int rt_was_dropped(const struct rt_frame *frame, u32 since)
{
	u32 start = frame->start >> RT_SINCE_SHIFT;

	return since && !((since - start) & 1u << (RT_SINCE_BITS - 1));
}

/*
 * The probe at its home may have gone since the frame entered, or be of another file than is mapped there now, or be
 * overwritten.
 */
static __always_inline void rt_doubt_again(const struct rt_hit *hit, struct rt_frame *frame)
{
	u64 arrival;

	if (frame->doubt || frame->policy != RT_POLICY_RETURN_SITE)
		return;
	arrival = rt_known_arrival(hit, frame->home);
	if (arrival == RT_UNKNOWN)
		arrival = RT_ARRIVAL_ASKED;
	if ((u32)arrival == RT_ARRIVAL_PLACED && rt_was_dropped(frame, arrival >> (32 + RT_BEHIND_BITS)))
		arrival = RT_ARRIVAL_DROPPED;
	if ((u32)arrival == RT_ARRIVAL_PLACED && rt_is_replaced(hit, frame->home))
		arrival = RT_ARRIVAL_ASKED;
	if ((u32)arrival == RT_ARRIVAL_PLACED && rt_has_vanished(hit, frame->home))
		arrival = RT_ARRIVAL_IMPOSSIBLE;
	frame->doubt = rt_doubt(arrival);
}

/* Ends the frame at this place. */
rt_rare int rt_finish(const struct rt_hit *given, u32 index, u32 ending)
{
	struct rt_frame *frame;
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame)
		return 0;
	rt_close(&hit, frame, index, frame->doubt ? RT_UNSEEN : ending);
	return 1;
}

/* The caller of a call that was left, if it was left, too, and has not ended; else null. */
static __always_inline struct rt_left_call *rt_left_caller(struct rt_left *left, const struct rt_left_call *call)
{
	u32 place = rt_search_left(call->frame.parent);

	return place == RT_NONE ? 0 : &left->call[place % RT_LEFT_MAX];
}

/*
 * The call at this place was left, and nobody knows when it ended: its caller has got its time, and gets that of its
 * callees instead.
 */
rt_rare int rt_take_back(const struct rt_hit *given, u32 place)
{
	struct rt_left_call *call, *left_caller;
	struct rt_row *row = 0;
	struct rt_frame *caller;
	struct rt_left *left;
	struct rt_hit hit;
	u32 index, i;
	u64 until;

	if (!rt_known(&hit, given))
		return 0;
	left = rt_left(0);
	if (!left)
		return 0;
	call = &left->call[place % RT_LEFT_MAX];
	until = call->frame.child - (call->left - call->frame.start);
	caller = call->is_given ? rt_older(&hit, call->frame.parent, hit.thread->frames, &index) : 0;
	if (caller) {
		caller->child += until + call->later;
		if (rt_counters)
			row = rt_row(&hit, index, 0);
	} else if (call->is_given) {
		left_caller = rt_left_caller(left, call);
		if (left_caller) {
			left_caller->frame.child += until;
			left_caller->later += call->later;
			row = &left_caller->row;
			rt_for_counters(i)
				left_caller->readings[i].child += call->readings[i].child - call->readings[i].inclusive;
		}
	}
	rt_for_counters(i) {
		if (row)
			row->child[i] += call->row.child[i] - call->readings[i].inclusive;
		call->readings[i].inclusive = 0;
		call->readings[i].child = 0;
	}
	rt_untimed(call->frame.region, call->frame.doubt - 1);
	call->frame.child = 0;
	call->left = call->frame.start;
	return 0;
}

/*
 * The call at this place that was left, if there is one, is taken to be unwound, unless its time was taken back. Apart,
 * because stacks are short.
 */
rt_rare int rt_give_up(const struct rt_hit *given, u32 place)
{
	struct rt_left_call *call;
	struct rt_left *left;
	struct rt_hit hit;
	u32 i;

	if (!rt_known(&hit, given))
		return 0;
	left = rt_left(0);
	if (!left)
		return 0;
	call = &left->call[place % RT_LEFT_MAX];
	if (!call->frame.id)
		return 0;
	rt_for_counters(i)
		hit.measured->readings[i] = call->readings[i];
	rt_emit(&hit, &call->frame, rt_valued(&call->row.values), call->left - call->frame.start,
		call->frame.doubt ? RT_UNSEEN : RT_UNWOUND);
	call->frame.id = 0;
	return 0;
}

/*
 * The row of the frame at the index is kept with the call at this place that was left. Apart, because stacks are
 * short.
 */
rt_rare int rt_copy_row(u32 index, u32 place)
{
	struct rt_left *left = rt_left(0);
	struct rt_left_call *call;
	struct rt_hit hit = {};
	struct rt_row *row;
	u32 i;

	if (!rt_meet(&hit) || !left || !hit.measured)
		return 0;
	call = &left->call[place % RT_LEFT_MAX];
	row = rt_row(&hit, index, 0);
	if (row)
		call->row = *row;
	rt_for_counters(i)
		call->readings[i] = hit.measured->readings[i];
	return 0;
}

/* The bit of a slot among those that calls which were left may return from. */
static __always_inline u64 rt_left_bit(u64 slot)
{
	return 1ull << (slot / sizeof(u64) % 64);
}

/* The bits of a call that was left: all places from its own slot up to where it would return from. */
static __always_inline u64 rt_left_bits(const struct rt_frame *frame)
{
	u64 bits = frame->rise < 63 ? (2ull << frame->rise) - 1 : ~0ull;
	u32 first = frame->slot / sizeof(u64) % 64;

	return bits << first | bits >> 1 >> (63 - first);
}

/* Whether a call that was left may return from the slot of the hit, or has it. */
static __always_inline int rt_may_be_left(const struct rt_hit *hit)
{
	return (hit->thread->left_places & rt_left_bit(hit->slot)) != 0;
}

/* Whether the frame, which has the slot of the hit, may end in a jump to the function that enters. */
static __always_inline int rt_may_jump(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (frame->tails == RT_TAILS_NEVER || frame->tails == RT_TAILS_JUMPED || (hit->word && frame->word != hit->word))
		return 0;
	if (frame->tails == RT_TAILS_ANYWHERE || rt_is_known_tail(frame->region, hit->region))
		return 1;
	return frame->tails == RT_TAILS_DOUBTFUL && rt_is_known_tail(frame->region, RT_ANYWHERE);
}

/* Whether a call that was left with the slot of the hit may go on, and have ended in a jump to the function that enters. */
rt_rare u32 rt_may_have_jumped(const struct rt_hit *hit)
{
	struct rt_left *left = rt_left(0);
	struct rt_frame *frame;
	u32 i;

	if (!hit || !left)
		return 0;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		frame = &left->call[i].frame;
		if (frame->id && frame->slot == hit->slot && rt_may_jump(hit, frame))
			return 1;
	}
	return 0;
}

/*
 * A function enters at the slot of the hit: calls that were left will not return through there any more, unless the first
 * of them has jumped to it.
 */
rt_rare int rt_settle_left(const struct rt_hit *given)
{
	struct rt_left_call *call;
	struct rt_left *left;
	struct rt_hit hit;
	u64 places = 0;
	u32 jumped, i;

	if (!rt_known(&hit, given))
		return 0;
	left = rt_left(0);
	if (!left)
		return 0;
	jumped = rt_may_have_jumped(given);
	for (i = 0; i < RT_LEFT_MAX; i++) {
		call = &left->call[i];
		if (jumped && call->frame.id && call->frame.slot == hit.slot) {
			call->frame.doubt = 1 + RT_UNTIMED_AMBIGUOUS;
			rt_take_back(given, i);
		}
		if (rt_spans(&call->frame, hit.slot))
			rt_give_up(given, i);
		else if (call->frame.id)
			places |= rt_left_bits(&call->frame);
	}
	hit.thread->left_places = places;
	return 0;
}

/*
 * The place for another call that is left; RT_NONE if there is none. One whose slot was written to makes room: it is
 * over.
 */
rt_rare u32 rt_make_room(const struct rt_hit *given)
{
	struct rt_left *left = rt_left(1);
	u32 i;

	if (!given || !left)
		return RT_NONE;
	for (i = 0; i < RT_LEFT_MAX; i++) {
		if (!left->call[i].frame.id)
			return i;
	}
	for (i = 0; i < RT_LEFT_MAX; i++) {
		if (!rt_is_intact(&left->call[i].frame))
			return i;
	}
	return RT_NONE;
}

/* The frame at this place was left: it is nobody's caller any more, and kept aside. */
rt_rare int rt_put_aside(const struct rt_hit *given, u32 index)
{
	struct rt_left_call *call;
	struct rt_frame *frame, *parent;
	struct rt_left *left;
	struct rt_hit hit;
	u32 parent_index, place;
	int is_over;

	if (!rt_known(&hit, given))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame)
		return 0;
	rt_doubt_again(&hit, frame);
	/* Where the stack pointer is in the frame of its caller, or its slot was used again, it cannot come back. */
	is_over = frame->doubt || (hit.is_final && frame->slot >= hit.from) || rt_spans(frame, hit.slot) ||
		  !rt_is_intact(frame);
	place = is_over ? RT_NONE : rt_make_room(given);
	/* Nobody will know whether it returns. */
	if (!is_over && place == RT_NONE)
		frame->doubt = 1 + RT_UNTIMED_AMBIGUOUS;
	left = place == RT_NONE ? 0 : rt_left(0);
	if (!left) {
		rt_close(&hit, frame, index, frame->doubt ? RT_UNSEEN : RT_UNWOUND);
		return 0;
	}
	place %= RT_LEFT_MAX;
	call = &left->call[place];
	rt_give_up(given, place);
	hit.thread->left++;
	parent = rt_older(&hit, frame->parent, index, &parent_index);
	call->is_given = parent != 0;
	if (parent) {
		parent->child += hit.now - frame->start;
		if (rt_is_recorded(frame, hit.now - frame->start, RT_UNWOUND))
			parent->marked = 1;
	}
	rt_measure(&hit, index, parent_index);
	hit.thread->left_places |= rt_left_bits(frame);
	call->frame = *frame;
	call->left = hit.now;
	call->later = 0;
	call->is_orphan = 0;
	if (rt_has_rows)
		rt_copy_row(index, place);
	rt_remove(&hit, frame, index);
	return 0;
}

#endif
