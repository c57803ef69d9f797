/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory of the shadow stack: one struct rt_thread per thread, one struct rt_far if it is deep, one
 * struct rt_measured if its calls are counted. */
#ifndef RTRACE_FRAME_H
#define RTRACE_FRAME_H

#include "rtrace.h"

enum rt_stack_key {
	RT_STACK_UNKNOWN = 0,
	RT_STACK_SIGNAL = 1, /* inside the alternate signal stack */
	RT_STACK_OWN = 2, /* the stack that the thread began on */
	RT_STACK_SHARED = 3, /* the same, once a call has shown that other stacks lie in it */
	RT_STACK_OTHER = 0x80000000u, /* with the end of the mapping, in pages, in the low bits */
};

/* Who hands over the calls that run on a thread. */
enum rt_taken {
	RT_TAKEN_BY_NOBODY = 0,
	RT_TAKEN_BY_THREAD = 1, /* as it ends, or executes a program */
	RT_TAKEN_BY_READER = 2, /* of those that still run when recording is over */
};

struct rt_frame {
	u64 start;
	u64 slot; /* address of the word that holds its return address */
	u64 word; /* the return address; 0: it could not be read */
	u64 home; /* where its return is detected: `word`, unless its caller only returns from there */
	u64 id;
	u64 parent;
	u64 child;
	u32 region;
	u32 stack; /* enum rt_stack_key */
	u32 path; /* 0 without a profile */
	u16 depth;
	u16 rise; /* words from its slot up to the one that holds `home` */
	u8 policy; /* enum rt_policy */
	u8 tails; /* enum rt_tails */
	u8 doubt; /* why its return may go undetected: 1 + enum rt_untimed_reason; 0: it will not */
	u8 marked; /* a call that it made left as a record, so it must, too */
	u8 behind; /* enum rt_behind of its return address, and RT_BEHIND_LANDS also of its home */
	u8 overwritten; /* the return of a caller that only returns is hooked: the trampoline pushes registers below it */
	u8 opens; /* where calls are recorded only within some functions: it is a call of one of these */
	u8 overwrites; /* its function writes to the slot, which says nothing then */
};

/* What a process has mapped at an address. */
struct rt_mapping {
	u64 start;
	u64 end;
	u64 offset; /* in the file, in bytes */
	u64 file; /* struct file of the kernel; 0: none */
	u64 flags; /* VM_… of the kernel */
	struct rt_primed_key place; /* of the address, where it was asked for */
};

/* What is known of a return address: enum rt_arrival_kind, and the words of struct rt_arrival. */
#define RT_ARRIVAL(kind, words) ((u64)(words) << 32 | (kind))
#define RT_UNKNOWN (~0ull)

/* Where the first instruction of a function has faulted. */
struct rt_fault {
	u64 ip;
	u64 sp;
	u64 id; /* of the call; 0: it has no frame */
};

#define RT_FAULTS 4

/* The last ones of a thread, in no order: each may have come in the handler for another. */
struct rt_faults {
	struct rt_fault at[RT_FAULTS];
	u64 next;
};

struct rt_thread {
	u64 calls; /* ids given out */
	u64 left_places; /* bits for the slots of the frames in its struct rt_left, see rt_left_bits() */
	u64 stack_start; /* the mapping that the last hit's stack pointer lay in */
	u64 stack_size;
	u32 stack_key;
	u32 location;
	u32 space; /* number of its address space */
	u32 frames; /* number of frames */
	u32 left; /* number of frames that its struct rt_left was given so far */
	u32 taken; /* enum rt_taken */
	struct rt_mapping looked_up; /* here, as stacks are short in the kernel */
	struct rt_callee last_root;
	u64 entered_ip; /* the last hit of an entry probe */
	u64 entered_sp;
	u8 again; /* what is known of the next such hit, enum again */
	u8 shares_stack; /* other stacks lie in its own */
	u16 openers; /* number of frames that open */
	u32 switches; /* how often it had left a CPU when its vector registers were loaded last */
	struct rt_frame near[RT_FRAMES_NEAR];
};

