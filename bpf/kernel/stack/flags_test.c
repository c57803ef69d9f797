/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The arithmetic of the flags for the tests in user space. */
#include "rtrace.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

typedef _Bool bool;

#include "flags.h"

u64 rt_test_flags_after_sub(u64 flags, u64 from, u64 what);

u64 rt_test_flags_after_sub(u64 flags, u64 from, u64 what)
{
	return flags_after_sub(flags, from, what);
}
