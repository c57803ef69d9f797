/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Everything the programs share with each other and with user space. */
#ifndef RTRACE_MAPS_H
#define RTRACE_MAPS_H

#include "frame.h"

/* A table whose entries are taken as they come; its keys are any. */
#define HASH_MAP(map_name, key_type, value_type, most)                                                                 \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, most);                                                                             \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} map_name SEC(".maps")

/* Values by number. */
#define ARRAY_MAP(map_name, value_type, most)                                                                          \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, most);                                                                             \
		__type(key, u32);                                                                                      \
		__type(value, value_type);                                                                             \
	} map_name SEC(".maps")

/* A value of each thread, which ends with it. */
#define THREAD_MAP(map_name, value_type)                                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                                               \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, int);                                                                                      \
		__type(value, value_type);                                                                             \
	} map_name SEC(".maps")

/* Set before loading. */
const volatile bool follow_children;

/* Whether probes belong to the first thread of a process, and go with it. */
const volatile bool probes_of_first_thread;

/* Whether an exec is seen before it replaces the memory of the process. */
const volatile bool sees_exec_coming;

/* Whether the end of a thread is seen before it leaves the memory of the process. */
const volatile bool sees_exit_coming;

/* Whether it is seen that the vector registers of a thread are loaded. */
const volatile bool sees_registers;

const volatile u32 rt_counters;

/* Words of values in the record of a call whose region has a program; 0: none has. */
const volatile u32 rt_words;

/* Return addresses of a context at most; 0: calls have none. */
const volatile u32 rt_levels;

const volatile u32 counter_sources[RT_COUNTERS]; /* enum rt_count */

/* Counters of this place and after are of watched variables. */
const volatile u32 first_watch;
const volatile u32 watch_sizes[RT_WATCHES]; /* bytes: 1, 2, 4 or 8 */
const volatile bool watch_values[RT_WATCHES]; /* whether values are recorded */

/* Whether calls are folded by call path. */
const volatile bool profiled;

/* Where calls are folded, those of at least this duration leave as records, too. */
const volatile u64 written_from;

/* Threads that may wait for sites at a time: user space runs on a CPU that is left. 0: nobody waits for any answer. */
const volatile u32 most_waiting;

/* Whether regions can be throttled. */
const volatile bool governed;

/* Sums by which each CPU counts entries, a power of two: a region's is its id, modulo this number. */
const volatile u32 entry_sums = RT_CHECKED;

/* Live switch: nothing is recorded while 0. */
volatile u32 armed;

/*
 * Whether only those processes are recorded that this user could ptrace, of these permitted capabilities. Set once
 * the programs have been tried on rtrace itself.
 */
volatile u32 guarded;
volatile u32 guard_user;
volatile u32 guard_group;
volatile u64 guard_capabilities;

/* Whether contexts are looked for: there is somebody who answers. */
volatile u32 walking_stacks;

/* Recording is over; threads that end hand over their calls, until the reader of open frames has come to them. */
volatile u32 closing;

/* Whether the reader of open frames takes them for good. */
volatile u32 open_is_last;

/* First frame that the reader of open frames hands over in this pass. */
volatile u32 open_first;

/* Whether calls of throttled regions are counted now; before recording begins: those of all. */
volatile u32 window_is_open;


/* Whether calls are recorded only within those of functions that open. Set as `guarded`. */
volatile u32 rt_within;

/* The process whose threads are looked at, and whether one of them has met a breakpoint. */
volatile u32 looked_at;
volatile u32 has_met_breakpoint;

/* Whether a call ran on a stack that is not its thread's own. */
volatile u32 has_foreign_calls;

u32 counts_used;
u32 last_location;
u32 last_space;

/* Hits of return sites that the kernel single-stepped. */
u64 stepped_returns;

/* How often the clocks of the CPUs found traced processes, and of these, at a breakpoint (clock.bpf.h). */
u64 clock_ticks;
u64 clock_ticks_of_tracing;

/* How long threads wait for user space. */
struct rt_patience {
	u64 longest; /* nanoseconds */
	u64 until; /* before that nobody waits */
	u64 pause; /* for so long nobody will after the next answer that is late */
};

/* For the probe at a return address, which mostly comes within a tenth of a millisecond. */
struct rt_patience for_sites;
/* Until user space has stopped a child; 0: nobody does. */
struct rt_patience for_children;
/* Until user space is about to stop who makes code writable; 0: nobody does. */
struct rt_patience for_writers;
/* Until user space has looked for an interpreter of Python, or has room for contexts. */
struct rt_patience for_contexts;
/* Threads that wait now, and of these, those that make code writable. */
volatile u32 waiting;
volatile u32 writing;
/* Nanoseconds that threads have waited for answers. */
u64 waited;

/* Entries of `paths` in use or used before; the first is not one. */
u32 last_path;
/* How often a counter could not be read, or had not run all the time that it was wanted. */
volatile u64 estimates[RT_COUNTERS];

/* How often each watched variable was seen to be accessed, by whatever thread. */
volatile u64 accesses_seen[RT_WATCHES];

/* By process id. */
HASH_MAP(traced, u32, struct rt_process, 1 << 16);

/* By process id: the children of which user space has not heard yet, or that get their probes just now. */
HASH_MAP(unlinked, u32, u32, 1 << 16); /* enum rt_unlinked */

