/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python functions that run on a thread, for contexts.
 *
 * CPython keeps a list of its frames, apart from the stack: the interpreter's C function runs several of them. User
 * space says where a process has that list. How the list fits the stack needs no symbols: for each time that the
 * interpreter was called, it has a variable on the stack that the list refers to (from 3.12 on a frame that stands for the
 * caller, in 3.11 a C frame). So the C frame around that variable is the interpreter's.
 */
#ifndef RTRACE_PYTHON_H
#define RTRACE_PYTHON_H

#include "repeat.bpf.h"

#define MIX_LOW 0x9e3779b97f4a7c15ull

/* Steps through the threads of a process, and through frames. */
enum {
	PYTHON_THREADS = 256,
	PYTHON_STEPS = 1200, /* more than the interpreter's own limit */
};

STEPS(PYTHON_THREADS);
STEPS(PYTHON_STEPS);

#define PYTHON_CALLS 16 /* a power of two; for so many there is always room */
#define FOREIGN_OWNER 3 /* from this owner on, a frame stands for a caller that is not Python's */
#define HALF 32

/*
 * By address space; `interpreters` is 0 where user space has found none. Its size is set before loading where contexts are
 * recorded.
 */
HASH_MAP(pythons, u32, struct rt_python, 1);

/* Whether there is any. */
volatile u32 reading_python;

/* Where a thread's frames are read. */
struct python_walk {
	u64 state; /* of the thread that it was last */
	u64 frame;
	u64 c_frame;
	u64 interpreter;
	u64 limit;
	u64 id; /* the number of the thread, as it knows it */
	struct rt_python in;
	u64 calls[PYTHON_CALLS]; /* variables of the interpreter, the innermost first */
	u32 call_count;
	u32 begun; /* entries in front of those of the call of the interpreter whose frames are read */
	u32 is_cut; /* whether there was no room for one of these */
};

/* A forked process has its parent's interpreter. */
static __always_inline void inherit_python(u32 parent, u32 child)
{
	struct rt_python *known = bpf_map_lookup_elem(&pythons, &parent);

	if (known)
		bpf_map_update_elem(&pythons, &child, known, BPF_ANY);
}

/* A process has ended, or executes another program. */
static __always_inline void forget_python(u32 space)
{
	bpf_map_delete_elem(&pythons, &space);
}

static __always_inline u64 python_word(u64 address, u16 offset)
{
	u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)(address + offset));
	return word;
}

/* The number of the running thread in its own namespace. */
static __always_inline u64 own_thread_id(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u64 level = BPF_CORE_READ(pid, level);
	struct upid *number = &pid->numbers[0];

	number = (struct upid *)((char *)number + level * bpf_core_type_size(struct upid));
	return (u32)BPF_CORE_READ(number, nr);
}

rt_step(python_thread_step)
{
	struct python_walk *walk = *(struct python_walk **)context;

	if (!walk->state) {
		walk->interpreter = python_word(walk->interpreter, walk->in.next_interpreter);
		if (!walk->interpreter)
			return 1;
		walk->state = python_word(walk->interpreter, walk->in.threads);
		return 0;
	}
	if (python_word(walk->state, walk->in.thread_id) == walk->id)
		return 1;
	walk->state = python_word(walk->state, walk->in.next_thread);
	return 0;
}

#define CODE_VERSION 20 /* bytes in front of the names */

/*
 * What tells a code object from one that is where it was: most are never freed, but those of modules and of exec() are. The
 * next one often has its names and its table of lines where the former had them, but not the same texts. Since 3.12 no two
 * have the same version.
 */
static __always_inline u32 code_identity(const struct rt_python *in, u64 code)
{
	u64 names[4] = {};
	u32 line = 0, version = 0;
	u64 mixed;

	bpf_probe_read_user(names, sizeof(names), (void *)(code + in->names));
	bpf_probe_read_user(&line, sizeof(line), (void *)(code + in->line));
	if (in->hash == RT_NOT_THERE)
		bpf_probe_read_user(&version, sizeof(version), (void *)(code + in->names - CODE_VERSION));
	mixed = line | (u64)version << HALF;
	for (int i = 0; i < 4; i++) {
		mixed = (mixed ^ names[i]) * MIX_LOW;
		/* 0 where it is not in memory. */
		if (in->hash != RT_NOT_THERE)
			mixed = (mixed ^ python_word(names[i], in->hash)) * MIX_LOW;
	}
	return mixed >> HALF;
}

