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

/* int3, which the kernel writes where there is a probe. */
#define RT_BREAKPOINT 0xcc

/* A record for user space, its kind and its place not filled in; null if there is no room. Not on the stack. */
static __always_inline struct rt_question *new_question(u64 address, u32 pid, u32 space)
{
	struct rt_question *question = bpf_ringbuf_reserve(&questions, sizeof(*question), 0);

	if (!question)
		return 0;
	__builtin_memset(question, 0, sizeof(*question));
	question->address = address;
	question->time = bpf_ktime_get_ns();
	question->pid = pid;
	question->space = space;
	return question;
}

/* A process was forked by another one, or has lost its probes itself. Returns whether user space will hear of it. */
static __always_inline bool tell_process(u32 pid, u32 space, u32 parent)
{
	struct rt_question *question = new_question(0, pid, space);

	if (!question)
		return false;
	question->parent = parent;
	bpf_ringbuf_submit(question, BPF_RB_FORCE_WAKEUP);
	return true;
}

/* The same for an address that the running process has met; `place`: null if it is not known. */
static __always_inline bool tell_address(const struct rt_arrival_key *key, const struct rt_primed_key *place,
					 enum rt_question_kind kind)
{
	struct rt_question *question = new_question(key->address, current_process(), key->space);

	if (!question)
		return false;
	question->kind = kind;
	if (place)
		question->place = *place;
	/* The reader sleeps on behind what can wait, so that all else has to wake it. */
	bpf_ringbuf_submit(question, kind == RT_QUESTION_NONE ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
	return true;
}

#define MOST_PAUSED 16 /* times as long as one waits, nobody does after answers that did not come */
#define MOST_STEPS (1 << 23) /* of a loop, as the kernel has it */
#define MOST_LOOPS 16 /* one after another: a single one may be over before the longest wait is */

#define ASKED_SHIFT 20 /* nanoseconds by which the time of asking is told */
#define LONGEST_ASKED 16 /* in that unit: later, nobody waits for the answer any more */

/*
 * Asks user space about a return address, once; `flags`: BPF_NOEXIST where nothing may be known of it. What user space
 * answers comes after what is written here.
 */
static __always_inline void ask_about(const struct rt_arrival_key *key, const struct rt_primed_key *place,
				      enum rt_question_kind kind, u64 flags)
{
	struct rt_arrival asked = { .kind = RT_ARRIVAL_ASKED, .words = bpf_ktime_get_ns() >> ASKED_SHIFT };

	if (bpf_map_update_elem(&arrivals, key, &asked, flags))
		return;
	/* Else the next call from there asks again. */
	if (!tell_address(key, place, kind))
		bpf_map_delete_elem(&arrivals, key);
}

/* The place in a file that is mapped at the address; null if there is none. */
static __always_inline struct rt_primed_key *find_place(u64 address)
{
	struct rt_thread *thread = rt_thread();
	struct rt_mapping *mapping;
	struct inode *inode;
	struct file *file;

	if (!thread)
		return 0;
	mapping = &thread->looked_up;
	if (!find_mapping(mapping, address) || !mapping->file)
		return 0;
	file = (struct file *)mapping->file;
	inode = BPF_CORE_READ(file, f_inode);
	mapping->place.inode = BPF_CORE_READ(inode, i_ino);
	mapping->place.offset = mapping->offset + address - mapping->start;
	mapping->place.device = BPF_CORE_READ(inode, i_sb, s_dev);
	mapping->place.pid = current_process();
	return &mapping->place;
}

static __always_inline u64 packed(const struct rt_arrival *arrival)
{
	return RT_ARRIVAL(arrival->kind, arrival->words);
}

struct rt_wait {
	union {
		struct rt_arrival_key key;
		u32 child;
		u32 writer;
		u32 space;
	};
	u64 until;
};

/* Nobody waits for some time where two answers were too late; twice as long each time that the next one is, too. */
static __always_inline void see_answer(struct rt_patience *patience, struct rt_wait *wait, bool has_come)
{
	u64 pause = patience->pause, now = bpf_ktime_get_ns();

	if (has_come)
		patience->pause = 0;
	if (has_come || !wait->until || now < wait->until)
		return;
	patience->until = now + pause;
	if (pause < patience->longest * MOST_PAUSED)
		patience->pause = pause ? 2 * pause : patience->longest;
}

/* Waits for user space as long as the step says so. */
static __always_inline void wait_for(struct rt_patience *patience, struct rt_wait *wait, long (*step)(u32, void *))
{
	u64 begin = bpf_ktime_get_ns();
	int i;

	wait->until = 0;
	if (!most_waiting || !patience->longest || begin < patience->until)
		return;
	wait->until = begin + patience->longest;
	__sync_fetch_and_add(&waiting, 1);
	for (i = 0; i < MOST_LOOPS; i++)
		if (bpf_loop(MOST_STEPS, step, wait, 0) != MOST_STEPS)
			break;
	__sync_fetch_and_sub(&waiting, 1);
	__sync_fetch_and_add(&waited, bpf_ktime_get_ns() - begin);
}

/*
 * Who waits for a site leaves a CPU to user space, and to who waits for a child: without a site a time is missing, and
 * without the probes of a child its calls.
 */
static long wait_for_site_step(u32 step, void *context)
{
	struct rt_wait *wait = context;
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &wait->key);

