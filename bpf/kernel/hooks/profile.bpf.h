/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls folded by call path: the chain of regions from a root call to a call, apart for each
 * location. So each entry has one writer, its thread, and counts are exact without atomics.
 *
 * A frame carries the id of its path, which is the place of the path's entry in an array: what is
 * looked up by hash is only a path that differs from the last one called from the same caller.
 */
#ifndef RTRACE_PROFILE_H
#define RTRACE_PROFILE_H

#include "loss.bpf.h"

/* Beyond the table: what such calls call is beyond it, too. */
#define NO_PATH 0xffffffffu

/* Not static, so that the verifier looks at it once. */
__noinline u32 find_path(u32 location, u32 parent, u32 region)
{
	struct rt_path_key key = { .location = location, .parent = parent, .region = region };
	u32 *known = bpf_map_lookup_elem(&path_ids, &key);
	struct rt_path *path;
	u32 id = last_path;

	if (known)
		return *known;
	/* The first look keeps the number from wrapping around. */
	if (id < NO_PATH / 2)
		id = __sync_fetch_and_add(&last_path, 1) + 1;
	path = bpf_map_lookup_elem(&paths, &id);
	if (!path) {
		if (bpf_map_pop_elem(&free_paths, &id))
			return NO_PATH;
		path = bpf_map_lookup_elem(&paths, &id);
		if (!path)
			return NO_PATH;
	}
	if (bpf_map_update_elem(&path_ids, &key, &id, BPF_NOEXIST)) {
		bpf_map_push_elem(&free_paths, &id, 0);
		return NO_PATH;
	}
	path->region = region;
	path->parent = parent;
	path->location = location;
	return id;
}

static __always_inline u32 rt_path(struct rt_thread *thread, const struct rt_frame *caller, u32 region)
{
	struct rt_callee *last = &thread->last_root;
	u32 parent = 0, found;

	if (!profiled)
		return 0;
	if (caller) {
		struct rt_path *path;

		parent = caller->path;
		path = bpf_map_lookup_elem(&paths, &parent);
		if (!path)
			return NO_PATH;
		/* Else clang computes the address before the test, which the verifier refuses. */
		barrier_var(path);
		last = &path->last;
	}
	if (last->region == region && last->path)
		return last->path;
	found = find_path(thread->location, parent, region);
	if (found != NO_PATH) {
		last->region = region;
		last->path = found;
	}
	return found;
}

/* The number of digits that the duration has in base 2. */
static __always_inline u32 bucket_of(u64 duration)
{
	u32 digits = 0, step;

#pragma unroll
	for (step = 32; step; step /= 2) {
		if (duration >> step) {
			digits += step;
			duration >>= step;
		}
	}
	digits += duration;
	return digits < RT_BUCKETS ? digits : RT_BUCKETS - 1;
}

/* Not static, so that the verifier looks at it once. */
__noinline int fold_call(u32 id, u32 region, u64 duration, u64 child, u32 ending)
{
	struct rt_path *path = bpf_map_lookup_elem(&paths, &id);

	if (!path) {
		count_loss(region, RT_LOSS_TOO_MANY_PATHS);
		return 0;
	}
	path->endings[ending % RT_ENDINGS]++;
	if (ending == RT_UNSEEN)
		return 0;
	path->inclusive += duration;
	if (duration > child)
		path->exclusive += duration - child;
	if (ending == RT_OPEN) {
		path->open += duration;
		return 0;
	}
	if (duration < path->min || path->endings[RT_RETURNED] + path->endings[RT_UNWOUND] == 1)
		path->min = duration;
	if (duration > path->max)
		path->max = duration;
	path->histogram[bucket_of(duration)]++;
	return 0;
}

/* Whether a call leaves as a record. Of an open call the duration is not known. */
static __always_inline bool leaves_record(const struct rt_frame *frame, u64 duration, u32 ending)
{
	u64 from = written_from;

	if (!profiled || frame->marked)
		return true;
	/* Else clang asks twice, and what it keeps for that takes room on a short stack. */
	rt_apart(from);
	return ending == RT_OPEN ? from != RT_NEVER : duration >= from;
}

#endif
