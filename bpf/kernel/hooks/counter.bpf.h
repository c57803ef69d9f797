/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread has counted so far, whichever CPUs it ran on and whoever else ran there.
 *
 * The kernel itself counts some things per task. Time and hardware are counted per CPU: there a
 * thread's count is what it had when it last left a CPU, and what its CPU has counted since it came.
 */
#ifndef RTRACE_COUNTER_BPF_H
#define RTRACE_COUNTER_BPF_H

#include "emit.bpf.h"
#include "repeat.bpf.h"
#include "counter.h"

#define READ_TRIES 4

static __always_inline void read_cpu(u32 i, struct rt_raw *raw)
{
	u64 place = bpf_get_smp_processor_id() * RT_COUNTERS + i;
	struct bpf_perf_event_value value = {};

	if (bpf_perf_event_read_value(&counter_events, place, &value, sizeof(value)))
		estimates[i]++;
	raw->count = value.counter;
	raw->enabled = value.enabled;
	raw->running = value.running;
}

/* What a counter of this CPU has counted since the current thread came to it. */
static __always_inline u64 since_it_came(struct rt_measured *measured, u32 i)
{
	struct rt_raw raw;
	u32 is_estimate;
	u64 count;

	read_cpu(i, &raw);
	count = rt_count_between(&measured->came[i], &raw, &is_estimate);
	estimates[i] += is_estimate;
	return count;
}

/* A count that the kernel keeps for the task. */
static __always_inline u64 count_of_task(struct task_struct *task, u32 source)
{
	switch (source) {
	case RT_COUNT_PAGE_FAULTS:
		return task->min_flt + task->maj_flt;
	case RT_COUNT_MINOR_FAULTS:
		return task->min_flt;
	case RT_COUNT_MAJOR_FAULTS:
		return task->maj_flt;
	case RT_COUNT_CONTEXT_SWITCHES:
		return task->nvcsw + task->nivcsw;
	default:
		return task->se.nr_migrations;
	}
}

/* How often the task has left a CPU. */
static __always_inline u64 switches_of(struct task_struct *task)
{
	return *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
}

/* The count of the current thread. */
static __always_inline u64 count_now(struct task_struct *task, struct rt_measured *measured, u32 i, u64 now)
{
	switch (counter_sources[i]) {
	case RT_COUNT_CPU_TIME:
		return measured->total[i] + (now > measured->came_at ? now - measured->came_at : 0);
	case RT_COUNT_EVENT:
		return measured->total[i] + since_it_came(measured, i);
	case RT_COUNT_ACCESSES:
	case RT_COUNT_VALUES:
		return measured->total[i];
	default:
		return count_of_task(task, counter_sources[i]);
	}
}

/* The count of a thread that may run on another CPU. */
static __always_inline u64 count_elsewhere(struct task_struct *task, struct rt_measured *measured, u32 i, u64 now)
{
	bool has_left = measured->switches != switches_of(task);

	if (counter_sources[i] == RT_COUNT_EVENT || (counter_sources[i] == RT_COUNT_CPU_TIME && has_left))
		return measured->total[i];
	return count_now(task, measured, i, now);
}

/*
 * The CPU time of a thread that the scheduler accounts for. It leaves out what interrupts and the
 * host of a virtual machine took, which our own clock went on through: a count never falls, and the
 * scheduler's comes up to it.
 */
static __always_inline u64 scheduled_count(struct task_struct *task, const struct rt_measured *measured, u32 i)
{
	u64 count = task->se.sum_exec_runtime - measured->scheduled_zero, seen = measured->now[i];

	return (__s64)(count - seen) > 0 ? count : seen;
}

/* The thread comes to this CPU. */
static __always_inline void come(struct task_struct *task, struct rt_measured *measured)
{
	u32 i;

	measured->switches = switches_of(task);
	measured->came_at = bpf_ktime_get_ns();
	rt_for_counters(i) {
		if (counter_sources[i] == RT_COUNT_EVENT)
			read_cpu(i, &measured->came[i]);
		else if (counter_sources[i] == RT_COUNT_CPU_TIME && measured->scheduled_zero)
			measured->total[i] = scheduled_count(task, measured, i);
	}
}

/*
 * The thread leaves this CPU. The scheduler's account of its time is exact here, as it has just been
 * brought up to date; its zero is set so that it goes on from our own.
 */
