/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Begin and end of processes and threads, seen in the kernel so that nothing is missed between.
 *
 * Since Linux 7.0 a thread may be suspended while it is in a program of a tracepoint, and the kernel does not run that
 * program for another thread of this CPU meanwhile. So each of these is seen by two programs, and what the second one
 * does (`is_second`) has no effect where the first has run.
 */
#ifndef RTRACE_LIFECYCLE_H
#define RTRACE_LIFECYCLE_H

#include "hit.bpf.h"
#include "watch.bpf.h"

static __always_inline u32 new_space(void)
{
	return __sync_fetch_and_add(&last_space, 1) + 1;
}

/*
 * A child inherits the breakpoints with the memory of its parent, and no program of ours runs there before it has links
 * of its own. The kernel gives a thread a `utask` when it meets its first breakpoint, and takes it away when the thread
 * ends or executes a program. So what a child has called meanwhile is not known, but whether it can have called anything.
 */
static __always_inline void begin_unlinked(u32 parent, u32 child, struct task_struct *task)
{
	u32 *of_parent = bpf_map_lookup_elem(&unlinked, &parent);
	/* A program that the parent has executed has no breakpoints which a child could inherit. */
	u32 known = of_parent ? *of_parent & RT_UNLINKED_EXECUTED : 0;

	/* One that is inherited: the parent runs a function whose return is hooked. */
	if (BPF_CORE_READ(task, utask))
		known |= RT_UNLINKED_RAN;
	bpf_map_update_elem(&unlinked, &child, &known, BPF_ANY);
}

/* The thread ends, or is about to execute a program. */
static __always_inline void note_breakpoints(struct task_struct *task)
{
	u32 pid = process_of(task);
	u32 *known = bpf_map_lookup_elem(&unlinked, &pid);

	/* A program that was executed without links has no breakpoints. */
	if (!known || *known & RT_UNLINKED_EXECUTED)
		return;
	if (BPF_CORE_READ(task, utask) || (!sees_exit_coming && !BPF_CORE_READ(task, mm)))
		__sync_fetch_and_or(known, RT_UNLINKED_RAN);
}

static __always_inline void note_exec(u32 pid)
{
	u32 *known = bpf_map_lookup_elem(&unlinked, &pid);

	if (known)
		__sync_fetch_and_or(known, RT_UNLINKED_EXECUTED | (sees_exec_coming ? 0 : RT_UNLINKED_RAN));
}

static __always_inline void on_fork(struct task_struct *parent, struct task_struct *child, bool is_second)
{
	u32 pid = process_of(parent), child_pid = process_of(child);
	struct rt_process *process, copy;

	if (pid == child_pid)
		return;
	process = bpf_map_lookup_elem(&traced, &pid);
	if (!process)
		return;
	if (is_second && (!follow_children || bpf_map_lookup_elem(&traced, &child_pid)))
		return;
	if (follow_children) {
		copy.traced = process->traced;
		copy.executed = process->executed;
		copy.space = new_space();
		inherit_python(process->space, copy.space);
		begin_unlinked(pid, child_pid, child);
		if (bpf_map_update_elem(&traced, &child_pid, &copy, BPF_ANY) || !tell_process(child_pid, copy.space, pid))
			count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		else
			wait_for_child(child_pid);
	}
	emit_event(RT_EVENT_FORK, pid, thread_of(parent), child_pid);
}

/* Closes what runs on the current thread. */
static __always_inline struct rt_thread *abandon_calls(struct task_struct *task)
{
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	struct rt_hit hit = {};

	if (!thread)
		return 0;
	hit.thread = thread;
	hit.now = bpf_ktime_get_ns();
	hit.measured = read_counters(task, hit.now);
	if ((armed || closing) && !(rt_has_rows && !hit.measured))
		rt_abandon(&hit);
	thread->stack_size = 0;
	return thread;
}

/* The thread's life as a location is over. */
static __always_inline void end_location(struct task_struct *task)
{
	struct rt_thread *thread = abandon_calls(task);
	struct rt_location *location;
	u32 id;

	if (!thread)
		return;
	id = thread->location;
	location = bpf_map_lookup_elem(&locations, &id);
	if (location && !location->end) {
		location->calls = thread->calls;
		bpf_get_current_comm(location->comm, sizeof(location->comm));
		location->end = bpf_ktime_get_ns();
		emit_event(RT_EVENT_THREAD_END, process_of(task), thread_of(task), id);
	}
	bpf_map_delete_elem(&far_frames, &id);
	bpf_map_delete_elem(&left_calls, &id);
	forget_rows(task, id);
}

/* Nothing of the current process is recorded from here on, until it executes a program that may be. */
static __noinline void withhold(u32 executes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_process *process;
	u32 pid = process_of(task);

	end_location(task);
	bpf_task_storage_delete(&threads, task);
	process = bpf_map_lookup_elem(&traced, &pid);
	if (!process || process->traced == RT_TRACED_FROM_EXEC)
		return;
	process->traced = RT_TRACED_FROM_EXEC;
	emit_event(RT_EVENT_WITHHELD, pid, thread_of(task), executes);
}

/*
 * A thread that is not the first one takes the place of that, as which it goes on: to this the kernel knows no probes
 * of the process any more.
 */
static __always_inline void on_exec(struct task_struct *task, u32 old_tid, bool is_second)
{
	struct rt_thread *thread;
	u32 pid = process_of(task);
	struct rt_process *process;

	process = bpf_map_lookup_elem(&traced, &pid);
	if (!process || (is_second && process->executed == task->self_exec_id))
		return;
	process->executed = task->self_exec_id;
	note_exec(pid);
	process->traced = RT_TRACED;
	forget_python(process->space);
	process->space = new_space();
	forget_watchers(bpf_get_current_task_btf());
	if (!rt_may_observe())
		withhold(true);
	thread = abandon_calls(bpf_get_current_task_btf());
	if (thread)
		thread->space = process->space;
	/* The kernel gives the number that the thread has on the host. */
	if (old_tid != (u32)task->tgid && !tell_process(pid, process->space, pid))
		count_loss(RT_NO_REGION, RT_LOSS_EVENT);
	emit_execution(bpf_get_current_task_btf());
}

static __always_inline void on_task_exit(struct task_struct *task)
{
	struct rt_process *process;
	u32 pid = process_of(task);
	int code;

	/* Of a process that ends, threads may come here when its last one has already passed. */
	end_location(bpf_get_current_task_btf());
	note_breakpoints(bpf_get_current_task_btf());
	process = bpf_map_lookup_elem(&traced, &pid);
	if (!process)
		return;
	if (BPF_CORE_READ(task, signal, live.counter) > 0) {
		if (probes_of_first_thread && task->pid == task->tgid && !tell_process(pid, process->space, pid))
			count_loss(RT_NO_REGION, RT_LOSS_EVENT);
		return;
	}
	code = BPF_CORE_READ(task, signal, group_exit_code);
	if (!code)
		code = task->exit_code;
	forget_python(process->space);
	bpf_map_delete_elem(&traced, &pid);
	emit_event(RT_EVENT_EXIT, pid, thread_of(task), code);
}

#endif