struct rt_far {
	struct rt_frame frame[RT_FRAMES_FAR];
};

struct rt_row {
	u64 start[RT_COUNTERS];
	u64 child[RT_COUNTERS];
	struct rt_values values;
};

/* A call that was left without a return, as far as could be told then. */
struct rt_left_call {
	struct rt_frame frame;
	u64 left; /* when that was noticed */
	u64 later; /* time since then in callees that returned after all */
	u32 is_orphan; /* what seemed to be its caller has returned */
	u32 is_given; /* its caller has got its time until it was left */
	struct rt_row row;
	struct rt_reading readings[RT_COUNTERS]; /* until then */
};

/* The last calls of a thread that were left, in no order; an entry that is not in use has the id 0. */
struct rt_left {
	struct rt_left_call call[RT_LEFT_MAX];
};

/* A counter of a CPU as the kernel gives it: times tell how long it was wanted, and how long it ran. */
struct rt_raw {
	u64 count;
	u64 enabled;
	u64 running;
};

/* The counters of one thread. */
struct rt_measured {
	u64 now[RT_COUNTERS]; /* its counts at the hit under way */
	struct rt_reading readings[RT_COUNTERS]; /* of the call that ends in it */
	struct rt_values entering; /* of the call that enters in it, which others may end in first */
	u64 at_stub; /* the call that enters in it has come by a stub */
	u64 result; /* of the function that returns in it */
	u32 result_bits; /* those that are known of it, from the lowest on */
	u32 is_stored; /* memory may not be as that function left it */
	u32 unread; /* values that could not be read at the hit under way */
	u64 list; /* the address of a list that is added up at it */
	u64 sum;
	u64 frame_pointer; /* of the function that calls in it */
	/* Of counters that belong to a CPU: the counts when the thread last left one, */
	u64 total[RT_COUNTERS];
	/* and the counters of the CPU when it last came to one. */
	struct rt_raw came[RT_COUNTERS];
	u64 came_at;
	u64 switches; /* how often it had left a CPU then */
	u64 scheduled_zero; /* what the scheduler had accounted where our count of its time is 0 */
	u64 chunks; /* of rows beyond near */
	struct rt_row near[RT_ROWS_NEAR];
};

/* Keeps clang from merging two tests into one that the verifier does not understand. */
#define rt_apart(variable) asm volatile("" : "+r"(variable))

/* Whether frames have rows. */
#define rt_has_rows (rt_counters || rt_has_values)
/* Whether some calls have values, or all have contexts. */
#define rt_has_values (rt_words || rt_levels)
#define rt_for_counters(i) for (i = 0; i < RT_COUNTERS && i < rt_counters; i++)

/* A hit: where and when, and the thread it is on. */
struct rt_hit {
	struct rt_thread *thread;
	struct rt_far *far; /* may be null while no frame is deep */
	u64 slot;
	union {
		u64 word; /* the return address; 0: not known */
		u64 from; /* of a jump: the stack pointer before it; 0: it comes from the signal stack */
	};
	union {
		u32 region; /* of an enter */
		u32 since; /* of a return: when its probe was last taken out, as RT_SINCE_SHIFT tells it; 0: never */
	};
	/* Of a return: */
	u8 is_fixed; /* all calls that arrive there enter the same traced function */
	u8 only_returns; /* the code there only returns */
	u8 reach; /* words above a slot at which the stack pointer may be, and the slot be as it was */
	u8 is_final; /* of a jump: what lies between where it begins and ends cannot go on */
	u64 now; /* of an enter 0 until it is needed: its call begins as late as can be */
	u32 stack;
	struct rt_measured *measured; /* null while nothing is counted */
};

_Static_assert(sizeof(struct rt_thread) < 3920, "fits the largest small object of the kernel's BPF allocator");
_Static_assert(sizeof(struct rt_measured) < 3920, "fits the largest small object of the kernel's BPF allocator");

#endif
