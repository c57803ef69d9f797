// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Maps and entry points. An attach mechanism only turns a probe hit into on_enter(), on_return() or on_jump();
 * what happens then is the same for all of them (hit.bpf.h, stack.h, enter.h, returns.h, jump.h).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "ids.bpf.h"
#include "maps.bpf.h"
#include "loss.bpf.h"
#include "profile.bpf.h"
#include "emit.bpf.h"
#include "hit.bpf.h"
#include "lifecycle.bpf.h"
#include "open.bpf.h"
#include "clock.bpf.h"
#include "step.bpf.h"
#include "writer.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct no_programs {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
};

struct no_programs none SEC(".maps");

const volatile bool never;

/* Whether this kernel lets a program write the registers. */
const volatile bool may_step;

/*
 * Since Linux 6.13 a program's stack is one per CPU. Nothing keeps the kernel from switching to
 * another thread inside a uprobe's program, and if that runs the program too, both write to the
 * same stack. A program with a tail call, even one that is never reached, stays on the thread's.
 */
#define STAY_ON_OWN_STACK(ctx)                        \
	do {                                          \
		if (never)                            \
			bpf_tail_call(ctx, &none, 0); \
	} while (0)

/* A function is called that is traced, or leaves others without their return, or both. */
static __always_inline void enter_recorded(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 jump = cookie >> RT_COOKIE_JUMP & 3;
	struct rt_thread *thread = cookie >> RT_COOKIE_UNTRACED & 1 ? 0 : entering_thread(ctx, cookie);
	u64 begin = thread && enter_is_timed(thread) ? bpf_ktime_get_ns() : 0;

	if (thread && (cookie >> RT_COOKIE_POLICY & 3) == RT_POLICY_PLACE)
		on_place(ctx, thread, cookie);
	else if (thread)
		on_enter(ctx, thread, cookie);
	if (begin)
		time_hit(begin, true);
	if (jump)
		on_jump(ctx, jump);
}

static __always_inline void enter(struct pt_regs *ctx)
{
	if (is_recording())
		enter_recorded(ctx);
	else if (governed && window_is_open && !armed)
		count_entry((u32)bpf_get_attach_cookie(ctx));
}

SEC("uprobe.multi")
int rt_multi_enter(struct pt_regs *ctx)
{
	STAY_ON_OWN_STACK(ctx);
	enter(ctx);
	if (may_step)
		step(ctx);
	return 0;
}

SEC("uprobe.multi")
int rt_multi_return(struct pt_regs *ctx)
{
	STAY_ON_OWN_STACK(ctx);
	if (is_recording())
		on_return(ctx);
	return 0;
}

SEC("uprobe")
int rt_single_enter(struct pt_regs *ctx)
{
	STAY_ON_OWN_STACK(ctx);
	enter(ctx);
	return 0;
}

SEC("uprobe")
int rt_single_return(struct pt_regs *ctx)
{
	STAY_ON_OWN_STACK(ctx);
	if (is_recording())
		on_return(ctx);
	return 0;
}

#define WRITER(where, name, is_second)                                                                 \
	SEC(where)                                                                                     \
	int BPF_PROG(name)                                                                             \
	{                                                                                              \
		on_writer(is_second);                                                                  \
		return 0;                                                                              \
	}

