/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The context of a call: the return addresses of untraced functions between the call and the traced one around it, or
 * the end of the stack.
 *
 * Code is compiled without frame pointers, so how a frame is left for its caller must be known for each return
 * address. User space knows it from the unwind tables of the file that is mapped there. The kernel side keeps the
 * rules of the addresses that were met. Where it has none, it hands the rest of the stack to user space, which goes on
 * with the walk and answers with the rules, so that such an address is met once. Each context that was not there
 * before leaves once and gets a number, by which calls name it.
 */
#ifndef RTRACE_CONTEXT_H
#define RTRACE_CONTEXT_H

#include "arrival.bpf.h"
#include "copy.bpf.h"
#include "loss.bpf.h"
#include "python.bpf.h"

#define MIX_HIGH 0xc2b2ae3d27d4eb4full

/* By address of a return, and address space. Its size is set before loading where contexts are recorded. */
HASH_MAP(rules, struct rt_arrival_key, struct rt_rule, 1);

/* Numbers of the contexts that left. Its size is set before loading, too. */
HASH_MAP(context_ids, struct rt_context_key, u32, 1);

/* The same holds for it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} contexts SEC(".maps");

/* The walk under way on a thread: stacks are short in the kernel, and a CPU may change the thread. */
struct walking {
	struct rt_context context;
	u64 limit; /* slot of the traced function around the call; 0: there is none on this stack */
	u64 low; /* of struct rt_context_key */
	u64 high;
	u32 asked; /* the last address space in which the thread has asked for an interpreter */
	struct python_walk python;
};

THREAD_MAP(walks, struct walking);

/* Where nobody can foresee what contexts are known by. */
const volatile u64 context_seed;

/* The last number given out. */
u32 last_context = RT_CONTEXT_FIRST - 1;

static __always_inline void mix(struct walking *walk, u64 address)
{
	walk->low = (walk->low ^ address) * MIX_LOW;
	walk->low ^= walk->low >> 29;
	walk->high = (walk->high + address) * MIX_HIGH;
	walk->high ^= walk->high >> 32;
}

static __always_inline void push_address(struct walking *walk, u64 address)
{
	u32 count = walk->context.count;

	if (count >= RT_LEVELS)
		return;
	rt_apart(count);
	if (count >= RT_LEVELS)
		return;
	walk->context.address[count] = address;
	walk->context.count = count + 1;
	mix(walk, address);
}

/* Notes whether the frame up to that stack pointer is the interpreter's. */
static __always_inline void see_interpreter(struct walking *walk, u64 sp)
{
	struct rt_context *at = &walk->context;
	u32 passed = at->passed, place = at->count;
	u64 call = walk->python.calls[passed & (PYTHON_CALLS - 1)];

	if (passed >= walk->python.call_count || call >= sp || call < at->sp || place > RT_LEVELS)
		return;
	at->interprets[place / 64 & (RT_LEVELS / 32 - 1)] |= 1ull << place % 64;
	at->passed = passed + 1;
}

/* What is known of the code that the walk returns to. */
static __always_inline struct rt_rule *find_rule(struct walking *walk)
{
	struct rt_arrival_key key = { .address = walk->context.word, .space = walk->context.space };
	struct rt_rule *rule = bpf_map_lookup_elem(&rules, &key);

	if ((rule && rule->kind != RT_RULE_NONE) || key.address != rt_trampoline())
		return rule;
	/* Somebody hooks the return. */
	walk->context.word = key.address = rt_replaced(walk->context.sp - sizeof(u64));
	return bpf_map_lookup_elem(&rules, &key);
}

/* The stack pointer in the caller; 0: it is not known. */
static __always_inline u64 caller_stack(const struct rt_context *at, const struct rt_rule *rule)
{
	u64 word;

	if (rule->kind == RT_RULE_STACK)
		return at->sp + rule->offset;
	if (!at->has_bp)
		return 0;
	if (rule->kind == RT_RULE_FRAME)
		return at->bp + rule->offset;
	return rt_read_slot(at->bp + rule->offset, &word) ? 0 : word;
}

/* The frame pointer in the caller, where the function has changed it. */
static __always_inline void restore_frame(struct rt_context *at, const struct rt_rule *rule, u64 sp)
{
	u64 base = rule->saved == RT_SAVED_BY_STACK ? sp : at->bp;

	if (rule->saved == RT_SAVED_NOWHERE)
		at->has_bp = 0;
	else if (rule->saved != RT_SAVED_UNTOUCHED)
		at->has_bp = (rule->saved == RT_SAVED_BY_STACK || at->has_bp) &&
			     !rt_read_slot(base + rule->saved_at, &at->bp);
}

