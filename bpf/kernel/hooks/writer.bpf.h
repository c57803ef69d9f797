/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Code that a process makes writable.
 *
 * Where a probe is, the kernel executes what the file holds. A program that changes its code would go on with what was
 * there before. It has to make the code writable first. Before that system call, or else in front of the lock of the
 * memory that it takes, the thread waits until user space has taken the probes out. Any later would not do, as the
 * kernel writes breakpoints again where a mapping is split or merged.
 */
#ifndef RTRACE_WRITER_H
#define RTRACE_WRITER_H

#include "arrival.bpf.h"

#define MPROTECT 10
#define PKEY_MPROTECT 329
#define PROT_WRITE 2
#define VM_WRITE 2
#define VM_EXEC 4
#define MOST_MAPPINGS 16 /* that are looked at for one call */
#define IS_CODE 1 /* among the bits that are 0 in the address of a page */

/*
 * Where the mapping at an address ends, with IS_CODE if it is a file's code to which the program cannot write; 0: there
 * is none. Not static, so that the verifier looks at it once.
 */
__noinline u64 mapping_end(u64 address)
{
	struct rt_mapping mapping;

	if (!find_mapping(&mapping, address))
		return 0;
	return mapping.end | (mapping.file && (mapping.flags & (VM_EXEC | VM_WRITE)) == VM_EXEC ? IS_CODE : 0);
}

static __always_inline bool has_code(u64 address, u64 end)
{
	u64 next;
	int i;

	for (i = 0; i < MOST_MAPPINGS && address < end; i++) {
		next = mapping_end(address);
		if (!next || next & IS_CODE)
			return next;
		address = next;
	}
	return false;
}

static long wait_for_writer_step(u32 step, void *context)
{
	struct rt_wait *wait = context;
	u32 *has_probes = bpf_map_lookup_elem(&writers, &wait->writer);

	return !has_probes || !*has_probes || bpf_ktime_get_ns() > wait->until;
}

/* Not static, as above. */
__noinline int make_writable(u64 address, u64 length, u32 space)
{
	struct rt_wait wait = { .writer = (u32)bpf_get_current_pid_tgid() };
	struct rt_question *question;
	u32 *has_probes, yes = 1;

	if (!has_code(address, address + length))
		return 0;
	bpf_map_update_elem(&writers, &wait.writer, &yes, BPF_ANY);
	question = new_question(address, current_process(), space);
	if (!question) {
		count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		return 0;
	}
	question->kind = RT_QUESTION_WRITER;
	question->length = length;
	question->thread = wait.writer;
	bpf_ringbuf_submit(question, BPF_RB_FORCE_WAKEUP);
	/* Where all CPUs are taken by who waits, nobody gets an answer. */
	if (waiting < most_waiting) {
		wait_for(&for_writers, &wait, wait_for_writer_step);
		has_probes = bpf_map_lookup_elem(&writers, &wait.writer);
		see_answer(&for_writers, &wait, !has_probes || !*has_probes);
	}
	return 0;
}

/* The thread may be about to make code writable. What system call it is in is asked first: before locks, most are others. */
static __always_inline void on_writer(bool is_second)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u32 pid, thread = task->pid;
	struct rt_process *process;

	if ((regs->orig_ax != MPROTECT && regs->orig_ax != PKEY_MPROTECT) || !(regs->dx & PROT_WRITE))
		return;
	pid = process_of(task);
	process = bpf_map_lookup_elem(&traced, &pid);
	if (!process || (is_second && !bpf_map_delete_elem(&writers, &thread)))
		return;
	make_writable(regs->di, regs->si, process->space);
	if (is_second)
		bpf_map_delete_elem(&writers, &thread);
}

#endif
