/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies of stacks, in which user space walks. */
#ifndef RTRACE_COPY_H
#define RTRACE_COPY_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define PAGE_BYTES 4096

/* Copies the pages of a stack from that of `sp` on. Returns a bit for each that could be read. */
static __always_inline u64 copy_stack(u8 *bytes, u64 sp)
{
	u64 start = sp & ~(u64)(PAGE_BYTES - 1), pages = 0;
	u32 i;

	for (i = 0; i < RT_STACK_PAGES; i++) {
		if (!bpf_probe_read_user(bytes + i * PAGE_BYTES, PAGE_BYTES, (void *)(start + i * PAGE_BYTES)))
			pages |= 1u << i;
	}
	return pages;
}

#endif