/* One frame further up. Returns enum rt_context_end where the walk is over, else RT_CONTEXT_GOES_ON. */
static __always_inline u32 step_up(struct walking *walk, u32 is_last)
{
	struct rt_context *at = &walk->context;
	const struct rt_rule *rule = find_rule(walk);
	u64 sp, word;

	if (at->entered)
		push_address(walk, at->word);
	at->entered = 1;
	if (!rule)
		return RT_CONTEXT_ASKED;
	if (rule->kind >= RT_RULE_OUTERMOST) {
		if (rule->kind != RT_RULE_OUTERMOST)
			return rule->kind == RT_RULE_SIGNAL ? RT_CONTEXT_SIGNAL : RT_CONTEXT_UNDESCRIBED;
		return walk->limit ? RT_CONTEXT_BROKEN : RT_CONTEXT_COMPLETE;
	}
	sp = caller_stack(at, rule);
	if (!sp)
		return at->has_bp ? RT_CONTEXT_UNREADABLE : RT_CONTEXT_UNDESCRIBED;
	if (sp <= at->sp || sp % sizeof(u64))
		return RT_CONTEXT_BROKEN;
	see_interpreter(walk, sp);
	if (walk->limit && sp - sizeof(u64) >= walk->limit)
		return sp - sizeof(u64) == walk->limit ? RT_CONTEXT_COMPLETE : RT_CONTEXT_BROKEN;
	if (rt_read_slot(sp - sizeof(u64), &word))
		return RT_CONTEXT_UNREADABLE;
	restore_frame(at, rule, sp);
	at->sp = sp;
	at->word = word;
	if (!word)
		return walk->limit ? RT_CONTEXT_BROKEN : RT_CONTEXT_COMPLETE;
	return is_last ? RT_CONTEXT_CUT : RT_CONTEXT_GOES_ON;
}

STEPS(RT_PYTHON_FRAMES);

rt_step(mix_step)
{
	struct walking *walk = *(struct walking **)context;
	const struct rt_python_frame *frame = &walk->context.python[step & (RT_PYTHON_FRAMES - 1)];

	if (!HAS_LOOP && step >= walk->context.frames)
		return 1;
	/* Where a variable of the interpreter is makes no difference. */
	mix(walk, frame->code);
	if (frame->code)
		mix(walk, frame->key);
	return 0;
}

/* It has an end: it is last where `step` is `rt_levels`. */
rt_step(walk_step)
{
	struct walking *walk = *(struct walking **)context;

	walk->context.end = step_up(walk, step >= rt_levels);
	return walk->context.end != RT_CONTEXT_GOES_ON;
}

/* Copies the stack from where the walk is. Returns whether user space gets it. */
static __noinline u32 hand_over_stack(struct walking *walk)
{
	struct rt_stack *copy;

	if (!walk)
		return 0;
	copy = bpf_ringbuf_reserve(&contexts, sizeof(*copy), 0);
	if (!copy)
		return 0;
	bpf_probe_read_kernel(&copy->context, sizeof(copy->context), &walk->context);
	copy->limit = walk->limit;
	copy->start = walk->context.sp & ~(u64)(PAGE_BYTES - 1);
	copy->pages = copy_stack(copy->bytes, walk->context.sp);
	bpf_ringbuf_submit(copy, 0);
	return 1;
}

/* A copy of a stack with the header that the kernel puts in front of a record. */
#define MOST_RECORD_BYTES (sizeof(struct rt_stack) + sizeof(u64))

static __always_inline bool has_room(void)
{
	return bpf_ringbuf_query(&contexts, BPF_RB_AVAIL_DATA) + MOST_RECORD_BYTES <=
	       bpf_ringbuf_query(&contexts, BPF_RB_RING_SIZE);
}

static long wait_for_room_step(u32 step, void *context)
{
	struct rt_wait *wait = context;

	return has_room() || bpf_ktime_get_ns() > wait->until || waiting > most_waiting;
}

/*
 * While the rules of a place are looked up, all calls from there hand over their stacks. Where user space does not keep up,
 * they wait for it rather than to have no context. Not static, so that the verifier looks at it once.
 */
__noinline int make_room(void)
{
	struct rt_wait wait = {};

	if (has_room() || waiting >= most_waiting)
		return 0;
	wait_for(&for_contexts, &wait, wait_for_room_step);
	see_answer(&for_contexts, &wait, has_room());
	return 0;
}

#define CONTEXT_SIZE(count) (__builtin_offsetof(struct rt_context, address) + (count) * sizeof(u64))

