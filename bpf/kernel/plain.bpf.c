// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs that name no type of the kernel's, so that they load at once: to read all its types takes
 * longer than what they are for.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

u64 hits;

SEC("?uprobe.multi")
int count_hits(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}

/* Kernels that let no program write registers refuse to load it. */
SEC("?uprobe.multi")
int write_register(struct pt_regs *ctx)
{
	ctx->ax = 0;
	return 0;
}

/* What a probe costs that does nothing. */
SEC("?uprobe.multi")
int nothing(struct pt_regs *ctx)
{
	return 0;
}