	return !known || known->kind != RT_ARRIVAL_ASKED || bpf_ktime_get_ns() > wait->until ||
	       waiting > most_waiting;
}

/*
 * What is known of a return address about which user space is asked. The thread waits for the answer, so that the call
 * does not return before its probe is in place; not where user space is busy with something else, or takes longer. Not
 * static, so that the verifier looks at it once.
 */
__noinline u64 answer(u64 address, u32 space)
{
	struct rt_wait wait = { .key = { .address = address, .space = space } };
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &wait.key);

	if (known && known->kind == RT_ARRIVAL_ASKED && waiting < most_waiting &&
	    (u32)(bpf_ktime_get_ns() >> ASKED_SHIFT) - known->words < LONGEST_ASKED) {
		wait_for(&for_sites, &wait, wait_for_site_step);
		known = bpf_map_lookup_elem(&arrivals, &wait.key);
		see_answer(&for_sites, &wait, !known || known->kind != RT_ARRIVAL_ASKED);
	}
	return known ? packed(known) : RT_ARRIVAL_ASKED;
}

static __always_inline bool is_answered(volatile u32 *known)
{
	return !known || *known & RT_UNLINKED_ANSWERED;
}

static long wait_for_child_step(u32 step, void *context)
{
	struct rt_wait *wait = context;

	return is_answered(bpf_map_lookup_elem(&unlinked, &wait->child)) || bpf_ktime_get_ns() > wait->until;
}

/* User space is to stop a child that was forked. */
static __always_inline bool tell_child(u32 child)
{
	struct rt_code_change *change = bpf_ringbuf_reserve(&code_changes, sizeof(*change), 0);

	if (!change)
		return false;
	__builtin_memset(change, 0, sizeof(*change));
	change->pid = child;
	change->thread = child;
	change->is_inherited = 1;
	bpf_ringbuf_submit(change, BPF_RB_FORCE_WAKEUP);
	return true;
}

/*
 * A child was forked, which runs once the current thread goes on. This one waits until user space has told the kernel to
 * stop the child before that executes anything: it stays stopped until it has its probes.
 */
__noinline int wait_for_child(u32 child)
{
	struct rt_wait wait = { .child = child };
	u32 *known;

	if (most_waiting && for_children.longest && tell_child(child))
		wait_for(&for_children, &wait, wait_for_child_step);
	known = bpf_map_lookup_elem(&unlinked, &child);
	see_answer(&for_children, &wait, is_answered(known));
	if (known && !is_answered(known))
		__sync_fetch_and_or(known, RT_UNLINKED_FREE);
	return 0;
}

/* A return address that is met for the first time. Not static, as above. */
__noinline u64 first_arrival(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };
	struct rt_primed_key *place = find_place(address);
	struct rt_arrival *known = place ? bpf_map_lookup_elem(&primed, place) : 0;

	/* What is there could be replaced unseen, if there is no room for its place. */
	if (place && bpf_map_update_elem(&arrival_places, &key, place, BPF_ANY))
		return RT_ARRIVAL_ASKED;
	if (!known) {
		ask_about(&key, place, RT_QUESTION_ARRIVAL, BPF_NOEXIST);
		return RT_ARRIVAL_ASKED;
	}
	if (!bpf_map_update_elem(&arrivals, &key, known, BPF_NOEXIST))
		tell_address(&key, place, RT_QUESTION_NONE);
	return packed(known);
}

