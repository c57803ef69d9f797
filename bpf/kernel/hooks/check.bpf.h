/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the calls that are to be recorded, before anything is done about them. When recording is over, user space
 * compares: what was neither recorded nor counted as lost is a loss that nothing else tells of.
 */
#ifndef RTRACE_CHECK_H
#define RTRACE_CHECK_H

#include "maps.bpf.h"

static __always_inline void count_entry(u32 region)
{
	u32 place = bpf_get_smp_processor_id() * entry_sums + (region & (entry_sums - 1));
	u64 *entries = bpf_map_lookup_elem(&entries_seen, &place);

	/* Another thread may come to this CPU in between. */
	if (entries)
		__sync_fetch_and_add(entries, 1);
}

#endif
