/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbers of processes and threads, as user space knows them: in a container these are not the host's.
 */
#ifndef RTRACE_IDS_H
#define RTRACE_IDS_H

#define DEEPEST_NAMESPACE 32 /* as the kernel has it */

/* The number of user space's namespace of process IDs; 0 where that is the host's. */
const volatile u32 id_namespace;

/* The number of a process or thread in that namespace; 0 if it is not in there. */
static __noinline u32 id_in_namespace(struct pid *pid)
{
	u32 deepest = BPF_CORE_READ(pid, level);
	struct upid *number = &pid->numbers[0];

	for (u32 level = 0; level < DEEPEST_NAMESPACE && level <= deepest; level++) {
		if (BPF_CORE_READ(number, ns, ns.inum) == id_namespace)
			return BPF_CORE_READ(number, nr);
		number = (struct upid *)((char *)number + bpf_core_type_size(struct upid));
	}
	return 0;
}

static __always_inline u32 process_of(struct task_struct *task)
{
	return id_namespace ? id_in_namespace(BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID])) : task->tgid;
}

static __always_inline u32 thread_of(struct task_struct *task)
{
	return id_namespace ? id_in_namespace(BPF_CORE_READ(task, thread_pid)) : task->pid;
}

static __always_inline u32 current_process(void)
{
	return process_of(bpf_get_current_task_btf());
}

#endif