/*
 * Whether another file, or none, is mapped at a return address than when it was met: what is known of it is forgotten
 * then, and the next call from there asks. Not static, as above.
 */
__noinline u32 is_replaced(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };
	struct rt_primed_key *met = bpf_map_lookup_elem(&arrival_places, &key);
	struct rt_primed_key *place = met ? find_place(address) : 0;

	if (!met)
		return 0;
	if (place && place->inode == met->inode && place->offset == met->offset && place->device == met->device)
		return 0;
	bpf_map_delete_elem(&arrivals, &key);
	return 1;
}

/*
 * Whether the probe that detects returns to an address is not in memory any more: the program has written over it, has
 * dropped its copy of the page, or has unmapped the file. What cannot be read is not there either. Not static, as above.
 */
__noinline u32 has_vanished(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &key);
	u8 byte = 0;

	if (!known || known->kind != RT_ARRIVAL_PLACED || known->distance == RT_NO_PROBE)
		return 0;
	bpf_probe_read_user(&byte, sizeof(byte), (void *)(address + known->distance));
	return byte != RT_BREAKPOINT;
}

/* A return address whose probe cost too much, from which calls have come often enough since. */
__noinline int missed_arrival(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };

	ask_about(&key, 0, RT_QUESTION_ARRIVAL, BPF_ANY);
	return 0;
}

static __always_inline u64 rt_known_arrival(const struct rt_hit *hit, u64 address)
{
	struct rt_arrival_key key = { .address = address, .space = hit->thread->space };
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &key);

	if (!known)
		return RT_UNKNOWN;
	/* One that several threads count at once may be counted less often; none goes below 0. */
	if (known->kind == RT_ARRIVAL_DROPPED && known->words && !--known->words) {
		missed_arrival(address, key.space);
		return RT_ARRIVAL_ASKED;
	}
	return packed(known);
}

static __always_inline u64 rt_first_arrival(const struct rt_hit *hit, u64 address)
{
	return first_arrival(address, hit->thread->space);
}

static __always_inline u64 rt_answer(const struct rt_hit *hit, u64 address)
{
	return answer(address, hit->thread->space);
}

static __always_inline u32 rt_is_replaced(const struct rt_hit *hit, u64 address)
{
	return is_replaced(address, hit->thread->space);
}

static __always_inline u32 rt_has_vanished(const struct rt_hit *hit, u64 address)
{
	return has_vanished(address, hit->thread->space);
}

static __always_inline void rt_ask_for_site(const struct rt_hit *hit, u64 address)
{
	struct rt_arrival_key key = { .address = address, .space = hit->thread->space };

	ask_about(&key, 0, RT_QUESTION_SITE, BPF_ANY);
}

/* Not static, so that the verifier looks at it once. */
__noinline int ask_for_interim(u64 address, u32 space)
{
	struct rt_arrival_key key = { .address = address, .space = space };
	struct rt_arrival *known = bpf_map_lookup_elem(&arrivals, &key);

	if (known && known->kind == RT_ARRIVAL_SKIP && tell_address(&key, 0, RT_QUESTION_INTERIM))
		known->words |= 1u << RT_SKIP_ASKED_BIT;
	return 0;
}

static __always_inline void rt_ask_for_interim(const struct rt_hit *hit, u64 address)
{
	ask_for_interim(address, hit->thread->space);
}

static __always_inline u32 rt_is_known_tail(u32 from, u32 to)
{
	struct rt_tail_key key = { .from = from, .to = to };

	return bpf_map_lookup_elem(&tails, &key) != 0;
}

/* What is known of how a region returns: the words that it takes off the stack, and RT_POPS_…. Not static, as above. */
__noinline u32 popped(u32 region)
{
	struct rt_tail_key key = { .from = region, .to = RT_NO_REGION };
	u32 *words = bpf_map_lookup_elem(&tails, &key);

	return words ? *words : 0;
}

__noinline u32 rt_opens(u32 region)
{
	struct rt_tail_key key = { .from = region, .to = RT_OPENS };

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

/* When the probe of a return site that is there again was taken out; 0: never. */
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
