/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How what goes missing is counted. */
#ifndef RTRACE_LOSS_H
#define RTRACE_LOSS_H

#include "maps.bpf.h"

/* Not static: the verifier looks at such a function once. */
__noinline int count_loss(u32 region, u32 reason)
{
	struct rt_loss_key key = { .region = region, .reason = reason };
	u64 zero = 0, *count;

	count = bpf_map_lookup_elem(&losses, &key);
	if (!count) {
		bpf_map_update_elem(&losses, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&losses, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

#endif
