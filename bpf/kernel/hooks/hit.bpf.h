/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns a probe hit into an operation of the shadow stack: finds the thread, identifies its stack, drops
 * hits that nobody asked for.
 */
#ifndef RTRACE_HIT_H
#define RTRACE_HIT_H

#include "arrival.bpf.h"
#include "check.bpf.h"
#include "counter.bpf.h"
#include "fetch.bpf.h"
#include "governed.bpf.h"
#include "guard.bpf.h"
#include "repeat.bpf.h"

/* Not static: the verifier looks at such a function once. */
#define rt_rare __noinline

static __always_inline void rt_lost(u32 region, u32 reason)
{
	count_loss(region, reason);
}

static __noinline struct rt_far *rt_far(u32 create)
{
	struct rt_thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	u32 location, zero = 0;
	struct rt_far *far;

	if (!thread)
		return 0;
	location = thread->location;
	far = bpf_map_lookup_elem(&far_frames, &location);
	if (far || !create)
		return far;
	far = bpf_map_lookup_elem(&no_far_frames, &zero);
	if (!far)
		return 0;
	bpf_map_update_elem(&far_frames, &location, far, BPF_NOEXIST);
	return bpf_map_lookup_elem(&far_frames, &location);
}

static __noinline struct rt_left *rt_left(u32 create)
{
	struct rt_thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	u32 location, zero = 0;
	struct rt_left *left;

	if (!thread)
		return 0;
	location = thread->location;
	left = bpf_map_lookup_elem(&left_calls, &location);
	if (left || !create)
		return left;
	left = bpf_map_lookup_elem(&no_left_calls, &zero);
	if (!left)
		return 0;
	bpf_map_update_elem(&left_calls, &location, left, BPF_NOEXIST);
	return bpf_map_lookup_elem(&left_calls, &location);
}

static __always_inline int rt_read_slot(u64 slot, u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)slot) != 0;
}

static __always_inline u64 rt_now(void)
{
	return bpf_ktime_get_ns();
}

/*
 * The return trampoline is the start of an area that the kernel makes in the process when it first
 * needs it; until then a null pointer is read through, which gives 0.
 */
rt_rare u64 rt_trampoline(void)
{
	return BPF_CORE_READ(bpf_get_current_task_btf(), mm, uprobes_state.xol_area, vaddr);
}

#define HOOKED_MAX 64 /* returns of a task that the kernel hooks at a time */

/* Who hooks a return keeps the address that was in the slot. */
rt_rare u64 rt_replaced(u64 slot)
{
	struct return_instance *instance = BPF_CORE_READ(bpf_get_current_task_btf(), utask, return_instances);
	u64 stack;
	int i;

	for (i = 0; i < HOOKED_MAX && instance; i++) {
		/* The kernel notes the stack pointer at the entry, where it points to the slot. */
		stack = BPF_CORE_READ(instance, stack);
		if (stack == slot) {
			u64 address = BPF_CORE_READ(instance, orig_ret_vaddr);

			/* A tail call hooks the trampoline itself. */
			if (address != rt_trampoline())
				return address;
		} else if (stack > slot) {
			break;
		}
		instance = BPF_CORE_READ(instance, next);
	}
	return 0;
}

static __always_inline struct rt_measured *rt_measured(void)
{
	return rt_has_rows ? bpf_task_storage_get(&counted_threads, bpf_get_current_task_btf(), 0, 0) : 0;
}

#include "context.bpf.h"
#include "foreign.bpf.h"
#include "enter.h"
#include "fault.bpf.h"
#include "jump.h"

static __noinline void withhold(u32 executes);

/* Whether something is recorded of the current process now. Asked first of all, because stacks are short. */
static __always_inline bool is_recording(void)
{
	if (!armed)
		return false;
	if (!guarded || rt_may_observe())
		return true;
	withhold(false);
	return false;
}

/*
 * Which stack the address lies on. A thread's own stack is the mapping that holds its thread
 * control block, for a main thread the one that holds the initial stack.
 */
rt_rare u32 find_stack(u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_thread *thread = rt_thread();
	struct rt_mapping *mapping;
	u64 own;

	if (!thread)
		return RT_STACK_UNKNOWN;
	mapping = &thread->looked_up;
	if (!find_mapping(mapping, sp))
		return RT_STACK_UNKNOWN;
	own = task->pid == task->tgid ? BPF_CORE_READ(task, mm, start_stack) : task->thread.fsbase;
	thread->stack_start = mapping->start;
	thread->stack_size = mapping->end - mapping->start;
	thread->stack_key = own >= mapping->start && own <= mapping->end ? rt_own_stack(thread) :
									   RT_STACK_OTHER | (u32)(mapping->end >> 12);
	return thread->stack_key;
}

static __always_inline u32 stack_key(struct rt_thread *thread, struct task_struct *task, u64 sp)
{
	u64 signal_size = task->sas_ss_size;

	if (signal_size && sp - task->sas_ss_sp < signal_size)
		return RT_STACK_SIGNAL;
	if (sp - thread->stack_start < thread->stack_size)
		return thread->stack_key;
	return find_stack(sp);
}

