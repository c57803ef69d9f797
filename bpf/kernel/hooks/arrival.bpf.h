/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is known of a return address: whether a probe detects returns to it.
 *
 * User space places these probes when it hears of an address. It may also have placed some before,
 * where it knows a file but not yet where a process maps it; the mapping is then found here, once for
 * each address and address space.
 */
#ifndef RTRACE_ARRIVAL_H
#define RTRACE_ARRIVAL_H

#include "loss.bpf.h"
#include "mapping.bpf.h"
#include "times.bpf.h"

/* Returns whether user space will hear of it. */
static __always_inline bool ask(u64 address, u32 pid, u32 space, u32 parent, u32 must_be_site)
{
	struct rt_question *question = bpf_ringbuf_reserve(&questions, sizeof(*question), 0);

	if (!question)
		return false;
	question->address = address;
	question->time = bpf_ktime_get_ns();
	question->pid = pid;
	question->space = space;
	question->parent = parent;
	question->must_be_site = must_be_site;
	/* Wakes the reader unless it is at work. */
	bpf_ringbuf_submit(question, 0);
	return true;
}

/* Not on the stack, which is short. */
static const struct rt_arrival asked = { .kind = RT_ARRIVAL_ASKED };

/* Asks user space about a return address, once. */
static __always_inline void ask_about(const struct rt_arrival_key *key)
{
	if (bpf_map_update_elem(&arrivals, key, &asked, BPF_NOEXIST))
		return;
	/* Else the next call from there asks again. */
	if (!ask(key->address, bpf_get_current_pid_tgid() >> 32, key->space, 0, 0))
		bpf_map_delete_elem(&arrivals, key);
}

/* What was known before of the place in a file that is mapped at the address; null if nothing. */
static __always_inline struct rt_arrival *find_primed(u64 address)
{
	struct rt_thread *thread = rt_thread();
	struct rt_mapping *mapping;
	struct inode *inode;
	struct file *file;

	if (!thread)
		return 0;
	mapping = find_mapping(thread, address);
	if (!mapping || !mapping->file)
		return 0;
	file = (struct file *)mapping->file;
	inode = BPF_CORE_READ(file, f_inode);
	mapping->place.inode = BPF_CORE_READ(inode, i_ino);
	mapping->place.offset = mapping->offset + address - mapping->start;
	mapping->place.device = BPF_CORE_READ(inode, i_sb, s_dev);
	mapping->place.pid = bpf_get_current_pid_tgid() >> 32;
	return bpf_map_lookup_elem(&primed, &mapping->place);
}

static __always_inline u64 packed(const struct rt_arrival *arrival)
{
	return RT_ARRIVAL(arrival->kind, arrival->words);
}

/* A return address that is met for the first time. Not static, so that the verifier looks at it once. */
__noinline u64 first_arrival(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };
	struct rt_arrival *known = find_primed(address);

	if (!known) {
		ask_about(&key);
		return RT_ARRIVAL_ASKED;
	}
	bpf_map_update_elem(&arrivals, &key, known, BPF_NOEXIST);
	return packed(known);
}

static __always_inline u64 rt_known_arrival(const struct rt_hit *hit, u64 address)
{
	struct rt_arrival_key key = { .address = address, .space = hit->thread->space };
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &key);

	if (!known)
		return RT_UNKNOWN;
	if (known->kind == RT_ARRIVAL_DROPPED)
		known->words++;
	return packed(known);
}

static __always_inline u64 rt_first_arrival(const struct rt_hit *hit, u64 address)
{
	return first_arrival(address, hit->thread->space);
}

static __always_inline void rt_ask_for_site(const struct rt_hit *hit, u64 address)
{
	struct rt_arrival_key key = { .address = address, .space = hit->thread->space };

	if (ask(address, bpf_get_current_pid_tgid() >> 32, key.space, 0, 1))
		bpf_map_update_elem(&arrivals, &key, &asked, BPF_ANY);
}

static __always_inline u32 rt_is_known_tail(u32 from, u32 to)
{
	struct rt_tail_key key = { .from = from, .to = to };

	return bpf_map_lookup_elem(&tails, &key) != 0;
}

__noinline int count_untimed(u32 region, u32 reason)
{
	struct rt_untimed_key key = { .region = region, .reason = reason };

	count_in(&untimed, &key);
	return 0;
}

static __always_inline void rt_untimed(u32 region, u32 reason)
{
	count_untimed(region, reason);
}

/* Since when there is a return site again; 0: always. */
static __noinline u32 site_since(u32 site)
{
	struct rt_site_hits *hits = bpf_map_lookup_elem(&site_hits, &site);

	return hits ? hits->since : 0;
}

/* A hit of a return site, which began at that time. */
static __always_inline void count_site(u32 site, bool is_stepped, bool is_matched, u64 begin)
{
	struct rt_site_hits *hits = bpf_map_lookup_elem(&site_hits, &site);

	if (is_stepped)
		__sync_fetch_and_add(&stepped_returns, 1);
	if (!hits)
		return;
	if (is_matched) {
		if (hits->matched++ % TIMED_HITS == TIMED_HITS / 2)
			time_hit(begin, false);
		return;
	}
	__sync_fetch_and_add(&hits->unmatched, 1);
	/* Only a budget asks. */
	if (governed)
		__sync_fetch_and_add(&hits->spent, bpf_ktime_get_ns() - begin);
}

#endif