/* Adds an entry, if less than `most` are there; returns whether there is no room. */
static __always_inline bool push_python(struct rt_context *context, u64 code, u64 key, u32 most)
{
	u32 count = context->frames;

	if (count >= most)
		return true;
	rt_apart(count);
	if (count >= RT_PYTHON_FRAMES)
		return true;
	context->python[count].code = code;
	context->python[count].key = key;
	context->frames = count + 1;
	return false;
}

struct python_frames {
	struct python_walk *walk;
	struct rt_context *context;
};

rt_step(python_frame_step)
{
	struct python_walk *walk = ((struct python_frames *)context)->walk;
	struct rt_context *found = ((struct python_frames *)context)->context;
	u64 code, offset, call = 0;
	u8 flag = 0;

	if (!walk->frame)
		return 1;
	if (bpf_probe_read_user(&flag, sizeof(flag), (void *)(walk->frame + walk->in.owner)))
		return 1;
	if (flag >= FOREIGN_OWNER) {
		call = walk->frame;
	} else {
		if (found->frames < RT_PYTHON_FRAMES - PYTHON_CALLS) {
			/* The lowest bits say whether the frame counts as a user of it. */
			code = python_word(walk->frame, walk->in.code) & ~7ull;
			offset = python_word(walk->frame, walk->in.instruction) - code - walk->in.bytecode;
			push_python(found, code, (u32)offset | (u64)code_identity(&walk->in, code) << HALF,
				    RT_PYTHON_FRAMES - PYTHON_CALLS);
		} else {
			walk->is_cut = 1;
		}
		flag = 0;
		if (walk->in.is_entry != RT_NOT_THERE)
			bpf_probe_read_user(&flag, sizeof(flag), (void *)(walk->frame + walk->in.is_entry));
		if (flag) {
			call = walk->c_frame;
			walk->c_frame = python_word(walk->c_frame, walk->in.c_previous);
		}
	}
	walk->frame = python_word(walk->frame, walk->in.previous);
	if (!call)
		return 0;
	if (walk->limit && call >= walk->limit) {
		found->frames = walk->begun;
		return 1;
	}
	if (walk->call_count >= PYTHON_CALLS || push_python(found, 0, call | walk->is_cut, RT_PYTHON_FRAMES))
		return 1;
	walk->is_cut = 0;
	walk->calls[walk->call_count++ & (PYTHON_CALLS - 1)] = call;
	walk->begun = found->frames;
	return 0;
}

/* Reads the frames of the running thread, as far as a traced function called them. Once for the verifier. */
static __noinline u32 read_python(struct python_walk *walk, struct rt_context *context)
{
	struct python_frames frames = { .walk = walk, .context = context };
	struct rt_python *known;
	u32 space;

	if (!walk || !context)
		return 0;
	walk->call_count = walk->begun = walk->is_cut = 0;
	space = context->space;
	known = bpf_map_lookup_elem(&pythons, &space);
	if (!known || !known->interpreters)
		return 0;
	context->is_python = 1;
	walk->in = *known;
	walk->id = own_thread_id(bpf_get_current_task_btf());
	if (!walk->state || python_word(walk->state, walk->in.thread_id) != walk->id) {
		walk->interpreter = python_word(walk->in.interpreters, 0);
		walk->state = walk->interpreter ? python_word(walk->interpreter, walk->in.threads) : 0;
		rt_repeat(PYTHON_THREADS, python_thread_step, &walk);
		if (!walk->state || python_word(walk->state, walk->in.thread_id) != walk->id) {
			walk->state = 0;
			return 0;
		}
	}
	walk->frame = python_word(walk->state, walk->in.current);
	if (walk->in.c_frame != RT_NOT_THERE) {
		walk->c_frame = walk->frame;
		walk->frame = python_word(walk->c_frame, walk->in.c_frame);
	}
	rt_repeat(PYTHON_STEPS, python_frame_step, &frames);
	return 0;
}

#endif
