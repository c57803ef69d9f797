/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory of the shadow stack: one struct rt_thread per thread, one struct rt_far if it is deep. */
#ifndef RTRACE_FRAME_H
#define RTRACE_FRAME_H

#include "rtrace.h"

enum rt_stack_key {
	RT_STACK_UNKNOWN = 0,
	RT_STACK_SIGNAL = 1, /* inside the alternate signal stack */
	RT_STACK_OWN = 2, /* the stack that the thread began on */
	RT_STACK_OTHER = 0x80000000u, /* with the end of the mapping, in pages, in the low bits */
};

struct rt_frame {
	u64 start;
	u64 slot; /* address of the word that holds its return address */
	u64 word; /* what that word was at the enter; 0: not known */
	u64 id;
	u64 parent;
	u64 child;
	u32 region;
	u32 stack; /* enum rt_stack_key */
	u16 depth;
	u8 hooked; /* its return goes through the kernel's trampoline */
	u8 marked; /* a call that it made left as a record, so it must, too */
	u32 path; /* 0 without a profile */
};

struct rt_thread {
	u64 calls; /* ids given out */
	u64 stack_start; /* the mapping that the last hit's stack pointer lay in */
	u64 stack_size;
	u32 stack_key;
	u32 location;
	u32 frames; /* number of frames */
	u32 hooked; /* number of hooked frames */
	u32 unhooked; /* no return of this thread may be hooked */
	struct rt_callee last_root;
	struct rt_frame near[RT_FRAMES_NEAR];
};

struct rt_far {
	struct rt_frame frame[RT_FRAMES_FAR];
};

_Static_assert(sizeof(struct rt_thread) < 3920, "fits the largest small object of the kernel's BPF allocator");

#endif