/* The process of a thread that has no location yet; null: its calls are not to be recorded. */
static __always_inline struct rt_process *recorded_process(struct task_struct *task)
{
	u32 pid = process_of(task);
	struct rt_process *process = bpf_map_lookup_elem(&traced, &pid);

	return process && process->traced != RT_TRACED_FROM_EXEC ? process : 0;
}

/* The first hit of a thread gives it a location. If there is no room for it, the call is lost. */
static __noinline struct rt_thread *new_thread(struct task_struct *task, const struct rt_process *process, u32 region)
{
	struct rt_location location = {};
	struct rt_thread *thread;
	u32 id;

	thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread || !new_counted(task)) {
		bpf_task_storage_delete(&threads, task);
		count_loss(region, RT_LOSS_NO_MEMORY);
		return 0;
	}
	id = __sync_fetch_and_add(&last_location, 1) + 1;
	location.start = task->start_time;
	location.pid = process_of(task);
	location.tid = thread_of(task);
	bpf_get_current_comm(location.comm, sizeof(location.comm));
	if (bpf_map_update_elem(&locations, &id, &location, BPF_ANY)) {
		bpf_task_storage_delete(&threads, task);
		count_loss(region, RT_LOSS_TOO_MANY_LOCATIONS);
		return 0;
	}
	thread->location = id;
	thread->space = process->space;
	thread->switches = switches_of(task);
	return thread;
}

static __always_inline struct rt_thread *located_thread(struct task_struct *task, u32 region)
{
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	const struct rt_process *process;

	if (thread)
		return thread;
	process = recorded_process(task);
	return process ? new_thread(task, process, region) : 0;
}

/* Where the return address is, at a site to which the function may have moved the stack pointer. */
static __always_inline u64 slot_at(const struct pt_regs *ctx, u64 cookie)
{
	return ctx->sp + (cookie >> RT_COOKIE_STEP & 3 ? 0 : (cookie >> RT_COOKIE_DEPTH) * sizeof(u64));
}

/* What hits at returns and jumps have in common; `cookie`: a return site's, or 0. Returns whether a thread has calls. */
static __always_inline bool begin_return(struct pt_regs *ctx, struct rt_hit *hit, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);

	if (!thread || (!thread->frames && !thread->left))
		return false;
	hit->measured = read_counters(task, hit->now);
	if (rt_has_rows && !hit->measured)
		return false;
	if (rt_words)
		see_result(ctx, hit->measured, cookie);
	hit->thread = thread;
	hit->stack = stack_key(thread, task, hit->slot);
	return true;
}

#define JMP_BUF_SP 6 /* word of the C library's jmp_buf that holds the stack pointer */
#define JMP_BUF_TURN 17 /* bits by which that is turned, once the guard is mixed in */
#define POINTER_GUARD 0x30 /* where the guard is in the thread control block */
#define CONTEXT_CFA 18 /* word of GCC's unwinding context that holds the stack pointer of its function */

/* The stack pointer after the jump; 0: it cannot be read. */
static __always_inline u64 jump_target(const struct pt_regs *ctx, u32 kind)
{
	u64 control_block = bpf_get_current_task_btf()->thread.fsbase, sp, guard;

	if (kind == RT_JUMP_UNWIND)
		return rt_read_slot(ctx->di + CONTEXT_CFA * sizeof(u64), &sp) ? 0 : sp;
	if (rt_read_slot(ctx->di + JMP_BUF_SP * sizeof(u64), &sp) ||
	    rt_read_slot(control_block + POINTER_GUARD, &guard))
		return 0;
	return (sp >> JMP_BUF_TURN | sp << (64 - JMP_BUF_TURN)) ^ guard;
}

/*
 * Makes a hit on the stack before a jump one on the stack after it. Returns whether it is known what the jump
 * leaves: it is none to another stack, except from a signal handler's. A longjmp to another stack may go up in
 * the same mapping, where stacks share one.
 */
static __always_inline bool aim_jump(struct rt_hit *hit, u32 kind, u64 target)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct rt_thread *thread = hit->thread;
	u64 start = thread->stack_start, size = thread->stack_size;

	hit->from = hit->slot;
	if (hit->stack == RT_STACK_SIGNAL) {
		start = task->sas_ss_sp;
		size = task->sas_ss_size;
		if (target - start >= size) {
			hit->from = 0;
			hit->stack = stack_key(hit->thread, task, target);
			start = thread->stack_start;
			size = thread->stack_size;
		}
	} else if (hit->slot - start >= size) {
		return false;
	}
	if (target % sizeof(u64) || target < hit->from || target - start >= size)
		return false;
	if (!rt_is_ordered(hit->stack) && (kind == RT_JUMP_LONGJMP || !hit->from))
		return false;
	hit->slot = target - sizeof(u64);
	hit->is_final = kind == RT_JUMP_UNWIND && hit->from;
	return true;
}

