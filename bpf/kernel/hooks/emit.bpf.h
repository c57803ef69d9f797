/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How calls and events leave. */
#ifndef RTRACE_EMIT_H
#define RTRACE_EMIT_H

#include "action.bpf.h"
#include "profile.bpf.h"

static __always_inline void fill_call(struct rt_call *call, const struct rt_thread *thread,
				      const struct rt_frame *frame, u64 duration, u32 ending)
{
	call->id = frame->id;
	call->parent = frame->parent;
	call->start = frame->start;
	call->duration = duration;
	call->child = frame->child;
	call->site = frame->word;
	call->region = frame->region;
	call->location = thread->location;
	call->space = thread->space;
	call->depth = frame->depth;
	call->ending = ending;
	call->reserved = 0;
}

#define CALL_SIZE (sizeof(struct rt_call) + rt_counters * sizeof(struct rt_reading))
#define VALUES_SIZE ((1 + rt_words) * sizeof(u64))
#define LISTS_SIZE (RT_LISTED * sizeof(u64))

/* The call's context, which operations failed, and as many words as a program of this recording fills at most. */
static __always_inline void write_values(u64 *words, const struct rt_values *values)
{
	u32 i;

	words[0] = values->failed | values->context << 32;
	for (i = 0; i < RT_WORDS && i < rt_words; i++)
		words[1 + i] = values->word[i];
}

/* The lists that were read when the call returned; null: none were. */
static __always_inline const struct rt_lists *lists_of(const struct rt_values *values, u32 ending)
{
	if (!rt_words || !values || !values->lists || ending != RT_RETURNED)
		return 0;
	return bpf_task_storage_get(&lists, bpf_get_current_task_btf(), 0, 0);
}

static __always_inline void write_call(const struct rt_hit *hit, const struct rt_frame *frame,
				       const struct rt_values *values, u64 duration, u32 ending)
{
	u32 cpu = bpf_get_smp_processor_id(), context = 0, i;
	const struct rt_lists *listed;
	struct rt_reading *readings;
	struct rt_call *call;
	void *ring;

	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring) {
		count_loss(frame->region, RT_LOSS_RING_FULL);
		return;
	}
	if (rt_levels && values)
		context = values->context;
	if (!rt_words || (values && !values->has))
		values = 0;
	/* Else clang asks again below, and the verifier does not know the answer. */
	rt_apart(values);
	/* Sizes are known when the programs are loaded. */
	listed = lists_of(values, ending);
	rt_apart(listed);
	if (values && listed)
		call = bpf_ringbuf_reserve(ring, CALL_SIZE + VALUES_SIZE + LISTS_SIZE, 0);
	else if (values)
		call = bpf_ringbuf_reserve(ring, CALL_SIZE + VALUES_SIZE, 0);
	else if (rt_levels)
		call = bpf_ringbuf_reserve(ring, CALL_SIZE + sizeof(u64), 0);
	else
		call = bpf_ringbuf_reserve(ring, CALL_SIZE, 0);
	if (!call) {
		count_loss(frame->region, RT_LOSS_RING_FULL);
		return;
	}
	fill_call(call, hit->thread, frame, duration, ending);
	readings = (struct rt_reading *)(call + 1);
	rt_for_counters(i)
		readings[i] = hit->measured->readings[i];
	if (values && listed)
		*(struct rt_lists *)((u64 *)(readings + rt_counters) + 1 + rt_words) = *listed;
	if (values)
		write_values((u64 *)(readings + rt_counters), values);
	else if (rt_levels)
		*(u64 *)(readings + rt_counters) = (u64)context << 32;
	/* A wake-up per record would cost the target several times the probe; the reader polls. */
	bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
}

/* Adds a call's counters to its path's totals. */
static __noinline void fold_counts(u32 id, const struct rt_measured *measured)
{
	struct rt_path_counts *counts = bpf_map_lookup_elem(&path_counts, &id);
	u64 inclusive, child;
	u32 i;

	if (!counts || !measured)
		return;
	rt_for_counters(i) {
		inclusive = measured->readings[i].inclusive;
		child = measured->readings[i].child;
		counts->sum[i].inclusive += inclusive;
		counts->sum[i].exclusive += inclusive > child ? inclusive - child : 0;
	}
}

static __always_inline u32 rt_is_recorded(const struct rt_frame *frame, u64 duration, u32 ending)
{
	return leaves_record(frame, duration, ending);
}

static __always_inline u32 rt_emit(const struct rt_hit *hit, const struct rt_frame *frame,
				   const struct rt_values *values, u64 duration, u32 ending)
{
	act_at_leave(frame);
	if (profiled)
		fold_call(frame->path, frame->region, duration, frame->child, ending);
	if (profiled && rt_counters)
		fold_counts(frame->path, hit->measured);
	if (!leaves_record(frame, duration, ending))
		return 0;
	write_call(hit, frame, values, duration, ending);
	return 1;
}

static __always_inline void fill_event(struct rt_event *event, u32 kind, u32 pid, u32 tid, u32 value)
{
	event->time = bpf_ktime_get_ns();
	event->kind = kind;
	event->pid = pid;
	event->tid = tid;
	event->value = value;
}

static __always_inline void emit_event(u32 kind, u32 pid, u32 tid, u32 value)
{
	struct rt_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		return;
	}
	fill_event(event, kind, pid, tid, value);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* The current process has executed a program. It may have ended before user space looks at its command line. */
static __always_inline void emit_execution(struct task_struct *task)
{
	struct rt_execution *execution = bpf_ringbuf_reserve(&events, sizeof(*execution), 0);
	u64 start, length;

	if (!execution) {
		count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		return;
	}
	fill_event(&execution->event, RT_EVENT_EXEC, process_of(task), thread_of(task), 0);
	start = BPF_CORE_READ(task, mm, arg_start);
	length = BPF_CORE_READ(task, mm, arg_end) - start;
	if (length >= RT_ARGUMENTS)
		length = 0;
	execution->length = length;
	/* In this form the verifier understands that it fits. */
	barrier_var(length);
	if (bpf_probe_read_user(execution->arguments, length & (RT_ARGUMENTS - 1), (void *)start))
		execution->length = 0;
	bpf_ringbuf_submit(execution, BPF_RB_NO_WAKEUP);
}

#endif
