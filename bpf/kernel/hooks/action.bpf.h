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

static __always_inline u32 act(const u32 *region, u32 kind)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_moment *moment;
	u32 *wanted;

	if (!has_actions || !armed || !region)
		return 0;
	wanted = bpf_map_lookup_elem(&acting, region);
	if (!wanted || !(*wanted & kind))
		return 0;
	moment = bpf_ringbuf_reserve(&moments, sizeof(*moment), 0);
	if (!moment) {
		__sync_fetch_and_add(&lost_moments, 1);
		return 0;
	}
	moment->time = bpf_ktime_get_ns();
	moment->region = *region;
	moment->kind = kind;
	moment->pid = process_of(task);
	moment->tid = thread_of(task);
	bpf_ringbuf_submit(moment, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Not inlined, and asked for each call: more stack than these need is not left on Linux 6.1. */
static __noinline u32 act_at_enter(const u32 *region)
{
	return act(region, RT_MOMENT_ENTER);
}

static __noinline u32 act_at_leave(const struct rt_frame *frame)
{
	return frame ? act(&frame->region, RT_MOMENT_LEAVE) : 0;
}

#endif