/* Control is about to leave functions without their return, by a function that has just been called. */
static __noinline void on_jump(struct pt_regs *ctx, u32 kind)
{
	struct rt_hit hit = { .now = rt_now(), .slot = ctx->sp };

	if (begin_return(ctx, &hit, 0) && aim_jump(&hit, kind, jump_target(ctx, kind)))
		rt_jump(&hit);
}

static __always_inline u32 rt_is_outside(const struct rt_thread *thread, u32 region)
{
	if (!rt_within || (thread && thread->openers) || rt_opens(region))
		return 0;
	count_loss(region, RT_LOSS_OUTSIDE);
	return 1;
}

/*
 * The thread of a call that is to be recorded, which gets a location with its first one; null: it is not, or there is
 * no room for it. Apart, because stacks are short.
 */
static __noinline struct rt_thread *entering_thread(const struct pt_regs *ctx, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct rt_process *process = 0;
	struct rt_thread *thread;

	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (!thread) {
		process = recorded_process(task);
		if (!process)
			return 0;
	} else if (is_entered_again(ctx, thread, (u32)cookie)) {
		return 0;
	}
	if (governed && !is_recorded(cookie))
		return 0;
	count_entry((u32)cookie);
	if (rt_is_outside(thread, (u32)cookie))
		return 0;
	if (thread)
		return thread;
	thread = new_thread(task, process, (u32)cookie);
	if (thread)
		is_entered_again(ctx, thread, (u32)cookie);
	return thread;
}

/* What hits at entries and places have in common; `slot`: that of the call. Returns whether there is one. */
static __always_inline bool begin_enter(struct pt_regs *ctx, struct rt_hit *hit, u64 slot, u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();

	hit->region = (u32)cookie;
	hit->slot = slot;
	hit->stack = stack_key(hit->thread, task, slot);
	if (!rt_has_rows)
		return true;
	if (rt_counters)
		hit->now = rt_now();
	hit->measured = read_counters(task, hit->now);
	if (!hit->measured)
		return false;
	if (rt_words) {
		hit->measured->at_stub = cookie >> RT_COOKIE_STUB & 1;
		fetch_at_entry(ctx, hit);
	}
	if (rt_levels)
		hit->measured->frame_pointer = ctx->bp;
	return true;
}

/* A traced function enters. Apart, because stacks are short. */
static __noinline void on_enter(struct pt_regs *ctx, struct rt_thread *thread, u64 cookie)
{
	struct rt_hit hit = { .thread = thread };

	if (!begin_enter(ctx, &hit, slot_at(ctx, cookie), cookie))
		return;
	rt_enter(&hit, cookie >> RT_COOKIE_POLICY & 3, cookie >> RT_COOKIE_TAILS & 3, cookie >> RT_COOKIE_LAPS & 1,
		 cookie >> RT_COOKIE_POPS & 1 ? popped(hit.region) : 0);
	act_at_enter(&hit.region);
}

#define HALF_SLOT 4

/*
 * Control comes to a place within a function: a call there that has no return. No return address is at the stack
 * pointer, so it gets half a slot of its own: below all frames that run, and above those that are over. Apart, because
 * stacks are short.
 */
static __noinline void on_place(struct pt_regs *ctx, struct rt_thread *thread, u64 cookie)
{
	struct rt_hit hit = { .thread = thread };
	struct rt_frame *caller;

	if (!begin_enter(ctx, &hit, ctx->sp - HALF_SLOT, cookie))
		return;
	/* As if the nop were a call. */
	hit.word = ctx->ip + 1;
	caller = rt_caller(&hit);
	if (rt_is_outside(thread, hit.region))
		return;
	if (rt_levels)
		rt_see_context(&hit, caller);
	thread->calls++;
	rt_pass(&hit, caller);
	act_at_enter(&hit.region);
}

#define RED_ZONE 16 /* words below the stack pointer that signal handlers leave alone */

/* A hit of a return site: control is behind a call instruction, or a known way behind it. */
static __always_inline void on_return(struct pt_regs *ctx)
{
	u64 cookie, begin = rt_now();
	struct rt_hit hit = { .now = begin };
	__s64 words;
	u32 ended;

	cookie = bpf_get_attach_cookie(ctx);
	hit.since = site_since((u32)cookie);
	words = (__s64)cookie >> RT_RETURN_WORDS;
	hit.word = ctx->ip - (cookie >> RT_RETURN_DISTANCE & 0xff);
	hit.slot = ctx->sp - words * (__s64)sizeof(u64) - sizeof(u64);
	hit.is_fixed = cookie >> RT_RETURN_FIXED & 1;
	hit.only_returns = cookie >> RT_RETURN_ONLY & 1;
	hit.reach = words >= 0 && words < RED_ZONE ? RED_ZONE - words : 0;
	if (has_foreign_calls)
		end_foreign(hit.slot);
	ended = begin_return(ctx, &hit, cookie) && rt_return(&hit);
	count_site((u32)cookie, cookie >> RT_RETURN_STEPPED & 1, ended, begin);
}

#endif
