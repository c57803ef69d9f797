// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs that use no field of the kernel's types, so that they load at once: to read all its types takes
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

/* The rest is to try out what the kernel can do: it calls what the real programs cannot do without. */
u64 enters;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} steps SEC(".maps");

static long stop(void *table, u32 *step, u32 *entry, void *context)
{
	return 1;
}

static __always_inline void count(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 word;

	/* A kernel that is locked down for confidentiality does not have it. */
	bpf_probe_read_kernel(&word, sizeof(word), task);
	/* By a compiled program only. */
	bpf_for_each_map_elem(&steps, stop, 0, 0);
	__sync_fetch_and_add(&enters, 1 + bpf_get_attach_cookie(ctx));
}

SEC("?uprobe.multi")
int count_multi_enter(struct pt_regs *ctx)
{
	count(ctx);
	return 0;
}

SEC("?uprobe")
int count_single_enter(struct pt_regs *ctx)
{
	count(ctx);
	return 0;
}
