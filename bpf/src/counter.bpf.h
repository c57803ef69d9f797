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

/* What the counter would have counted, had it run all the time that it was wanted. */
static __always_inline u64 scale(u64 count, u64 enabled, u64 running)
{
	/* Keeps the products in 64 bits. */
	if (enabled >> 32) {
		enabled >>= 16;
		running >>= 16;
	}
	if (!running)
		return 0;
	return count / running * enabled + count % running * enabled / running;
}

/* What a counter of this CPU has counted since the current thread came to it. */
static __always_inline u64 since_it_came(struct rt_counted *counted, u32 i)
{
	const struct rt_raw *came = &counted->came[i];
	u64 count, enabled, running;
	struct rt_raw raw;

	read_cpu(i, &raw);
	if (raw.count < came->count)
		return 0;
	count = raw.count - came->count;
	enabled = raw.enabled - came->enabled;
	running = raw.running - came->running;
	if (enabled == running)
		return count;
	estimates[i]++;
	return scale(count, enabled, running);
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

/* The count of the current thread. */
static __always_inline u64 count_now(struct task_struct *task, struct rt_counted *counted, u32 i, u64 now)
{
	switch (counter_sources[i]) {
	case RT_COUNT_CPU_TIME:
		return counted->total[i] + (now > counted->came_at ? now - counted->came_at : 0);
	case RT_COUNT_EVENT:
		return counted->total[i] + since_it_came(counted, i);
	default:
		return count_of_task(task, counter_sources[i]);
	}
}

/* The count of a thread that may run on another CPU. */
static __always_inline u64 count_elsewhere(struct task_struct *task, struct rt_counted *counted, u32 i, u64 now)
{
	if (counter_sources[i] == RT_COUNT_EVENT)
		return counted->total[i];
	return count_now(task, counted, i, now);
}

static __always_inline bool is_of_cpu(u32 source)
{
	return source == RT_COUNT_CPU_TIME || source == RT_COUNT_EVENT;
}

/* The thread comes to this CPU. */
static __always_inline void come(struct rt_counted *counted)
{
	u32 i;

	counted->switches++;
	counted->came_at = bpf_ktime_get_ns();
	rt_for_counters(i) {
		if (counter_sources[i] == RT_COUNT_EVENT)
			read_cpu(i, &counted->came[i]);
	}
}

/* The thread leaves this CPU. */
static __always_inline void leave(struct task_struct *task, struct rt_counted *counted)
{
	u64 now = bpf_ktime_get_ns();
	u32 i;

	rt_for_counters(i) {
		if (is_of_cpu(counter_sources[i]))
			counted->total[i] = count_now(task, counted, i, now);
	}
	/* Until it comes to another, it counts nothing. */
	counted->came_at = ~0ull;
}

static __always_inline void on_switch(struct task_struct *leaving, struct task_struct *coming)
{
	struct rt_counted *counted;

	counted = bpf_task_storage_get(&counted_threads, leaving, 0, 0);
	if (counted)
		leave(leaving, counted);
	counted = bpf_task_storage_get(&counted_threads, coming, 0, 0);
	if (counted)
		come(counted);
}

/* Begins to count on the current thread. */
static __always_inline bool new_counted(struct task_struct *task)
{
	struct rt_counted *counted;

	if (!rt_counters)
		return true;
	counted = bpf_task_storage_get(&counted_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!counted)
		return false;
	come(counted);
	return true;
}

/*
 * The counters of the current thread, read; null if nothing is counted. A switch may come between,
 * and the thread stays on its CPU while a program runs: then they are read again.
 */
static __always_inline struct rt_counted *read_counters(struct task_struct *task, u64 now)
{
	struct rt_counted *counted;
	u32 i, try, switches;

	if (!rt_counters)
		return 0;
	counted = bpf_task_storage_get(&counted_threads, task, 0, 0);
	if (!counted)
		return 0;
	for (try = 0; try < READ_TRIES; try++) {
		switches = *(volatile u32 *)&counted->switches;
		rt_for_counters(i) {
			counted->now[i] = count_now(task, counted, i, now);
		}
		if (switches == *(volatile u32 *)&counted->switches)
			break;
	}
	return counted;
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
	if (index < RT_ROWS_NEAR)
		return &hit->counted->near[index];
	index -= RT_ROWS_NEAR;
	if (create && index / RT_ROWS_CHUNK >= hit->counted->chunks)
		hit->counted->chunks = index / RT_ROWS_CHUNK + 1;
	return far_row(hit->thread->location, index, create);
}

struct chunk_walk {
	struct rt_chunk_key key;
	u32 chunks;
};

static long forget_chunk_step(u32 step, void *context)
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
	struct rt_counted *counted;

	if (!rt_counters)
		return;
	counted = bpf_task_storage_get(&counted_threads, task, 0, 0);
	if (!counted)
		return;
	walk.chunks = counted->chunks;
	bpf_loop(RT_FRAMES, forget_chunk_step, &walk, 0);
}

#endif
