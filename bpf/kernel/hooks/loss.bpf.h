/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How what goes missing is counted. */
#ifndef RTRACE_LOSS_H
#define RTRACE_LOSS_H

#include "maps.bpf.h"

/* Counts one more of what a table has a count for. */
static __always_inline void count_in(void *table, const void *key)
{
	u64 zero = 0, *count;

	count = bpf_map_lookup_elem(table, key);
	if (!count) {
		bpf_map_update_elem(table, key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(table, key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Not static: the verifier looks at such a function once. */
__noinline int count_loss(u32 region, u32 reason)
{
	struct rt_loss_key key = { .region = region, .reason = reason };

	count_in(&losses, &key);
	return 0;
}

#endif
