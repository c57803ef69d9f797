// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where processes spend CPU time. A clock on each CPU interrupts whatever runs there; the program notes where that
 * was. It changes nothing in the processes, and costs as much for many as for one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "copy.bpf.h"
#include "ids.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The lowest bits of `cs` in code of a process. */
enum { USER_MODE = 3 };

/* Whether each sample has its time, so that it is known what was mapped then. */
const volatile u32 keeps_time;

/* Whether each has its stack, too. */
const volatile u32 keeps_stacks;

/* Whether children of the processes are meant, too, and what these start. */
const volatile u32 with_children;

/* The processes that are meant; of their children, those that were met. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8);
} processes SEC(".maps");

/* How often the clock found each place. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct rt_place);
	__type(value, u64);
} places SEC(".maps");

/* Samples with their stacks. Its size is set before loading where these are kept. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} stacks SEC(".maps");

/* Samples of places for which there was no room. */
u64 lost;

static __always_inline int note_stack(struct bpf_perf_event_data *context, const struct rt_place *place)
{
	struct rt_sampled *sampled = bpf_ringbuf_reserve(&stacks, sizeof(*sampled), 0);

	if (!sampled) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	sampled->place = *place;
	if (place->in_kernel) {
		const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

		/* Read as memory: else clang reads both kinds of registers by one instruction, which the verifier refuses. */
		bpf_probe_read_kernel(&sampled->ip, sizeof(u64), &regs->ip);
		bpf_probe_read_kernel(&sampled->sp, sizeof(u64), &regs->sp);
		bpf_probe_read_kernel(&sampled->bp, sizeof(u64), &regs->bp);
	} else {
		sampled->ip = context->regs.ip;
		sampled->sp = context->regs.sp;
		sampled->bp = context->regs.bp;
	}
	sampled->start = sampled->sp & ~(u64)(PAGE_BYTES - 1);
	sampled->pages = copy_stack(sampled->bytes, sampled->sp);
	bpf_ringbuf_submit(sampled, BPF_RB_NO_WAKEUP);
	return 0;
}

#define GENERATIONS 16

/* Whether the running process is meant. A child whose parent has ended is somebody else's, unless it was met before. */
static __noinline bool is_meant(u32 process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u8 yes = 1;

	if (bpf_map_lookup_elem(&processes, &process))
		return true;
	for (int i = 0; with_children && i < GENERATIONS; i++) {
		u32 parent;

		task = BPF_CORE_READ(task, real_parent);
		parent = id_namespace ? id_in_namespace(BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID])) :
					BPF_CORE_READ(task, tgid);
		if (bpf_map_lookup_elem(&processes, &parent))
			return !bpf_map_update_elem(&processes, &process, &yes, BPF_ANY);
		if (parent <= 1)
			break;
	}
	return false;
}

SEC("perf_event")
int note_place(struct bpf_perf_event_data *context)
{
	struct rt_place place = { .process = current_process() };
	u64 first = 1;
	u64 *count;

	if (!is_meant(place.process))
		return 0;
	if ((context->regs.cs & USER_MODE) == USER_MODE)
		place.address = context->regs.ip;
	else
		place.in_kernel = 1;
	if (keeps_time)
		place.time = bpf_ktime_get_ns();
	if (keeps_stacks)
		return note_stack(context, &place);
	/* Another CPU may add the place between a look and the update: then the second look finds it. */
	for (int attempt = 0; attempt < 2; attempt++) {
		count = bpf_map_lookup_elem(&places, &place);
		if (count) {
			__sync_fetch_and_add(count, 1);
			return 0;
		}
		if (!bpf_map_update_elem(&places, &place, &first, BPF_NOEXIST))
			return 0;
	}
	__sync_fetch_and_add(&lost, 1);
	return 0;
}
