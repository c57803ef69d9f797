/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How what goes missing is counted. */
#ifndef RTRACE_LOSS_H
#define RTRACE_LOSS_H

#include "maps.bpf.h"

/* Counts so many more of what a table has a count for. */
static __always_inline void count_many_in(void *table, const void *key, u64 number)
{
	u64 zero = 0, *count;

	count = bpf_map_lookup_elem(table, key);
	if (!count) {
		bpf_map_update_elem(table, key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(table, key);
	}
	if (count)
		__sync_fetch_and_add(count, number);
}

/* Counts one more. */
static __always_inline void count_in(void *table, const void *key)
{
	count_many_in(table, key, 1);
}

/* Not static: the verifier looks at such a function once. */
__noinline int count_loss(u32 region, u32 reason)
{
	struct rt_loss_key key = { .region = region, .reason = reason };

	count_in(&losses, &key);
	return 0;
}

/* Values of a call could not be read. Not static, as above. */
__noinline int count_unread(u32 region, u32 number)
{
	struct rt_loss_key key = { .region = region, .reason = RT_LOSS_UNREAD };

	if (number)
		count_many_in(&losses, &key, number);
	return 0;
}

#endif
