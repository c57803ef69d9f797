/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls on stacks that are not a thread's own. Another thread may go on with such a stack, and the calls on it return
 * there; then nothing that happens on the first thread is their return.
 */
#ifndef RTRACE_FOREIGN_H
#define RTRACE_FOREIGN_H

#include "maps.bpf.h"

static __always_inline struct rt_foreign_key foreign_key(u64 slot)
{
	return (struct rt_foreign_key){ .slot = slot, .process = bpf_get_current_pid_tgid() >> 32 };
}

/* Whether a call that has entered at this location has ended elsewhere. Without room for it in the table, nobody knows. */
static __always_inline bool has_ended_elsewhere(const struct rt_foreign *known, u32 location)
{
	return !known || known->location != location || known->has_ended;
}

static __always_inline void rt_note_foreign(u64 slot, u64 id)
{
	struct rt_foreign_key key = foreign_key(slot);
	struct rt_thread *thread = rt_thread();
	struct rt_foreign *known, call = { .id = id };

	if (!thread)
		return;
	call.location = thread->location;
	known = bpf_map_lookup_elem(&foreign_calls, &key);
	/* Several end with one return: the first of them. */
	if (!has_ended_elsewhere(known, call.location))
		return;
	bpf_map_update_elem(&foreign_calls, &key, &call, BPF_ANY);
	if (!has_foreign_calls)
		has_foreign_calls = 1;
}

rt_rare u32 rt_ended_elsewhere(u64 slot, u64 id)
{
	struct rt_foreign_key key = foreign_key(slot);
	struct rt_thread *thread = rt_thread();
	struct rt_foreign *known = bpf_map_lookup_elem(&foreign_calls, &key);
	u32 has_ended;

	if (!thread || !known || known->location != thread->location)
		return 1;
	has_ended = known->has_ended;
	if (known->id == id)
		bpf_map_delete_elem(&foreign_calls, &key);
	return has_ended;
}

/* Control returns from the slot on the current thread. */
static __noinline void end_foreign(u64 slot)
{
	struct rt_foreign_key key = foreign_key(slot);
	struct rt_thread *thread = rt_thread();
	struct rt_foreign *known = bpf_map_lookup_elem(&foreign_calls, &key);

	if (known && (!thread || known->location != thread->location))
		known->has_ended = 1;
}

#endif
