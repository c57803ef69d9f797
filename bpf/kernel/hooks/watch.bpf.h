/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Accesses to watched variables. A breakpoint in the hardware runs a program in the thread that made
 * the access, right after it, so the thread counts by itself and no switch of threads matters.
 *
 * Threads inherit the breakpoints of the thread that made them. While rtrace places them in a program
 * that makes threads, a thread may get a second one for the same variable: only one of them counts.
 */
#ifndef RTRACE_WATCH_H
#define RTRACE_WATCH_H

#include "guard.bpf.h"
#include "loss.bpf.h"

/*
 * The event that rtrace opened, from which the one that tells is inherited. Of the inherited ones the
 * scheduler exchanges those of two threads when it switches between them.
 */
static __always_inline u64 opened_event(struct bpf_perf_event_data *ctx)
{
	struct bpf_perf_event_data_kern *kernel = (void *)ctx;
	struct perf_event *event = BPF_CORE_READ(kernel, event), *parent = BPF_CORE_READ(event, parent);

	return (u64)(parent ? parent : event);
}

static __always_inline bool is_second(struct watcher *watcher, u64 address, u64 event)
{
	if (watcher->address == address)
		return watcher->event != event;
	watcher->address = address;
	watcher->event = event;
	return false;
}

static __always_inline void write_value(struct task_struct *task, u64 address, u32 watch)
{
	struct rt_access *access = bpf_ringbuf_reserve(&accesses, sizeof(*access), 0);

	if (!access) {
		count_loss(RT_NO_REGION, RT_LOSS_VALUE);
		return;
	}
	access->time = bpf_ktime_get_ns();
	access->value = 0;
	access->tid = thread_of(task);
	access->watch = watch;
	if (bpf_probe_read_user(&access->value, watch_sizes[watch], (void *)address)) {
		bpf_ringbuf_discard(access, BPF_RB_NO_WAKEUP);
		count_loss(RT_NO_REGION, RT_LOSS_VALUE);
		return;
	}
	bpf_ringbuf_submit(access, BPF_RB_NO_WAKEUP);
}

static __always_inline void on_access(struct bpf_perf_event_data *ctx, u32 watch)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 address = ctx->addr, event = opened_event(ctx);
	u32 counter = first_watch + watch;
	struct rt_measured *measured;
	struct watchers *watchers;

	if (!rt_may_observe())
		return;
	__sync_fetch_and_add(&accesses_seen[watch], 1);
	if (!armed || counter >= RT_COUNTERS)
		return;
	watchers = bpf_task_storage_get(&watching, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!watchers) {
		count_loss(RT_NO_REGION, RT_LOSS_ACCESS);
		return;
	}
	if (is_second(&watchers->of[watch], address, event))
		return;
	/* Without it the thread has made no traced call. */
	measured = bpf_task_storage_get(&counted_threads, task, 0, 0);
	if (measured)
		measured->total[counter]++;
	if (watch_values[watch])
		write_value(task, address, watch);
}

/* A new program has other variables. */
static __always_inline void forget_watchers(struct task_struct *task)
{
	if (first_watch < rt_counters)
		bpf_task_storage_delete(&watching, task);
}

#endif
