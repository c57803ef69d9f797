/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds out which part of the traced processes' CPU time is tracing: a clock on each CPU interrupts what runs there, and
 * the program looks whether that is a traced process, and whether it is at a breakpoint. What is not is the process's own.
 */
#ifndef RTRACE_CLOCK_H
#define RTRACE_CLOCK_H

#include "maps.bpf.h"

#define BREAKPOINT 0xcc /* int3, one byte */
#define BEHIND 8 /* bytes behind a breakpoint in which a thread still counts as being at it */
#define NOT_IN_CALL (~0ul) /* instead of the number of a system call, while a thread is in none */
#define NR_MMAP 9
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 32

/*
 * Whether the current thread maps a file: then the kernel places the file's probes, each in some 10 us. It does so even if
 * nothing is to be executed there, as the protection may change. To map a file without probes takes next to nothing.
 */
static __always_inline bool is_mapping_file(const struct pt_regs *regs)
{
	return regs->orig_ax == NR_MMAP && (regs->r10 & (MAP_PRIVATE | MAP_ANONYMOUS)) == MAP_PRIVATE;
}

/*
 * Whether the current thread is at a breakpoint, in the kernel or on its way back. While interrupts are off, which is
 * so at both ends of an exception, the clock has to wait: then it finds the thread behind the instruction.
 */
static __always_inline bool is_at_breakpoint(struct task_struct *task, const struct pt_regs *regs)
{
	struct uprobe_task *utask = BPF_CORE_READ(task, utask);
	u8 code[BEHIND + 1];

	/* Threads that have met no breakpoint have no `utask`. */
	if (!utask || regs->orig_ax != NOT_IN_CALL)
		return false;
	/* An instruction that is single-stepped runs elsewhere. */
	if (BPF_CORE_READ(utask, active_uprobe))
		return true;
	if (bpf_probe_read_user(code, sizeof(code), (void *)(regs->ip - BEHIND)))
		return false;
	for (u32 place = 0; place < sizeof(code); place++) {
		if (code[place] == BREAKPOINT)
			return true;
	}
	return false;
}

static __always_inline void on_tick(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u32 process = process_of(task);

	if (!armed || !bpf_map_lookup_elem(&traced, &process))
		return;
	__sync_fetch_and_add(&clock_ticks, 1);
	if (is_mapping_file(regs) || is_at_breakpoint(task, regs))
		__sync_fetch_and_add(&clock_ticks_of_tracing, 1);
}

#endif
