/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The shadow stack: which calls are running on a thread, and how they end.
 *
 * Pure logic, compiled for BPF and for user space, where it is tested against a model. The
 * includer provides rt_emit() (one call leaves), rt_path() (which call path it is), rt_is_blind() (the
 * exit of a call may have been missed), rt_lost() (one call is missing), rt_far() (storage for deep frames), rt_now() (the time), rt_read_slot() (a word
 * of the thread's memory), rt_trampoline() (where the kernel's return trampoline is), rt_thread()
 * (the thread of a hit), rt_counted() (its counters), and the macros rt_repeat() (bounded loop) and
 * rt_rare (a function apart).
 *
 * A frame is known by its slot: the address of the word that holds its return address. Frames may
 * be dead without an exit: a longjmp or an exception has unwound them. On one stack, slots fall
 * from caller to callee, so at a hit with the slot s:
 *   - frames with a slot below s are dead;
 *   - a frame at s is the caller of a tail call if the slot holds the trampoline, else dead;
 *   - a frame above s is dead if its slot no longer holds what it held at its enter, nor the
 *     trampoline, by which the kernel replaces the return address after the enter. Nothing writes
 *     to the slot of a running call. A slot that is as it was proves nothing.
 * Frames on other stacks say nothing about each other, so each frame also carries a key of its
 * stack. The alternate signal stack is as strict as the own one, and a hit elsewhere proves that
 * its handlers are over. Coroutine stacks may share a mapping and so a key: there a slot below s
 * proves nothing, and the caller is the frame next above in address, since stacks do not overlap.
 *
 * Frames stand in the order of their enters, those on the signal stack above all others. Dead ones
 * are noticed where a hit looks for its caller. The time of a frame that ends is added to its
 * caller.
 */
#ifndef RTRACE_STACK_H
#define RTRACE_STACK_H

#include "counter.h"

/* Provided by the includer. */
/* Returns whether there is a record of the call. */
static u32 rt_emit(const struct rt_hit *hit, const struct rt_frame *frame, u64 duration, u32 ending);
static u32 rt_path(struct rt_thread *thread, const struct rt_frame *caller, u32 region);
/* Whether the probes at the exits of the region were taken out after that time. */
static u32 rt_is_blind(u32 region, u64 start);
static void rt_lost(u32 region, u32 reason);
static struct rt_far *rt_far(u32 create);
static int rt_read_slot(u64 slot, u64 *word); /* 0: it was read */
static u64 rt_now(void);
rt_rare u64 rt_trampoline(void); /* 0: there is none */
static struct rt_thread *rt_thread(const struct rt_hit *hit);
static struct rt_counted *rt_counted(const struct rt_hit *hit); /* null while nothing is counted */

#define RT_NONE 0xffffffffu
#define RT_DEAD 0x80000000u

/* Keeps clang from merging two tests into one that the verifier does not understand. */
#define rt_apart(variable) asm volatile("" : "+r"(variable))

