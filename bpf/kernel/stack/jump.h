/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Jumps over calls: a longjmp, or an exception that has found who handles it. Where a probe sees one, the calls
 * that it leaves end at that time, and none of them can be taken for the caller of what enters there next.
 *
 * What is left lies between the stack pointers before and after the jump. A longjmp may also be a switch of
 * stacks: then the calls may go on, so they are kept aside like all that seem to be left. What an exception
 * has left between these places is over.
 *
 * Pure logic like stack.h, where the rules stand.
 */
#ifndef RTRACE_JUMP_H
#define RTRACE_JUMP_H

#include "returns.h"

/* Whether the jump leaves this frame. A jump elsewhere shows that handlers on the signal stack are over. */
static __always_inline int rt_is_jumped_over(const struct rt_hit *hit, const struct rt_frame *frame)
{
	if (frame->stack != hit->stack)
		return frame->stack == RT_STACK_SIGNAL;
	/* As by any hit, what lies lower on an ordered stack is left, too; callees must not outlast their callers. */
	return frame->slot <= hit->slot && (frame->slot >= hit->from || rt_is_ordered(frame->stack));
}

rt_step(rt_jumped_over_step)
{
	struct rt_walk *walk = context;
	struct rt_frame *frame;
	u32 index;

	frame = rt_step_down(walk, step, &index);
	if (!frame || rt_is_above(walk->hit, frame))
		return 1;
	if (!rt_is_jumped_over(walk->hit, frame))
		return 0;
	if (frame->slot >= walk->hit->from)
		frame->tails = RT_TAILS_JUMPED;
	walk->found = index;
	return 1;
}

/* The place of the youngest frame that the jump leaves. */
rt_rare u32 rt_search_jumped_over(const struct rt_hit *given)
{
	struct rt_walk walk = { .found = RT_NONE };

	rt_search(given, &walk, rt_jumped_over_step);
	return walk.found;
}

rt_step(rt_jump_step)
{
	struct rt_walk *walk = context;
	u32 found = rt_search_jumped_over(walk->hit);

	if (found == RT_NONE)
		return 1;
	rt_put_aside(walk->hit, found);
	return 0;
}

/*
 * Control is about to jump. The slot of the hit is the word below the stack pointer after the jump, on that stack.
 * The verifier does not know the pointers of the hit any more afterwards.
 */
static __always_inline void rt_jump(struct rt_hit *hit)
{
	struct rt_walk walk = { .hit = hit };

	rt_repeat(RT_FRAMES, rt_jump_step, &walk);
}

#endif
