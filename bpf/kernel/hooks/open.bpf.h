/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hands over the calls that are running, and behind them those that were left and are not on record
 * yet. After recording was switched off they stand still; before, frames change while they are copied:
 * as many are written as the header says, whatever they hold.
 */
#ifndef RTRACE_OPEN_H
#define RTRACE_OPEN_H

#include "hit.bpf.h"

struct open_walk {
	struct seq_file *seq;
	struct rt_thread *thread;
	struct rt_far *far;
	struct rt_left *left;
	struct task_struct *task;
	struct rt_measured *measured;
	u64 now;
	u32 first;
	u32 running; /* frames of the thread */
	u32 frames; /* to write in this pass */
};

/* Which operations failed, whether there are any, and all words. */
static __always_inline void write_open_values(struct seq_file *seq, struct rt_values *values)
{
	struct rt_values none = {};

	bpf_seq_write(seq, values ? values : &none, sizeof(none));
}

/*
 * What the call at the index has counted so far. The counters of a CPU cannot be read from another:
 * of a thread that runs, they count until it last left one.
 */
static __always_inline void write_open_readings(struct open_walk *walk, u32 index)
{
	struct rt_hit hit = { .thread = walk->thread, .measured = walk->measured };
	struct rt_row *row = 0;
	u64 count;
	u32 i;

	if (rt_has_rows && hit.measured)
		row = rt_row(&hit, index, 0);
	rt_for_counters(i) {
		struct rt_reading reading = {};

		if (row) {
			count = count_elsewhere(walk->task, hit.measured, i, walk->now);
			reading.inclusive = count > row->start[i] ? count - row->start[i] : 0;
			reading.child = row->child[i];
		}
		bpf_seq_write(walk->seq, &reading, sizeof(reading));
	}
	if (rt_has_values)
		write_open_values(walk->seq, row ? &row->values : 0);
}

/* An entry that is not in use has the id 0. */
static __always_inline void write_left_call(struct open_walk *walk, u32 index)
{
	struct rt_left_call *left = &walk->left->call[index % RT_LEFT_MAX];
	struct rt_open_call open = { .path = left->frame.path };
	u32 i;

	fill_call(&open.call, walk->thread, &left->frame, left->left - left->frame.start, RT_UNWOUND);
	open.has_record = leaves_record(&left->frame, open.call.duration, RT_UNWOUND);
	bpf_seq_write(walk->seq, &open, sizeof(open));
	rt_for_counters(i)
		bpf_seq_write(walk->seq, &left->readings[i], sizeof(left->readings[i]));
	if (rt_has_values)
		write_open_values(walk->seq, &left->row.values);
}

/* Why a call may be over: as the frame says, or because another thread has gone on with it. */
static __always_inline u32 open_doubt(const struct open_walk *walk, const struct rt_frame *frame)
{
	struct rt_foreign_key key = { .slot = rt_home_slot(frame), .process = walk->task->tgid };

	if (frame->doubt || !rt_may_move(frame) ||
	    !has_ended_elsewhere(bpf_map_lookup_elem(&foreign_calls, &key), walk->thread->location))
		return frame->doubt;
	return 1 + RT_UNTIMED_AMBIGUOUS;
}

STEPS(RT_OPEN_CHUNK);

rt_step(write_open_step)
{
	struct open_walk *walk = context;
	u32 index = walk->first + step, far = index - RT_FRAMES_NEAR;
	struct rt_open_call open = {};
	struct rt_frame *frame = 0;

	if (step >= walk->frames)
		return 1;
	if (index >= walk->running && walk->left) {
		write_left_call(walk, index - walk->running);
		return 0;
	}
	if (index < RT_FRAMES_NEAR)
		frame = &walk->thread->near[index];
	else if (walk->far && far < RT_FRAMES_FAR) {
		/* Else clang computes the address before the test, which the verifier refuses. */
		rt_apart(far);
		frame = &walk->far->frame[far];
	}
	if (frame) {
		open.doubt = open_doubt(walk, frame);
		fill_call(&open.call, walk->thread, frame, 0, open.doubt ? RT_UNSEEN : RT_OPEN);
		open.path = frame->path;
		open.has_record = leaves_record(frame, 0, RT_OPEN);
	}
	bpf_seq_write(walk->seq, &open, sizeof(open));
	write_open_readings(walk, index);
	return 0;
}

/* Whether the frames are handed over: for good only if their thread has not begun to do so as it ends. */
static __always_inline bool take_open_calls(struct rt_thread *thread)
{
	if (!open_is_last)
		return true;
	return open_first ? thread->taken == RT_TAKEN_BY_READER : rt_take(thread, RT_TAKEN_BY_READER);
}

/* Writes a header and the frames [open_first, open_first + RT_OPEN_CHUNK), the oldest first. */
static __always_inline void write_open_calls(struct seq_file *seq, struct task_struct *task)
{
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	struct rt_open_thread open = {};
	struct open_walk walk = { .seq = seq, .thread = thread, .task = task, .first = open_first };
	u32 frames;

	if (!thread || !take_open_calls(thread))
		return;
	open.location = thread->location;
	walk.running = frames = *(volatile u32 *)&thread->frames;
	if (thread->left) {
		walk.left = bpf_map_lookup_elem(&left_calls, &open.location);
		frames += walk.left ? RT_LEFT_MAX : 0;
	}
	if (frames > walk.first)
		open.frames = frames - walk.first;
	if (open.frames > RT_OPEN_CHUNK)
		open.frames = RT_OPEN_CHUNK;
	if (walk.first && !open.frames)
		return;
	open.calls = thread->calls;
	BPF_CORE_READ_STR_INTO(&open.comm, task, comm);
	bpf_seq_write(seq, &open, sizeof(open));
	if (rt_has_rows) {
		walk.measured = bpf_task_storage_get(&counted_threads, task, 0, 0);
		walk.now = bpf_ktime_get_ns();
	}
	walk.frames = open.frames;
	walk.far = bpf_map_lookup_elem(&far_frames, &open.location);
	rt_repeat(RT_OPEN_CHUNK, write_open_step, &walk);
}

#endif
