/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loops whose steps the verifier looks at once. Before Linux 5.17 there is no bpf_loop(): there a table is gone
 * through that has as many entries as a loop has steps. The verifier goes one of the two ways only, as it knows which.
 */
#ifndef RTRACE_REPEAT_H
#define RTRACE_REPEAT_H

#include "maps.bpf.h"

enum bpf_func_id {
	BPF_FUNC_loop = 181,
};

#define HAS_LOOP bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)

/* The table of loops with this limit. User space makes it only where there is no bpf_loop(). */
#define STEPS(limit) ARRAY_MAP(steps_##limit, u32, limit)

STEPS(RT_FRAMES);
STEPS(RT_TAILS_MAX);

/* Does a step until it returns 1, and `count` times at most. Where not HAS_LOOP, the step has to look for the end itself. */
#define rt_repeat_some(limit, count, step, context)                          \
	do {                                                                 \
		if (HAS_LOOP)                                                \
			bpf_loop(count, step, context, 0);                   \
		else                                                         \
			bpf_for_each_map_elem(&steps_##limit, step, context, 0); \
	} while (0)

/* The same, `limit` times at most: an enumerator. */
#define rt_repeat(limit, step, context) rt_repeat_some(limit, limit, step, context)

/* What the kernel calls for a step: with its number and the context, or with a table, an entry and the context. */
typedef long rt_step_of(u64 first, u64 second, u64 third, u64 fourth);

/* Begins a step: a function of `u32 step, void *context`. The assembly keeps clang from reading what is not there. */
#define rt_step(name)                                                                \
	static __always_inline long name##_once(u32 step, void *context);            \
	static long name(u64 first, u64 second, u64 third, u64 fourth)               \
	{                                                                            \
		u64 context = second;                                                \
		u32 step = first;                                                    \
                                                                                     \
		if (!HAS_LOOP) {                                                     \
			step = *(u32 *)second;                                       \
			asm volatile("%0 = %1" : "=r"(context) : "r"(fourth));       \
		}                                                                    \
		return name##_once(step, (void *)context);                           \
	}                                                                            \
	static __always_inline long name##_once(u32 step, void *context)

#endif