static __always_inline struct rt_frame *rt_frame(struct rt_hit *hit, u32 index)
{
	struct rt_far *far = hit->far;

	if (index < RT_FRAMES_NEAR)
		return &hit->thread->near[index];
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

/*
 * Whether the slot of a frame holds what it must while the frame is running, as far as can be told.
 * A process that has no trampoline yet has 0 for it, which is no return address.
 */
static __always_inline int rt_is_intact(const struct rt_frame *frame)
{
	u64 word;

	if (!frame->word || rt_read_slot(frame->slot, &word))
		return 1;
	return word == frame->word || (word && word == rt_trampoline());
}

/* Whether a frame can no longer be the caller of anything: the hit proves that it is not running, or nobody would see its exit. */
static __always_inline int rt_is_dead(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (rt_is_blind(frame->region, frame->start))
		return 1;
	if (frame->slot == hit->slot)
		return hit->word && hit->word != rt_trampoline();
	if (frame->stack != hit->stack) {
		if (frame->stack == RT_STACK_SIGNAL)
			return 1;
	} else if (rt_is_ordered(frame->stack) && frame->slot < hit->slot) {
		return 1;
	}
	return !rt_is_intact(frame);
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
	union {
		u32 region;
		u32 stack;
	};
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

static long rt_shift_step(u32 step, void *context)
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
static __noinline void rt_shift(struct rt_hit *hit, u32 index)
{
	struct rt_walk walk = { .hit = hit, .start = index };

	rt_repeat(RT_FRAMES, rt_shift_step, &walk);
}

/* Takes the frame out. */
static __always_inline void rt_remove(struct rt_hit *hit, struct rt_frame *frame, u32 index)
{
	struct rt_thread *thread = hit->thread;

	if (frame->hooked)
		thread->hooked--;
	if (index + 1 < thread->frames)
		rt_shift(hit, index);
	thread->frames--;
}

static long rt_id_step(u32 step, void *context)
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
static __noinline u32 rt_search_older(struct rt_hit *hit, u64 id, u32 index)
{
	struct rt_walk walk = { .hit = hit, .start = index, .found = RT_NONE, .id = id };

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
	*place = rt_search_older(hit, id, index);
	return rt_frame(hit, *place);
}

/* A call leaves, its caller is still there or null. Who reads its record will look for its caller's. */
static __always_inline void rt_leave(const struct rt_hit *hit, const struct rt_frame *frame, struct rt_frame *caller,
				     u64 duration, u32 ending)
{
	if (rt_emit(hit, frame, duration, ending) && caller)
		caller->marked = 1;
}

/* Ends one frame: the call leaves, its parent gets its time, it is taken out. */
static __always_inline void rt_close(struct rt_hit *hit, struct rt_frame *frame, u32 index, u32 ending)
{
	u32 parent_index;
	struct rt_frame *parent = rt_older(hit, frame->parent, index, &parent_index);
	u64 duration = hit->now - frame->start;

	if (rt_is_blind(frame->region, frame->start)) {
		frame->child = 0;
		duration = 0;
		ending = RT_UNSEEN;
		rt_measure_nothing(hit);
	} else {
		if (parent)
			parent->child += duration;
		rt_measure(hit, index, parent_index);
	}
	rt_leave(hit, frame, parent, duration, ending);
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
	hit->thread = rt_thread(given);
	hit->far = 0;
	hit->counted = rt_counted(given);
	return hit->thread && (hit->counted || !rt_counters);
}

/*
 * Ends the frame at this place; by a return only if it lies where the hit does, since functions that
 * share a slot end in the same return.
 */
rt_rare int rt_finish(const struct rt_hit *given, u32 index, u32 ending)
{
	struct rt_frame *frame;
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return 0;
	frame = rt_frame(&hit, index);
	if (!frame || (ending == RT_RETURNED && frame->slot != hit.slot))
		return 0;
	rt_close(&hit, frame, index, ending);
	return 1;
}

/* Whether the hit decides about the frame, whatever stack it looks for callers on. */
static __always_inline int rt_is_concerned(const struct rt_hit *hit, const struct rt_frame *frame)
{
	return frame->slot == hit->slot || frame->stack == RT_STACK_SIGNAL;
}

static long rt_youngest_step(u32 step, void *context)
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

static long rt_next_above_step(u32 step, void *context)
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
	if (frame->stack == walk->stack && frame->slot > walk->hit->slot && frame->slot < walk->slot) {
		walk->slot = frame->slot;
		walk->found = index;
	}
	return 0;
}

/* The place of the frame that calls the function which is hit, with RT_DEAD if that is dead. */
rt_rare u32 rt_search_caller(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE, .slot = ~0ull };
	struct rt_frame *frame;
	struct rt_hit hit;

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
	frame = rt_frame(&hit, walk.found);
	if (!frame)
		return RT_NONE;
	return rt_is_dead(&hit, frame) ? walk.found | RT_DEAD : walk.found;
}

static long rt_caller_step(u32 step, void *context)
{
	struct rt_walk *walk = context;
	u32 found = rt_search_caller(walk->hit);

	if (found == RT_NONE || !(found & RT_DEAD)) {
		walk->found = found;
		return 1;
	}
	rt_finish(walk->hit, found & ~RT_DEAD, RT_UNWOUND);
	return 0;
}

/*
 * Finds the frame that calls the function which is hit; dead ones in the way are closed. The verifier
 * does not know the pointers of the hit any more afterwards.
 */
static __always_inline void rt_clear_way(struct rt_walk *walk)
{
	walk->found = RT_NONE;
	rt_repeat(RT_FRAMES, rt_caller_step, walk);
}

/* The frame that calls the function which is hit. */
static __always_inline struct rt_frame *rt_caller(struct rt_hit *hit)
{
	struct rt_counted *counted = hit->counted;
	struct rt_thread *thread = hit->thread;
	struct rt_walk walk = { .hit = hit };
	struct rt_frame *top;

	if (thread->frames == 0)
		return 0;
	top = rt_frame(hit, thread->frames - 1);
	if (top && top->stack == hit->stack && rt_is_ordered(hit->stack) && !rt_is_dead(hit, top))
		return top;
	if (!hit->now)
		hit->now = rt_now();
	rt_clear_way(&walk);
	hit->thread = thread;
	hit->counted = counted;
	hit->far = 0;
	return rt_frame(hit, walk.found);
}

/* What is known of a call when it enters; its caller may be null. */
static __always_inline void rt_begin(const struct rt_hit *hit, struct rt_frame *frame, const struct rt_frame *caller,
				     u32 region, u32 hooked)
{
	frame->slot = hit->slot;
	frame->word = hit->word;
	frame->id = hit->thread->calls;
	frame->parent = caller ? caller->id : 0;
	frame->child = 0;
	frame->region = region;
	frame->stack = hit->stack;
	frame->depth = caller ? caller->depth + 1 : 0;
	frame->hooked = hooked;
	frame->marked = 0;
	frame->path = rt_path(hit->thread, caller, region);
	/* The latest moment; but counters are read already, and time on a CPU begins with the duration. */
	frame->start = rt_counters ? hit->now : rt_now();
}

