/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Code that a process makes writable, and code again.
 *
 * Where a probe is, the kernel executes what the file holds. A program that changes its code would go on with what was
 * there before. It has to make the code writable first. Before that system call, or else in front of the lock of the
 * memory that it takes, the thread waits until user space is about to stop it behind the call. Where it cannot be stopped, it
 * waits until user space has taken the probes out. User space hears of the system call that ends this, too.
 */
#ifndef RTRACE_WRITER_H
#define RTRACE_WRITER_H

#include "arrival.bpf.h"

#define MPROTECT 10
#define PKEY_MPROTECT 329
#define PROT_WRITE 2
#define PROT_EXEC 4
#define VM_WRITE 2
#define VM_EXEC 4
#define MOST_MAPPINGS 16 /* that are looked at for one call */
/* Among the bits that are 0 in the address of a page. */
#define IS_CODE 1 /* a file's, to which the program cannot write */
#define IS_NO_CODE 2 /* also a file's: it can, or does not execute it */

/*
 * Where the mapping at an address ends, with what it is if it is a file's; 0: there is none. Not static, so that the
 * verifier looks at it once.
 */
__noinline u64 mapping_end(u64 address)
{
	struct rt_mapping mapping;

	if (!find_mapping(&mapping, address))
		return 0;
	if (!mapping.file)
		return mapping.end;
	return mapping.end | ((mapping.flags & (VM_EXEC | VM_WRITE)) == VM_EXEC ? IS_CODE : IS_NO_CODE);
}

static __always_inline bool has_such(u64 address, u64 end, u64 such)
{
	u64 next;
	int i;

	for (i = 0; i < MOST_MAPPINGS && address < end; i++) {
		next = mapping_end(address);
		if (!next || next & such)
			return next;
		address = next & ~(u64)(IS_CODE | IS_NO_CODE);
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
__noinline int change_code(u64 address, u64 length, bool is_sealed)
{
	struct rt_wait wait = { .writer = (u32)bpf_get_current_pid_tgid() };
	struct rt_code_change *change;
	u32 *has_probes, yes = 1;

	if (!has_such(address, address + length, is_sealed ? IS_NO_CODE : IS_CODE))
		return 0;
	bpf_map_update_elem(&writers, &wait.writer, &yes, BPF_ANY);
	change = bpf_ringbuf_reserve(&code_changes, sizeof(*change), 0);
	if (!change) {
		count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		return 0;
	}
	change->address = address;
	change->length = length;
	change->pid = current_process();
	change->thread = wait.writer;
	change->is_sealed = is_sealed;
	change->is_inherited = 0;
	bpf_ringbuf_submit(change, BPF_RB_FORCE_WAKEUP);
	/*
	 * Where all CPUs are taken by who waits, nobody gets an answer. Who waits for a site makes room: that costs a time
	 * at most, but to go on here with a probe in the code would change what the program does.
	 */
	if (!is_sealed && __sync_fetch_and_add(&writing, 1) < most_waiting) {
		wait_for(&for_writers, &wait, wait_for_writer_step);
		has_probes = bpf_map_lookup_elem(&writers, &wait.writer);
		see_answer(&for_writers, &wait, !has_probes || !*has_probes);
	}
	if (!is_sealed)
		__sync_fetch_and_sub(&writing, 1);
	return 0;
}

/*
 * The thread may be about to make code writable, or code of what is writable. What system call it is in is asked first:
 * before locks, most are others.
 */
static __always_inline void on_writer(bool is_second)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u32 pid, thread = task->pid;

	if ((regs->orig_ax != MPROTECT && regs->orig_ax != PKEY_MPROTECT) || !(regs->dx & (PROT_WRITE | PROT_EXEC)))
		return;
	pid = process_of(task);
	if (!bpf_map_lookup_elem(&traced, &pid) || (is_second && !bpf_map_delete_elem(&writers, &thread)))
		return;
	change_code(regs->di, regs->si, !(regs->dx & PROT_WRITE));
	if (is_second)
		bpf_map_delete_elem(&writers, &thread);
}

#endif
