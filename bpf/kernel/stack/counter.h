/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the calls on a shadow stack count: the frame at an index has the row of that index, with the
 * thread's counts at its enter, and what the calls that it made have counted.
 *
 * Pure logic like stack.h, which includes it. The includer provides rt_counters (how many counters
 * there are), rt_words (whether calls have values), rt_levels (whether they have contexts), rt_row() and
 * rt_fetch_rest().
 */
#ifndef RTRACE_COUNTER_H
#define RTRACE_COUNTER_H

#include "frame.h"

/* Provided by the includer: null if there is no memory for it. */
static struct rt_row *rt_row(struct rt_hit *hit, u32 index, u32 create);
/* A call of the region returns: its values that are known only now. */
static void rt_fetch_rest(struct rt_measured *measured, struct rt_row *row, u32 region);

/*
 * What a counter has counted between two readings of it. Where it did not run all the time that it
 * was wanted, because the hardware was shared, what it would have counted: `is_estimate` says so.
 */
static __always_inline u64 rt_count_between(const struct rt_raw *from, const struct rt_raw *to, u32 *is_estimate)
{
	u64 count = to->count - from->count, enabled = to->enabled - from->enabled;
	u64 running = to->running - from->running;

	*is_estimate = enabled != running;
	/* A reading failed, or the counter began anew. */
	if (to->count < from->count)
		return 0;
	if (enabled == running)
		return count;
	/* Keeps the products in 64 bits. */
	if (enabled >> 32) {
		enabled >>= 16;
		running >>= 16;
	}
	if (!running)
		return 0;
	return count / running * enabled + count % running * enabled / running;
}

/* The frame at the index enters. Returns whether there is memory for what it counts. */
static __always_inline int rt_count_from_here(struct rt_hit *hit, u32 index)
{
	struct rt_row *row;
	u32 i;

	if (!rt_has_rows)
		return 1;
	row = rt_row(hit, index, 1);
	if (!row)
		return 0;
	if (rt_words && hit->measured->entering.has) {
		row->values = hit->measured->entering;
	} else if (rt_has_values) {
		row->values.has = row->values.waits = 0;
		row->values.context = hit->measured->entering.context;
	}
	rt_for_counters(i) {
		row->start[i] = hit->measured->now[i];
		row->child[i] = 0;
	}
	return 1;
}

/* Values that leave with their call; null: it has none. */
static __always_inline const struct rt_values *rt_valued(const struct rt_values *values)
{
	return rt_levels || (rt_words && values->has) ? values : 0;
}

/* The frame at the index ends: sets the readings, and adds them to those of its caller, if it has one. */
static __always_inline void rt_measure(struct rt_hit *hit, u32 index, u32 caller_index)
{
	struct rt_row *row, *caller = 0;
	long long inclusive;
	u32 i;

	if (!rt_counters)
		return;
	row = rt_row(hit, index, 0);
	if (!row)
		return;
	if (caller_index < RT_FRAMES)
		caller = rt_row(hit, caller_index, 0);
	rt_for_counters(i) {
		/* An estimate may fall: then 0, without a branch, which the verifier would follow for each counter. */
		inclusive = hit->measured->now[i] - row->start[i];
		hit->measured->readings[i].inclusive = inclusive & ~(inclusive >> 63);
		hit->measured->readings[i].child = row->child[i];
	}
	if (!caller)
		return;
	rt_for_counters(i)
		caller->child[i] += hit->measured->readings[i].inclusive;
}

/* The frame at the index ends without readings of its own: what its callees counted is its caller's. */
static __always_inline void rt_hand_up(struct rt_hit *hit, u32 index, u32 caller_index)
{
	struct rt_row *row, *caller;
	u32 i;

	if (!rt_counters || caller_index >= RT_FRAMES)
		return;
	row = rt_row(hit, index, 0);
	if (!row)
		return;
	caller = rt_row(hit, caller_index, 0);
	if (!caller)
		return;
	rt_for_counters(i)
		caller->child[i] += row->child[i];
}

/* A call whose exit is not waited for. */
static __always_inline void rt_measure_nothing(struct rt_hit *hit)
{
	u32 i;

	rt_for_counters(i) {
		hit->measured->readings[i].inclusive = 0;
		hit->measured->readings[i].child = 0;
	}
}

/* A frame moves down to the index. */
static __always_inline void rt_move_row(struct rt_hit *hit, u32 index)
{
	struct rt_row *to, *from;

	if (!rt_has_rows)
		return;
	to = rt_row(hit, index, 0);
	if (!to)
		return;
	from = rt_row(hit, index + 1, 0);
	if (from)
		*to = *from;
}

#endif
