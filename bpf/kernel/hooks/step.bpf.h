/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The probed instruction, done by the program itself: the kernel then steps over it.
 *
 * A kernel that lets a program write the registers goes on where the program says, and a single step
 * costs several times as much as all else. The cookie of a site tells which instruction stands there.
 * It is left to the kernel wherever it might not come out the same, or somebody else might notice.
 */
#ifndef RTRACE_STEP_H
#define RTRACE_STEP_H

#include "flags.h"

#define USER_CODE 0x33 /* code segment of 64-bit programs */
#define PAGE_OFFSET 0xfff
#define USER_BITS 47 /* of an address in a program, but for those that ask for more */
#define SHADOW_STACK 1 /* of the features of a thread */
#define LANDING_LENGTH 4
#define SHORT_FRAME 128 /* bytes from which the instruction that makes a frame has a longer form */

/*
 * Whether ours is the only consumer of the probe: others would see registers that were written, and
 * hook the return at another place of the stack. One that comes now is not called for this hit, as it
 * is put in front of those called already; nor is one behind us that is out of the list now. One that
 * was called before us and went meanwhile has not written if it asks the same, as it was not alone.
 */
static __noinline bool is_alone(void)
{
	struct bpf_uprobe_multi_run_ctx *run = (void *)bpf_get_current_task_btf()->bpf_ctx;
	struct bpf_uprobe *probe = BPF_CORE_READ(run, uprobe);
	void *neighbours[2];

	return !bpf_core_read(neighbours, sizeof(neighbours), &probe->consumer.cons_node) &&
	       neighbours[0] == neighbours[1];
}

static __always_inline bool has_shadow_stack(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return bpf_core_field_exists(task->thread.features) && task->thread.features & SHADOW_STACK;
}

/* Takes the return address off the stack and goes there. */
static __always_inline void step_return(struct pt_regs *ctx)
{
	u64 target;

	if (has_shadow_stack() || bpf_probe_read_user(&target, sizeof(target), (void *)ctx->sp))
		return;
	/* The processor has a fault for an address that is none. An unmoved ip would be stepped again. */
	if (target >> USER_BITS || target == ctx->ip)
		return;
	ctx->sp += sizeof(u64);
	ctx->ip = target;
}

static __always_inline void step_frame(struct pt_regs *ctx, u64 size)
{
	ctx->flags = flags_after_sub(ctx->flags, ctx->sp, size);
	ctx->sp -= size;
	ctx->ip += size < SHORT_FRAME ? 4 : 7;
}

/* Does the instruction. */
static __noinline void step(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 kind = cookie >> RT_COOKIE_STEP & 3;

	/* Another program that asks nobody may have moved ip. */
	if (kind == RT_STEP_BY_KERNEL || (ctx->ip & PAGE_OFFSET) != cookie >> RT_COOKIE_PLACE)
		return;
	/* A debugger that steps is told of each instruction by the processor. */
	if (ctx->cs != USER_CODE || ctx->flags & FLAG_TRAP || !is_alone())
		return;
	if (kind == RT_STEP_LANDING)
		ctx->ip += LANDING_LENGTH;
	else if (kind == RT_STEP_RETURN)
		step_return(ctx);
	else
		step_frame(ctx, (cookie >> RT_COOKIE_FRAME & 0xff) * sizeof(u64));
}

#endif
