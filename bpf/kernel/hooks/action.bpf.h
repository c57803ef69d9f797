/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Moments at which user space wants to act: it is woken at once, which costs the program microseconds. So they leave by
 * a ring of their own, and only those of chosen functions.
 */
#ifndef RTRACE_ACTION_H
#define RTRACE_ACTION_H

#include "maps.bpf.h"

/* By function: a bit for each enum rt_moment. */
HASH_MAP(acting, u32, u32, 1 << 12);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} moments SEC(".maps");

/* Whether there is any, and moments for which there was no room. */
volatile u32 has_actions;
u64 lost_moments;

static __noinline u32 tell_moment(u32 region, u32 kind)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 *wanted = bpf_map_lookup_elem(&acting, &region);
	struct rt_moment moment = { .region = region, .kind = kind };

	if (!wanted || !(*wanted & kind))
		return 0;
	moment.time = bpf_ktime_get_ns();
	moment.pid = process_of(task);
	moment.tid = thread_of(task);
	if (bpf_ringbuf_output(&moments, &moment, sizeof(moment), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&lost_moments, 1);
	return 0;
}

static __always_inline void rt_act(u32 region, u32 kind)
{
	if (has_actions && armed)
		tell_moment(region, kind);
}

#endif
