/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Regions whose calls cost too much: they are only counted for a time, or not seen at all.
 *
 * A region that is counted has a probe of its own for that, and its calls are not on the shadow stack.
 * While probes are exchanged both kinds may be in place: one of them is listened to, so that no call
 * counts twice or not at all.
 */
#ifndef RTRACE_GOVERNED_H
#define RTRACE_GOVERNED_H

#include "emit.bpf.h"

static __always_inline void look_at_clocks(struct rt_moment *moment)
{
	struct task_struct *task = bpf_get_current_task_btf();

	moment->time = bpf_ktime_get_ns();
	moment->cpu_time = task->se.sum_exec_runtime;
	moment->away = task->se.exec_start - task->se.sum_exec_runtime;
	moment->cpu = bpf_get_smp_processor_id();
}

/* What the caller keeps over calls: one of the words may count the passes of a loop. */
static __always_inline void sight(struct pt_regs *ctx, u64 slot, u64 *words)
{
	words[0] = ctx->bx;
	words[1] = ctx->bp;
	words[2] = ctx->r12;
	words[3] = ctx->r13;
	words[4] = ctx->r14;
	words[5] = ctx->r15;
	if (bpf_probe_read_user(words + RT_SIGHTED_REGISTERS, RT_SIGHTED_STACK * sizeof(u64),
				(void *)(slot + sizeof(u64))))
		__builtin_memset(words + RT_SIGHTED_REGISTERS, 0, RT_SIGHTED_STACK * sizeof(u64));
}

static __noinline void count_call(struct pt_regs *ctx, u64 slot, u32 region, u32 location)
{
	struct rt_counted_key key = { .location = location, .region = region };
	struct rt_counted_calls *counted;
	struct rt_sighting *sighting;
	u32 zero = 0, number;

	if (bpf_probe_read_user(&key.site, sizeof(key.site), (void *)slot))
		key.site = 0;
	counted = bpf_map_lookup_elem(&counted_calls, &key);
	if (!counted) {
		counted = bpf_map_lookup_elem(&no_counted_calls, &zero);
		if (!counted)
			return;
		bpf_map_update_elem(&counted_calls, &key, counted, BPF_NOEXIST);
		counted = bpf_map_lookup_elem(&counted_calls, &key);
		if (!counted) {
			count_loss(region, RT_LOSS_NO_MEMORY);
			return;
		}
	}
	if (counted->window != window) {
		counted->before = counted->calls;
		counted->left = counted->last;
		counted->sightings = 0;
		counted->window = window;
	}
	counted->calls++;
	look_at_clocks(&counted->last);
	number = counted->sightings;
	if (number < RT_SIGHTINGS) {
		sighting = &counted->sighting[number];
		sighting->moment = counted->last;
		sight(ctx, slot, sighting->words);
		counted->sightings = number + 1;
	}
}

/* Whether the call is to be recorded; one that is only counted is counted here. */
static __noinline bool is_recorded(struct pt_regs *ctx, u64 cookie, u64 slot, u32 location)
{
	bool by_count = cookie >> RT_COOKIE_COUNT & 1;
	u32 region = (u32)cookie;
	u32 *is_counted;
	u64 *count;

	is_counted = bpf_map_lookup_elem(&counting, &region);
	if (!is_counted)
		return !by_count;
	if (by_count != !!*(volatile u32 *)is_counted)
		return false;
	count = bpf_map_lookup_elem(&enters, &region);
	if (count)
		__sync_fetch_and_add(count, 1);
	if (by_count)
		count_call(ctx, slot, region, location);
	return !by_count;
}

#endif