/* By thread that makes code writable: whether it has to wait. */
HASH_MAP(writers, u32, u32, 1 << 16);

/*
 * What is known of the return addresses that were met. The kernel clears two words for each entry that such a
 * table may have: half a million take it 6 ms.
 */
HASH_MAP(arrivals, struct rt_arrival_key, struct rt_arrival, 1 << 19);

/* Where in a file they were when they were met: another may be mapped there since. */
HASH_MAP(arrival_places, struct rt_arrival_key, struct rt_primed_key, 1 << 19);

/* What is known of return addresses before they are met. */
HASH_MAP(primed, struct rt_primed_key, struct rt_arrival, 1 << 18);

/* Return addresses of which nothing is known. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} questions SEC(".maps");

/* What threads are about to do to code. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} code_changes SEC(".maps");

/* By return site. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rt_site_hits);
} site_hits SEC(".maps");

/*
 * Where functions end in known tail calls; with RT_NO_REGION: how many words they take off the stack as they return; with
 * RT_OPENS: calls within theirs are recorded; with RT_ANYWHERE: they may jump to any.
 */
HASH_MAP(tails, struct rt_tail_key, u32, 1 << 19);

HASH_MAP(untimed, struct rt_untimed_key, u64, 1 << 18);

THREAD_MAP(threads, struct rt_thread);

/* Of threads in which a first instruction has faulted. */
THREAD_MAP(faulted, struct rt_faults);

struct rt_foreign_key {
	u64 slot; /* from which the call returns */
	u32 process;
	u32 reserved;
};

struct rt_foreign {
	u64 id; /* of the oldest of the calls that return from there */
	u32 location;
	u32 has_ended; /* on another thread */
};

HASH_MAP(foreign_calls, struct rt_foreign_key, struct rt_foreign, 1 << 16);

/* By location. Not in task storage: there Linux 7 finds no memory for more than 8 KiB. */
HASH_MAP(far_frames, u32, struct rt_far, 1 << 16);

/* What a new entry of far_frames is copied from. */
ARRAY_MAP(no_far_frames, struct rt_far, 1);

/* By location. */
HASH_MAP(left_calls, u32, struct rt_left, 1 << 16);

/* What a new entry of left_calls is copied from. */
ARRAY_MAP(no_left_calls, struct rt_left, 1);

THREAD_MAP(counted_threads, struct rt_measured);

/* Lists that are read when a call returns, until its record is written. */
struct rt_lists {
	u64 word[RT_LISTED];
};

THREAD_MAP(lists, struct rt_lists);

/* The list that a call found when it began. */
struct rt_kept {
	u64 serial; /* of all lists of the thread */
	u64 bytes;
	u8 byte[RT_KEPT + sizeof(u64)]; /* the last element can be read as a word */
};

THREAD_MAP(kept_lists, struct rt_kept);

struct rt_chunk_key {
	u32 location;
	u32 chunk;
};

struct rt_chunk {
	struct rt_row row[RT_ROWS_CHUNK];
};

HASH_MAP(far_rows, struct rt_chunk_key, struct rt_chunk, 1 << 16);

/* What a new entry of far_rows is copied from. */
ARRAY_MAP(no_far_rows, struct rt_chunk, 1);

/* RT_COUNTERS for each CPU; the number of CPUs is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, RT_COUNTERS);
	__type(key, u32);
	__type(value, u32);
} counter_events SEC(".maps");

HASH_MAP(locations, u32, struct rt_location, 1 << 16);

HASH_MAP(losses, struct rt_loss_key, u64, 1 << 16);

/* `entry_sums` for each CPU; their number is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_CHECKED);
	__type(key, u32);
	__type(value, u64);
} entries_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rt_hit_times);
} hit_times SEC(".maps");

/* By region, where governed: nanoseconds that a hit costs while the region is throttled; 0: it is not. */
ARRAY_MAP(throttled, u32, 1);

/* Nanoseconds that the hits of throttled regions cost so far, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} throttled_cost SEC(".maps");

/*
 * What is counted of throttled regions, from the first entry on. User space reads this many times a second; a walk
 * through the buckets of a hash table would take milliseconds, and the caches of what is traced.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rt_call_count);
} counts SEC(".maps");

/* Where a thread's calls of a region are among them. */
HASH_MAP(count_places, struct rt_counted_key, u32, 1);

/* Those whose thread has ended, to be used again. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_counts SEC(".maps");

/* By path id; their number is set before loading. */
ARRAY_MAP(paths, struct rt_path, 1);

/* By path id, where calls are counted, too. */
ARRAY_MAP(path_counts, struct rt_path_counts, 1);

HASH_MAP(path_ids, struct rt_path_key, u32, 1);

/* Ids whose location has ended, to be used again. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_paths SEC(".maps");

struct call_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* One ring per CPU; sizes and the number of CPUs are set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct call_ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* The performance event by which a thread reports its accesses to a variable, or its parent. */
struct watcher {
	u64 address; /* of the variable */
	u64 event;
};

struct watchers {
	struct watcher of[RT_WATCHES];
};

THREAD_MAP(watching, struct watchers);

/* Its size is set before loading where values are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} accesses SEC(".maps");

/* The running thread, if it was hit before. */
static __always_inline struct rt_thread *rt_thread(void)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
}

#endif