/* Two of each, because the kernel may leave one out. */
#define LIFECYCLE(name, is_second)                                                                     \
	SEC("tp_btf/sched_process_fork")                                                               \
	int BPF_PROG(rt_fork##name, struct task_struct *parent, struct task_struct *child)             \
	{                                                                                              \
		on_fork(parent, child, is_second);                                                     \
		return 0;                                                                              \
	}                                                                                              \
	SEC("tp_btf/sched_process_exec")                                                               \
	int BPF_PROG(rt_exec##name, struct task_struct *task, int old_pid, struct linux_binprm *bprm)  \
	{                                                                                              \
		on_exec(task, old_pid, is_second);                                                     \
		return 0;                                                                              \
	}                                                                                              \
	SEC("tp_btf/sched_process_exit")                                                               \
	int BPF_PROG(rt_exit_task##name, struct task_struct *task)                                     \
	{                                                                                              \
		on_task_exit(task);                                                                    \
		return 0;                                                                              \
	}                                                                                              \
	SEC("tp_btf/signal_deliver")                                                                   \
	int BPF_PROG(rt_signal##name, int signal)                                                      \
	{                                                                                              \
		on_signal(signal);                                                                     \
		return 0;                                                                              \
	}                                                                                              \
	SEC("tp_btf/x86_fpu_regs_activated")                                                           \
	int BPF_PROG(rt_registers##name)                                                           \
	{                                                                                              \
		on_registers();                                                                    \
		return 0;                                                                              \
	}                                                                                          \
	WRITER("tp_btf/mmap_lock_start_locking", rt_lock##name, is_second)                             \
	WRITER("fentry/__x64_sys_mprotect", rt_mprotect##name, is_second)                              \
	WRITER("fentry/__x64_sys_pkey_mprotect", rt_pkey_mprotect##name, is_second)

LIFECYCLE(, false)
LIFECYCLE(_again, true)

/* Since Linux 6.10. */
SEC("tp_btf/sched_prepare_exec")
int BPF_PROG(rt_prepare_exec, struct task_struct *task, struct linux_binprm *bprm)
{
	note_breakpoints(bpf_get_current_task_btf());
	return 0;
}

SEC("tp_btf/sched_prepare_exec")
int BPF_PROG(rt_prepare_exec_again, struct task_struct *task, struct linux_binprm *bprm)
{
	note_breakpoints(bpf_get_current_task_btf());
	return 0;
}

/* Where there is no such tracepoint, and where a thread has lost its memory at that of its end. */
SEC("fentry/begin_new_exec")
int BPF_PROG(rt_begin_exec)
{
	note_breakpoints(bpf_get_current_task_btf());
	return 0;
}

SEC("fentry/exit_signals")
int BPF_PROG(rt_begin_exit)
{
	note_breakpoints(bpf_get_current_task_btf());
	return 0;
}

SEC("iter/task")
int rt_look_at(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task && process_of(task) == looked_at && BPF_CORE_READ(task, utask))
		has_met_breakpoint = 1;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(rt_switch, bool preempt, struct task_struct *leaving, struct task_struct *coming)
{
	on_switch(leaving, coming);
	return 0;
}

/* One for each variable: which one it is must be known in threads that inherited the event, too. */
#define WATCH(number)                                     \
	SEC("perf_event")                                 \
	int rt_access_##number(struct bpf_perf_event_data *ctx) \
	{                                                 \
		on_access(ctx, number);                   \
		return 0;                                 \
	}

WATCH(0)
WATCH(1)
WATCH(2)
WATCH(3)

SEC("perf_event")
int rt_tick(struct bpf_perf_event_data *ctx)
{
	on_tick();
	return 0;
}

SEC("iter/task")
int rt_open_calls(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;

	if (task)
		write_open_calls(seq, task);
	return 0;
}

/* Keeps types that no map or program names in the BTF, from which the Rust types are made. */
struct {
	struct rt_call call;
	struct rt_event event;
	struct rt_open_thread open;
	struct rt_open_call open_call;
	struct rt_path_key path_key;
	enum rt_cookie cookie;
	enum rt_return_cookie return_cookie;
	enum rt_policy policy;
	enum rt_tails tails;
	enum rt_jump jump;
	enum rt_arrival_kind arrival_kind;
	enum rt_behind behind;
	enum rt_untimed_reason untimed_reason;
	struct rt_question question;
	struct rt_code_change code_change;
	enum rt_step step;
	enum rt_loss loss;
	enum rt_limit limit;
	enum rt_stack_key stack_key;
	enum rt_traced traced;
	enum rt_unlinked unlinked;
	enum rt_count count;
	struct rt_reading reading;
	struct rt_call_count counted;
	struct rt_access access;
	enum rt_fetch_op fetch_op;
	enum rt_fetch_flag fetch_flag;
	struct rt_context context;
	struct rt_stack stack;
	struct rt_moment moment;
	enum rt_moment_kind moment_kind;
	enum rt_rule_kind rule_kind;
	enum rt_saved saved;
	enum rt_context_number context_number;
	enum rt_context_end context_end;
} unused_types SEC(".data.types");
