/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Times some hits. What a call costs is measured before the recording, with all that a hit looks at in the cache; by
 * these times user space knows how much more it costs in the program that is traced.
 */
#ifndef RTRACE_TIMES_H
#define RTRACE_TIMES_H

#include "maps.bpf.h"

#define TIMED_HITS 16 /* of which one is timed */
#define INTERRUPTED (1 << 15) /* nanoseconds: what takes longer has waited for something else */

/* Whether the program is timed at the enter that comes next, in step with nothing. */
static __always_inline bool enter_is_timed(const struct rt_thread *thread)
{
	return thread->calls * 0x9e3779b97f4a7c15ull < ~0ull / TIMED_HITS;
}

/* Adds up what the program has taken since then. Where another thread comes in between, one of both goes uncounted. */
static __always_inline void time_hit(u64 begin, bool is_enter)
{
	u64 time = bpf_ktime_get_ns() - begin;
	struct rt_hit_times *times;
	u32 zero = 0;

	times = bpf_map_lookup_elem(&hit_times, &zero);
	if (!times || time > INTERRUPTED)
		return;
	if (is_enter) {
		times->enters++;
		times->enter_time += time;
	} else {
		times->returns++;
		times->return_time += time;
	}
}

#endif
