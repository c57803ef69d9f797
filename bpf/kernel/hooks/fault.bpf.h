/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * First instructions that fault, and are executed again.
 *
 * Where the first instruction of a function faults, and the handler of the signal repairs the cause and returns, the
 * same call hits the entry probe once more. The handler may also jump elsewhere, and another call come to the same
 * place. So two observations tell the hit from a call: the signal came where the last hit was, and its handler has
 * returned to there.
 *
 * No tracepoint tells that a handler returns. But as it does, the kernel loads the vector registers, last of all, and
 * of this there is one. It loads them as well for a thread that comes to a CPU, which shows in the number of switches.
 */
#ifndef RTRACE_FAULT_H
#define RTRACE_FAULT_H

#include "check.bpf.h"
#include "counter.bpf.h"
#include "loss.bpf.h"

/* The signals by which the kernel tells of an instruction that it could not finish. */
#define FAULTS (1 << SIGILL | 1 << SIGTRAP | 1 << SIGBUS | 1 << SIGFPE | 1 << SIGSEGV)

/* Whether a thread is about to execute a first instruction again. */
enum again {
	AGAIN_NOT = 0,
	AGAIN_MAYBE = 1,
	AGAIN_SURELY = 2,
};

static __always_inline struct rt_faults *faults_of(struct task_struct *task, u64 flags)
{
	return bpf_task_storage_get(&faulted, task, 0, flags);
}

/* The fault of a first instruction there; RT_FAULTS: none is known. */
static __always_inline u32 find_fault(const struct rt_faults *faults, u64 ip, u64 sp)
{
	u32 i;

	for (i = 0; i < RT_FAULTS; i++) {
		if (faults->at[i].ip == ip && faults->at[i].sp == sp)
			break;
	}
	return i;
}

/* A handler of the signal is about to run. */
static __always_inline void on_signal(int signal)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	const struct pt_regs *regs;
	struct rt_faults *faults;
	u32 place;

	if (!thread || signal > SIGSEGV || !(FAULTS >> signal & 1))
		return;
	regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	if (regs->ip != thread->entered_ip || regs->sp != thread->entered_sp)
		return;
	faults = faults_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!faults)
		return;
	place = find_fault(faults, regs->ip, regs->sp);
	if (place == RT_FAULTS)
		place = faults->next++ % RT_FAULTS;
	if (place >= RT_FAULTS)
		return;
	faults->at[place].ip = thread->entered_ip;
	faults->at[place].sp = thread->entered_sp;
	faults->at[place].id = rt_search_older(thread->calls, thread->frames) == RT_NONE ? 0 : thread->calls;
	thread->again = sees_registers ? AGAIN_NOT : AGAIN_MAYBE;
}

/* The vector registers of a thread have been loaded: it continues where its other registers say. */
static __always_inline void on_registers(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	u32 switches = switches_of(task), is_sure;
	const struct pt_regs *regs;
	struct rt_faults *faults;

	if (!thread)
		return;
	/* Else it has been away since. */
	is_sure = thread->switches == switches;
	thread->switches = switches;
	faults = faults_of(task, 0);
	if (!faults)
		return;
	regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	if (find_fault(faults, regs->ip, regs->sp) == RT_FAULTS)
		return;
	if (is_sure)
		thread->again = AGAIN_SURELY;
	else if (!thread->again)
		thread->again = AGAIN_MAYBE;
}

/*
 * Whether the hit is of a call that was hit before, and whose first instruction is executed again. Where that is as
 * likely as another call, it is none, but counts as lost.
 */
static __noinline bool is_entered_again(const struct pt_regs *ctx, struct rt_thread *thread, u32 region)
{
	u32 again = thread->again, place;
	struct rt_faults *faults;
	u64 id;

	thread->entered_ip = ctx->ip;
	thread->entered_sp = ctx->sp;
	if (!again)
		return false;
	thread->again = AGAIN_NOT;
	faults = faults_of(bpf_get_current_task_btf(), 0);
	if (!faults)
		return false;
	place = find_fault(faults, ctx->ip, ctx->sp);
	if (place >= RT_FAULTS)
		return false;
	id = faults->at[place].id;
	/* A jump over it was seen. */
	if (id && rt_search_older(id, thread->frames) == RT_NONE)
		return false;
	if (again == AGAIN_MAYBE) {
		count_entry(region);
		count_loss(region, RT_LOSS_MAYBE_LAP);
	}
	return true;
}

#endif