/* A call whose exit is not waited for leaves at once. Apart, because stacks are short in the kernel. */
static __noinline void rt_pass(struct rt_hit *hit, struct rt_frame *caller, u32 region, u32 ending)
{
	struct rt_frame frame;

	rt_begin(hit, &frame, caller, region, 0);
	rt_measure_nothing(hit);
	rt_leave(hit, &frame, caller, 0, ending);
}

/*
 * A call enters. Returns whether the frame was pushed; if so its exit is waited for. A call whose
 * exit cannot be seen leaves as a record at once.
 */
static __always_inline int rt_enter(struct rt_hit *hit, u32 region, u32 policy)
{
	struct rt_thread *thread = hit->thread;
	struct rt_frame *caller, *frame;
	u32 hooked = policy == RT_POLICY_URETPROBE;

	if (rt_read_slot(hit->slot, &hit->word))
		hit->word = 0;
	caller = rt_caller(hit);
	thread->calls++;
	if (policy == RT_POLICY_INSTANT) {
		rt_pass(hit, caller, region, RT_RETURNED);
		return 0;
	}
	/* Hooking is refused where it could harm, or where the kernel would not do it. */
	if (policy == RT_POLICY_ENTRY_ONLY ||
	    (hooked && (thread->unhooked || hit->stack != RT_STACK_OWN || thread->hooked >= RT_HOOKED_MAX))) {
		rt_pass(hit, caller, region, RT_UNSEEN);
		return 0;
	}
	if (thread->frames >= RT_FRAMES_NEAR && !hit->far)
		hit->far = rt_far(1);
	frame = rt_frame(hit, thread->frames);
	if (!frame || !rt_count_from_here(hit, thread->frames)) {
		rt_lost(region, thread->frames < RT_FRAMES ? RT_LOSS_NO_MEMORY : RT_LOSS_TOO_DEEP);
		return 0;
	}
	rt_begin(hit, frame, caller, region, hooked);
	thread->frames++;
	thread->hooked += hooked;
	return 1;
}

static long rt_find_step(u32 step, void *context)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame)
		return 1;
	if (frame->slot == walk->hit->slot && frame->region == walk->region) {
		walk->found = index;
		return 1;
	}
	return 0;
}

/* The place of the youngest frame of this region where the hit is. */
rt_rare u32 rt_search_exit(const struct rt_hit *given, u32 region)
{
	struct rt_walk walk = { .region = region, .found = RT_NONE };
	struct rt_hit hit;

	if (!rt_known(&hit, given))
		return RT_NONE;
	walk.hit = &hit;
	walk.start = hit.thread->frames;
	rt_repeat(RT_FRAMES, rt_find_step, &walk);
	return walk.found;
}

static long rt_return_step(u32 step, void *context)
{
	struct rt_walk *walk = context;
	u32 index = walk->start - 1 - step;

	if (step >= walk->start || index < walk->found)
		return 1;
	rt_finish(walk->hit, index, RT_RETURNED);
	return 0;
}

/* An exit of another frame than the youngest. */
static __always_inline int rt_exit_below(struct rt_hit *hit, u32 region)
{
	struct rt_thread *thread = hit->thread;
	struct rt_walk walk = { .hit = hit };

	rt_clear_way(&walk);
	walk.start = thread->frames;
	walk.found = rt_search_exit(hit, region);
	if (walk.found == RT_NONE)
		return 0;
	rt_repeat(RT_FRAMES, rt_return_step, &walk);
	return 1;
}

/*
 * A call exits. Returns whether it was on the stack: it is not when its enter came before the
 * recording or was lost.
 */
static __always_inline int rt_exit(struct rt_hit *hit, u32 region)
{
	u32 frames = hit->thread->frames;
	struct rt_frame *top;

	if (frames == 0)
		return 0;
	top = rt_frame(hit, frames - 1);
	if (!top)
		return 0;
	if (top->slot != hit->slot || top->region != region)
		return rt_exit_below(hit, region);
	rt_close(hit, top, frames - 1, RT_RETURNED);
	return 1;
}

static long rt_abandon_step(u32 step, void *context)
{
	struct rt_walk *walk = context;

	if (step >= walk->start)
		return 1;
	rt_finish(walk->hit, walk->start - 1 - step, RT_OPEN);
	return 0;
}

/* The thread or its program ends: what still runs is closed as open. */
static __always_inline void rt_abandon(struct rt_hit *hit)
{
	struct rt_walk walk = { .hit = hit, .start = hit->thread->frames };

	rt_repeat(RT_FRAMES, rt_abandon_step, &walk);
}

#endif
