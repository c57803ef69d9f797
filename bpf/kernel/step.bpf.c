// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Tries whether the kernel lets a program do the probed instruction. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "step.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe.multi")
int step_enter(struct pt_regs *ctx)
{
	step(ctx);
	return 0;
}
