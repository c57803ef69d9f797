/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Regions whose calls cost too much are throttled: their probes go, and come back for short windows in which calls
 * are counted.
 *
 * A region has one probe at a time, whatever becomes of its hits, so no call is seen twice. A hit of a region that
 * is throttled does as little as it can: until its probe is gone there may be many.
 */
#ifndef RTRACE_GOVERNED_H
#define RTRACE_GOVERNED_H

#include "emit.bpf.h"

/* Provided by the includer: the thread that runs, which gets a location with its first hit; null where it has none. */
static struct rt_thread *located_thread(struct task_struct *task, u32 region);

static __noinline void count_call(u32 region)
{
	struct rt_thread *thread = located_thread(bpf_get_current_task_btf(), region);
	struct rt_counted_key key = { .region = region };
	u64 *calls, first = 1;

	if (!thread)
		return;
	key.location = thread->location;
	calls = bpf_map_lookup_elem(&counted_calls, &key);
	if (calls)
		++*calls; /* its thread alone writes it */
	else if (bpf_map_update_elem(&counted_calls, &key, &first, BPF_NOEXIST))
		count_loss(region, RT_LOSS_NO_MEMORY);
}

/* Whether the call is to be recorded; one of a throttled region is counted at most. */
static __always_inline bool is_recorded(u64 cookie)
{
	u32 region = (u32)cookie, zero = 0, cost;
	u32 *hit_cost = bpf_map_lookup_elem(&throttled, &region);
	u64 *sum;

	cost = hit_cost ? *(volatile u32 *)hit_cost : 0;
	if (!cost)
		return true;
	sum = bpf_map_lookup_elem(&throttled_cost, &zero);
	/* Another thread may come to this CPU in between. */
	if (sum)
		__sync_fetch_and_add(sum, cost);
	if (window_is_open)
		count_call(region);
	return false;
}

#endif
