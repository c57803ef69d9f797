// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where processes spend CPU time. A clock on each CPU interrupts whatever runs there; the program notes where that
 * was. It changes nothing in the processes, and costs as much for many as for one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "ids.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The lowest bits of `cs` in code of a process. */
enum { USER_MODE = 3 };

/* Whether each sample has its time, so that it is known what was mapped then. */
const volatile u32 keeps_time;

/* The processes that are meant. */
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

/* Samples of places for which there was no room. */
u64 lost;

SEC("perf_event")
int note_place(struct bpf_perf_event_data *context)
{
	struct rt_place place = { .process = current_process() };
	u64 first = 1;
	u64 *count;

	if (!bpf_map_lookup_elem(&processes, &place.process))
		return 0;
	if ((context->regs.cs & USER_MODE) == USER_MODE)
		place.address = context->regs.ip;
	else
		place.in_kernel = 1;
	if (keeps_time)
		place.time = bpf_ktime_get_ns();
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