/* The number of the context that was walked; 0: there is no room for it. */
static __noinline u32 number_of(struct walking *walk)
{
	struct rt_context_key key = {};
	u32 *known, id, count;

	if (!walk)
		return 0;
	if (walk->context.end == RT_CONTEXT_ASKED) {
		make_room();
		walk->context.id = __sync_fetch_and_add(&last_context, 1) + 1;
		if (hand_over_stack(walk))
			return walk->context.id;
	}
	key.low = walk->low;
	key.high = walk->high;
	key.space = walk->context.space;
	key.end = walk->context.end;
	known = bpf_map_lookup_elem(&context_ids, &key);
	if (known)
		return *known;
	/* Who has waited for room to hand over the stack does not wait once more. */
	if (walk->context.end != RT_CONTEXT_ASKED)
		make_room();
	id = walk->context.id = __sync_fetch_and_add(&last_context, 1) + 1;
	count = walk->context.count;
	if (count > RT_LEVELS)
		return 0;
	if (bpf_ringbuf_output(&contexts, &walk->context, CONTEXT_SIZE(count), 0))
		return 0;
	if (!bpf_map_update_elem(&context_ids, &key, &id, BPF_NOEXIST))
		return id;
	/* Another thread was faster, or there is no room: then it leaves once more. */
	known = bpf_map_lookup_elem(&context_ids, &key);
	return known ? *known : id;
}

static long wait_for_python_step(u32 step, void *context)
{
	struct rt_wait *wait = context;

	return bpf_map_lookup_elem(&pythons, &wait->space) || bpf_ktime_get_ns() > wait->until || waiting > most_waiting;
}

/*
 * The first call in an address space waits until user space has looked for an interpreter there: what Python functions led
 * to a call is only known while it enters. Not static, so that the verifier looks at it once.
 */
__noinline int ask_for_python(struct walking *walk)
{
	struct rt_wait wait = {};
	bool is_known;

	if (!walk)
		return 0;
	wait.space = walk->context.space;
	is_known = bpf_map_lookup_elem(&pythons, &wait.space);
	if (!is_known && (waiting >= most_waiting || !for_contexts.longest))
		return 0;
	walk->asked = wait.space;
	if (is_known)
		return 0;
	walk->context.id = RT_CONTEXT_NONE;
	if (bpf_ringbuf_output(&contexts, &walk->context, CONTEXT_SIZE(0), BPF_RB_FORCE_WAKEUP))
		return 0;
	wait_for(&for_contexts, &wait, wait_for_python_step);
	see_answer(&for_contexts, &wait, bpf_map_lookup_elem(&pythons, &wait.space));
	return 0;
}

/*
 * The context of a call whose return address is `word`, in the slot at `slot`; `limit`: slot of the traced function
 * around it. Not static, so that the verifier looks at it once.
 */
__noinline u32 find_context(u64 slot, u64 word, u64 limit)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rt_thread *thread = rt_thread();
	struct rt_measured *measured = rt_measured();
	struct walking *walk, *walked;

	if (!thread || !measured || !word)
		return 0;
	walk = bpf_task_storage_get(&walks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!walk)
		return 0;
	/* Of a place within a function the slot is half a one. */
	walk->context.sp = (slot + sizeof(u64)) & ~7ull;
	walk->context.bp = measured->frame_pointer;
	walk->context.has_bp = 1;
	walk->context.entered = 0;
	walk->context.word = word;
	walk->context.space = thread->space;
	walk->context.pid = process_of(task);
	walk->context.count = 0;
	walk->context.end = RT_CONTEXT_GOES_ON;
	walk->context.is_python = 0;
	walk->context.frames = 0;
	walk->context.passed = 0;
	__builtin_memset(walk->context.interprets, 0, sizeof(walk->context.interprets));
	walk->limit = limit;
	walk->low = context_seed;
	walk->high = ~context_seed;
	walked = walk;
	walk->python.call_count = 0;
	if (walk->asked != walk->context.space)
		ask_for_python(walk);
	if (reading_python) {
		walk->python.limit = limit;
		read_python(&walk->python, &walk->context);
		rt_repeat_some(RT_PYTHON_FRAMES, walk->context.frames, mix_step, &walked);
	}
	rt_repeat(RT_FRAMES, walk_step, &walked);
	if (walk->context.end == RT_CONTEXT_COMPLETE && !walk->context.count && !walk->context.frames)
		return RT_CONTEXT_EMPTY;
	return number_of(walk);
}

/* The context of the call that enters; `caller`: the traced function around it, which may be null. */
static __always_inline void rt_see_context(const struct rt_hit *hit, const struct rt_frame *caller)
{
	struct rt_values *values = &hit->measured->entering;
	u64 limit = caller && caller->stack == hit->stack ? caller->slot : 0;
	u64 word = hit->word;

	values->context = RT_CONTEXT_NONE;
	if (!walking_stacks)
		return;
	if (limit == hit->slot) {
		values->context = RT_CONTEXT_EMPTY;
		return;
	}
	values->context = find_context(hit->slot, word, limit);
	if (!values->context)
		count_loss(hit->region, RT_LOSS_CONTEXT);
}

#endif