static __always_inline void leave(struct task_struct *task, struct rt_measured *measured)
{
	u64 now = bpf_ktime_get_ns();
	/* Not every kernel tells of every switch. */
	bool was_told = measured->switches + 1 == switches_of(task);
	u32 i;

	rt_for_counters(i) {
		if (counter_sources[i] == RT_COUNT_EVENT) {
			if (was_told)
				measured->total[i] += since_it_came(measured, i);
			else
				estimates[i]++;
		} else if (counter_sources[i] == RT_COUNT_CPU_TIME) {
			if (!measured->scheduled_zero)
				measured->scheduled_zero =
					task->se.sum_exec_runtime - (measured->total[i] + now - measured->came_at);
			measured->total[i] = scheduled_count(task, measured, i);
		}
	}
}

static __always_inline void on_switch(struct task_struct *leaving, struct task_struct *coming)
{
	struct rt_measured *measured;

	measured = bpf_task_storage_get(&counted_threads, leaving, 0, 0);
	if (measured)
		leave(leaving, measured);
	measured = bpf_task_storage_get(&counted_threads, coming, 0, 0);
	if (measured)
		come(coming, measured);
}

/* Begins to count on the current thread. */
static __always_inline bool new_counted(struct task_struct *task)
{
	struct rt_measured *measured;

	if (!rt_has_rows)
		return true;
	measured = bpf_task_storage_get(&counted_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!measured)
		return false;
	come(task, measured);
	return true;
}

static __always_inline bool needs_switches(void)
{
	bool needs = false;
	u32 i;

	rt_for_counters(i)
		needs |= counter_sources[i] == RT_COUNT_EVENT || counter_sources[i] == RT_COUNT_CPU_TIME;
	return needs;
}

/* A switch was not told: what CPUs counted since the thread last left one is not known. */
static __always_inline void begin_anew(struct task_struct *task, struct rt_measured *measured)
{
	u32 i;

	rt_for_counters(i) {
		if (counter_sources[i] == RT_COUNT_EVENT)
			estimates[i]++;
	}
	come(task, measured);
}

/*
 * The counters of the current thread, read; null if nothing is counted. A switch may come between,
 * and the thread stays on its CPU while a program runs: then they are read again.
 */
static __noinline struct rt_measured *read_counters(struct task_struct *task, u64 now)
{
	struct rt_measured *measured;
	u32 i, try;
	u64 before;

	if (!rt_has_rows)
		return 0;
	measured = bpf_task_storage_get(&counted_threads, task, 0, 0);
	if (!measured || !rt_counters)
		return measured;
	for (try = 0; try < READ_TRIES; try++) {
		before = switches_of(task);
		if (needs_switches() && before != *(volatile u64 *)&measured->switches) {
			if (try == READ_TRIES - 2)
				begin_anew(task, measured);
			continue;
		}
		rt_for_counters(i)
			measured->now[i] = count_now(task, measured, i, now);
		if (before == switches_of(task))
			break;
	}
	return measured;
}

static __noinline struct rt_row *far_row(u32 location, u32 index, u32 create)
{
	struct rt_chunk_key key = { .location = location, .chunk = index / RT_ROWS_CHUNK };
	struct rt_chunk *chunk;
	u32 zero = 0;

	chunk = bpf_map_lookup_elem(&far_rows, &key);
	if (!chunk && create) {
		chunk = bpf_map_lookup_elem(&no_far_rows, &zero);
		if (!chunk)
			return 0;
		bpf_map_update_elem(&far_rows, &key, chunk, BPF_NOEXIST);
		chunk = bpf_map_lookup_elem(&far_rows, &key);
	}
	index %= RT_ROWS_CHUNK;
	return chunk ? &chunk->row[index] : 0;
}

static __always_inline struct rt_row *rt_row(struct rt_hit *hit, u32 index, u32 create)
{
	if (index < RT_ROWS_NEAR) {
		/* Else clang checks one copy of the index and uses another, which the verifier refuses. */
		rt_apart(index);
		return &hit->measured->near[index];
	}
	index -= RT_ROWS_NEAR;
	if (create && index / RT_ROWS_CHUNK >= hit->measured->chunks)
		hit->measured->chunks = index / RT_ROWS_CHUNK + 1;
	return far_row(hit->thread->location, index, create);
}

struct chunk_walk {
	struct rt_chunk_key key;
	u32 chunks;
};

rt_step(forget_chunk_step)
{
	struct chunk_walk *walk = context;

	if (step >= walk->chunks)
		return 1;
	walk->key.chunk = step;
	bpf_map_delete_elem(&far_rows, &walk->key);
	return 0;
}

/* The thread has ended. */
static __always_inline void forget_rows(struct task_struct *task, u32 location)
{
	struct chunk_walk walk = { .key.location = location };
	struct rt_measured *measured;

	if (!rt_has_rows)
		return;
	measured = bpf_task_storage_get(&counted_threads, task, 0, 0);
	if (!measured)
		return;
	walk.chunks = measured->chunks;
	rt_repeat(RT_FRAMES, forget_chunk_step, &walk);
}

#endif
