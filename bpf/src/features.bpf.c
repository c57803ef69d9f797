// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that only count, to try out what the kernel can do. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "session.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

u64 enters;
u64 returns;

SEC("uprobe.session")
int count_session(struct pt_regs *ctx)
{
	if (is_return(ctx))
		__sync_fetch_and_add(&returns, 1);
	else
		__sync_fetch_and_add(&enters, 1);
	return 0;
}

SEC("uprobe.multi")
int count_multi_enter(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&enters, 1);
	return 0;
}

SEC("uretprobe.multi")
int count_multi_return(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&returns, 1);
	return 0;
}

SEC("uprobe")
int count_single_enter(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&enters, 1);
	return 0;
}

SEC("uretprobe")
int count_single_return(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&returns, 1);
	return 0;
}
