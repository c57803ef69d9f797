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

/* An entry for the calls of a thread; null where there is none left. */
static __always_inline struct rt_call_count *new_count(const struct rt_counted_key *key)
{
	struct rt_call_count *counted;
	u32 place;

	if (bpf_map_pop_elem(&free_counts, &place))
		place = __sync_fetch_and_add(&counts_used, 1);
	counted = bpf_map_lookup_elem(&counts, &place);
	if (!counted) {
		/* Else the number would wrap around one day. */
		__sync_fetch_and_add(&counts_used, -1);
		return 0;
	}
	if (bpf_map_update_elem(&count_places, key, &place, BPF_NOEXIST)) {
		bpf_map_push_elem(&free_counts, &place, 0);
		return 0;
	}
	counted->key = *key;
	return counted;
}

static __noinline void count_call(u32 region)
{
	struct rt_thread *thread = located_thread(bpf_get_current_task_btf(), region);
	struct rt_counted_key key = { .region = region };
	struct rt_call_count *counted;
	u32 *place;

	if (!thread)
		return;
	key.location = thread->location;
	place = bpf_map_lookup_elem(&count_places, &key);
	counted = place ? bpf_map_lookup_elem(&counts, place) : new_count(&key);
	if (counted)
		++counted->calls; /* its thread alone writes it */
	else
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
