/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Values of calls: arguments, results, what they point to. Each region has a program, which is data: a list of
 * operations, each of which fills a word. What cannot be read is missing from the call, and counted.
 */
#ifndef RTRACE_FETCH_H
#define RTRACE_FETCH_H

#include "counter.bpf.h"

/* Programs have nothing in their first page. */
#define LOWEST_ADDRESS 4096

/* The number of the stack pointer, which never holds a result. */
#define NO_REGISTER 4

/* By region; its size is set before loading where values are fetched. */
ARRAY_MAP(fetch_programs, struct rt_program, 1);

/*
 * What is not below the end becomes another number. Both are u64. In assembly, as clang may test a copy, and the verifier
 * of Linux 6.1 does not know that it is one.
 */
#define RT_BOUND(number, end, other)                                                                      \
	asm volatile("if %0 < %1 goto +1\n\t%0 = %2" : "+r"(number) : "i"(end), "i"(other))

static __always_inline u64 word_at(u64 place)
{
	RT_BOUND(place, RT_WORDS, 0);
	return place;
}

/* Apart for each register: clang would merge the loads into one at a variable offset, which the verifier refuses. */
#define RT_LOAD(number, field)                                                                            \
	case number:                                                                                      \
		asm volatile("%0 = *(u64 *)(%1 + %2)"                                                     \
			     : "=r"(value)                                                                \
			     : "r"(ctx), "i"(__builtin_offsetof(struct pt_regs, field)));                 \
		break

static __always_inline u64 register_of(struct pt_regs *ctx, u8 number)
{
	u64 value = 0;

	switch (number) {
		RT_LOAD(0, ax);
		RT_LOAD(1, cx);
		RT_LOAD(2, dx);
		RT_LOAD(3, bx);
		RT_LOAD(4, sp);
		RT_LOAD(5, bp);
		RT_LOAD(6, si);
		RT_LOAD(7, di);
		RT_LOAD(8, r8);
		RT_LOAD(9, r9);
		RT_LOAD(10, r10);
		RT_LOAD(11, r11);
		RT_LOAD(12, r12);
		RT_LOAD(13, r13);
		RT_LOAD(14, r14);
		RT_LOAD(15, r15);
	}
	return value;
}

/* What a function has returned, at a return site with this cookie; 0: in rax. */
static __always_inline void see_result(struct pt_regs *ctx, struct rt_measured *measured, u64 cookie)
{
	u8 number = cookie >> RT_RETURN_RESULT & 15;

	measured->result = register_of(ctx, number);
	measured->result_bits = number == NO_REGISTER ? 0 : cookie >> RT_RETURN_NARROW & 1 ? 32 : 64;
	measured->is_stored = cookie >> RT_RETURN_STORED & 1;
}

static __always_inline u64 computed(u8 op, u64 left, u64 right)
{
	switch (op) {
	case RT_FETCH_MULTIPLY:
		return left * right;
	case RT_FETCH_ADD:
		return left + right;
	case RT_FETCH_SUBTRACT:
		return left - right;
	case RT_FETCH_MAX:
		return (__s64)left > (__s64)right ? left : right;
	default:
		return (__s64)left < (__s64)right ? left : right;
	}
}

/* Apart for each size: the verifier does not see that a place and a size are within bounds together. */
#define RT_READ_TEXT(words)                                                                          \
	case words:                                                                                  \
		if (target <= RT_WORDS - words)                                                      \
			length = bpf_probe_read_user_str(&values->word[target], words * 8, address); \
		break

/* A text that is longer is cut. What is behind its end is whatever was there. */
static __always_inline long fetch_text(struct rt_values *values, u8 target, u32 size, const void *address)
{
	long length = -1;

	switch (size / sizeof(u64)) {
		RT_READ_TEXT(1);
		RT_READ_TEXT(2);
		RT_READ_TEXT(3);
		RT_READ_TEXT(4);
		RT_READ_TEXT(5);
		RT_READ_TEXT(6);
		RT_READ_TEXT(7);
		RT_READ_TEXT(8);
	}
	/* Of an empty text, Linux 6.1 and 6.12 give 0 as the length, 6.18 gives 1. */
	return length < 0 ? -1 : 0;
}

/* No more than counts is read: what is behind may be in no mapping. */
static __always_inline long fetch_memory(u64 *value, u8 flags, const void *address)
{
	switch (flags & RT_FETCH_BITS) {
	case 7:
		return bpf_probe_read_user(value, 1, address);
	case 15:
		return bpf_probe_read_user(value, 2, address);
	case 31:
		return bpf_probe_read_user(value, 4, address);
	default:
		return bpf_probe_read_user(value, 8, address);
	}
}

/* Elements of a list that are read: where the list ends, there may be no mapping. */
static __always_inline u32 listed(const struct rt_fetch *fetch, u64 elements)
{
	u32 most = fetch->number >> 8 & 255;

	return (__s64)elements < 0 ? 0 : elements < most ? elements : most;
}

/*
 * Apart for each room, as with texts. How many elements were read is in front of them. A place is brought within bounds
 * first: the verifier of Linux 6.1 forgets what a test says of a register that is on the stack, too.
 */
#define RT_READ_LIST(words, end, room)                                                                    \
	do {                                                                                              \
		u64 place = target;                                                                       \
                                                                                                          \
		RT_BOUND(place, (end) - (room) / sizeof(u64), 0);                                         \
		RT_BOUND(bytes, (room) + 1, room);                                                        \
		error = bpf_probe_read_user(&(words)[place + 1], bytes, address);                         \
		(words)[place] = elements;                                                                \
	} while (0)

static __always_inline long fetch_list(struct rt_values *values, const struct rt_fetch *fetch, bool is_entry,
				       const void *address)
{
	struct rt_lists *at_return;
	u32 elements = listed(fetch, values->word[word_at(fetch->number >> 16 & 255)]);
	u64 bytes = (u64)elements * (fetch->number & 255), target = fetch->target;
	long error;

	if (is_entry) {
		RT_READ_LIST(values->word, RT_WORDS, 128);
		return error;
	}
	at_return = bpf_task_storage_get(&lists, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!at_return)
		return -1;
	if ((fetch->number >> 8 & 255) * (fetch->number & 255) <= 64)
		RT_READ_LIST(at_return->word, RT_LISTED, 64);
	else
		RT_READ_LIST(at_return->word, RT_LISTED, 384);
	return error;
}

static __always_inline long keep_list(u64 *serial, const struct rt_fetch *fetch, u64 elements, const void *address)
{
	u64 bytes = (__s64)elements < 0 ? 0 : elements * (fetch->number & 255);
	struct rt_kept *kept;

	kept = bpf_task_storage_get(&kept_lists, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!kept)
		return -1;
	RT_BOUND(bytes, RT_KEPT + 1, RT_KEPT);
	kept->bytes = bytes;
	*serial = ++kept->serial;
	return bpf_probe_read_user(kept->byte, bytes, address);
}

/* A call in between may have kept another list. */
static __always_inline long kept_element(u64 *value, const struct rt_fetch *fetch, u64 serial, __s64 element)
{
	const struct rt_kept *kept = bpf_task_storage_get(&kept_lists, bpf_get_current_task_btf(), 0, 0);
	u64 size = fetch->number & 255, place = element * size;

	if (!kept || kept->serial != serial)
		return -1;
	if (element < 0)
		return 0;
	if (element >= RT_KEPT || place + size > kept->bytes)
		return -1;
	RT_BOUND(place, RT_KEPT, 0);
	return bpf_probe_read_kernel(value, sizeof(*value), &kept->byte[place]);
}

static __always_inline void *thread_pointer(void)
{
	return (void *)bpf_get_current_task_btf()->thread.fsbase;
}

/* What the operations of a call share. Without registers, the call returns. */
struct fetching {
	struct pt_regs *ctx;
	struct rt_measured *measured;
	struct rt_values *values;
	const struct rt_program *program;
	u64 slot;
	u32 first;
	u32 element; /* of a list that is added up: its bytes, whether it has a sign, and from a bit on, how many there are */
};

STEPS(RT_SUMMED);
STEPS(RT_FETCHES);

#define ELEMENTS_SHIFT 8

/* Adds an element of the list to the sum. */
rt_step(sum_step)
{
	struct fetching *call = context;
	struct rt_measured *measured = call->measured;
	u32 bytes = call->element & 15, unused = (64 - bytes * 8) & 63;
	u64 value = 0;

	if (!HAS_LOOP && step >= call->element >> ELEMENTS_SHIFT)
		return 1;
	if (fetch_memory(&value, bytes * 8 - 1, (void *)(measured->list + (u64)step * bytes))) {
		measured->list = 0;
		return 1;
	}
	value <<= unused;
	measured->sum += call->element & RT_FETCH_SIGNED ? (u64)((__s64)value >> unused) : value >> unused;
	return 0;
}

static __always_inline long fetch_sum(u64 *value, const struct rt_fetch *fetch, u64 elements, u64 address,
				      struct fetching *call)
{
	struct rt_measured *measured = call->measured;

	measured->list = address;
	measured->sum = 0;
	if (elements > RT_SUMMED)
		return -1;
	call->element = (fetch->number & 15) | (fetch->flags & RT_FETCH_SIGNED) | elements << ELEMENTS_SHIFT;
	rt_repeat_some(RT_SUMMED, elements, sum_step, call);
	*value = measured->sum;
	return measured->list ? 0 : -1;
}

/* Runs an operation. How many values could not be read is counted in memory, where the verifier does not tell one number from another. */
rt_step(fetch_step)
{
	struct fetching *call = context;
	struct pt_regs *ctx = call->ctx;
	struct rt_measured *measured = call->measured;
	struct rt_values *values = call->values;
	bool is_stored = !ctx && measured->is_stored;
	u64 value = 0, word, place = call->first + step;
	const struct rt_fetch *fetch;
	long error = 0;
	u8 unused;

	if (!HAS_LOOP && place >= (ctx ? call->program->enters : call->program->count))
		return 1;
	RT_BOUND(place, RT_FETCHES, 0);
	fetch = &call->program->fetch[place];
	word = values->word[word_at(fetch->source)];
	/* Nothing is missing behind a null pointer, nor what is known of calls that come another way. */
	if ((fetch->op == RT_FETCH_MEMORY || fetch->op == RT_FETCH_TEXT || fetch->op == RT_FETCH_LIST ||
	     fetch->op == RT_FETCH_SUM) &&
	    word < LOWEST_ADDRESS)
		return 0;
	if (fetch->op == RT_FETCH_VECTOR && !measured->at_stub)
		return 0;
	if (fetch->op == RT_FETCH_TAGGED && (word >> 24 & 255) != (u32)fetch->number >> 8)
		return 0;
	if (fetch->op == RT_FETCH_VARIABLE && fetch->flags & RT_FETCH_WORDS && measured->at_stub)
		return 0;
	switch (fetch->op) {
	case RT_FETCH_REGISTER:
		if (ctx)
			value = register_of(ctx, fetch->source);
		break;
	case RT_FETCH_STACK:
	case RT_FETCH_VECTOR:
		error = bpf_probe_read_user(&value, sizeof(value), (void *)(call->slot + fetch->number));
		break;
	case RT_FETCH_MEMORY:
		error = is_stored ? -1 : fetch_memory(&value, fetch->flags, (void *)(word + fetch->number));
		break;
	case RT_FETCH_TEXT:
		error = is_stored ? -1 : fetch_text(values, fetch->target, fetch->number, (void *)word);
		break;
	case RT_FETCH_LIST:
		error = is_stored ? -1 : fetch_list(values, fetch, ctx, (void *)word);
		break;
	case RT_FETCH_SUM:
		error = is_stored ? -1 :
				    fetch_sum(&value, fetch, values->word[word_at(fetch->number >> 16 & 255)], word, call);
		break;
	case RT_FETCH_KEEP:
		error = keep_list(&value, fetch, values->word[word_at(fetch->number >> 16 & 255)], (void *)word);
		break;
	case RT_FETCH_KEPT:
		error = kept_element(&value, fetch, word, values->word[word_at(fetch->number >> 16 & 255)]);
		break;
	case RT_FETCH_RESULT:
		value = measured->result;
		error = (fetch->flags & RT_FETCH_BITS) < measured->result_bits ? 0 : -1;
		break;
	case RT_FETCH_VARIABLE:
		value = fetch->number;
		if (ctx && fetch->flags & RT_FETCH_WORDS)
			error = bpf_probe_read_user(&value, sizeof(value), (void *)(ctx->ip + fetch->number));
		value += (u64)thread_pointer();
		break;
	case RT_FETCH_NUMBER:
		value = fetch->number;
		break;
	case RT_FETCH_CPU:
		value = fetch->number ? bpf_get_numa_node_id() : bpf_get_smp_processor_id();
		break;
	case RT_FETCH_TAGGED:
	case RT_FETCH_SHIFT:
		value = word >> (fetch->number & 63);
		break;
	default:
		value = fetch->number;
		if (fetch->flags & RT_FETCH_WORDS)
			value = values->word[word_at(fetch->number)];
		value = computed(fetch->op, word, value);
	}
	if (error) {
		measured->unread++;
		return 0;
	}
	values->failed &= ~(1u << place);
	if (fetch->op == RT_FETCH_TEXT || fetch->op == RT_FETCH_LIST)
		return 0;
	unused = 63 - (fetch->flags & RT_FETCH_BITS);
	value <<= unused;
	values->word[word_at(fetch->target)] = fetch->flags & RT_FETCH_SIGNED ? (u64)((__s64)value >> unused) :
										value >> unused;
	return 0;
}

/*
 * Runs a part of a region's program: that of an entry, whose return address is in this slot, or, without registers,
 * that of a return. No function of its own, as stacks are short.
 */
static __always_inline void fetch(struct pt_regs *ctx, struct rt_measured *measured, struct rt_values *values,
				  const struct rt_program *program, u64 slot)
{
	struct fetching call = { ctx, measured, values, program, slot, ctx ? 0 : program->enters, 0 };
	u32 end = ctx ? program->enters : program->count;

	if (end > call.first)
		rt_repeat_some(RT_FETCHES, end - call.first, fetch_step, &call);
}

static __always_inline const struct rt_program *program_of(u32 region)
{
	const struct rt_program *program = bpf_map_lookup_elem(&fetch_programs, &region);

	return program && program->count ? program : 0;
}

/* The values that the call of the hit has as it enters. */
static __noinline int fetch_at_entry(struct pt_regs *ctx, const struct rt_hit *hit)
{
	struct rt_values *values = &hit->measured->entering;
	const struct rt_program *program = program_of(hit->region);

	values->has = program != 0;
	if (!program)
		return 0;
	values->waits = program->count > program->enters || program->sums;
	values->lists = program->lists;
	values->failed = ~0u;
	hit->measured->unread = 0;
	fetch(ctx, hit->measured, values, program, hit->slot);
	count_unread(hit->region, hit->measured->unread);
	return 0;
}

/*
 * The call returns: fetches the rest of its values, and adds up what is to be added up. What it tells of itself is also what
 * the calls that it made have told: it adds what is more.
 */
static __always_inline void rt_fetch_rest(struct rt_measured *measured, struct rt_row *row, u32 region)
{
	const struct rt_program *program;
	struct rt_values *values;
	u32 i;

	if (!measured || !row)
		return;
	values = &row->values;
	program = program_of(region);
	if (!program)
		return;
	measured->unread = 0;
	fetch(0, measured, values, program, 0);
	count_unread(region, measured->unread);
	for (i = 0; i < RT_SUMS; i++) {
		const struct rt_sum *sum = &program->sum[i];
		u64 told, more;
		u32 counter;

		if (i >= program->sums || values->failed & sum->needs)
			continue;
		counter = sum->counter % RT_COUNTERS;
		told = values->word[word_at(sum->word)];
		more = told > row->child[counter] ? told - row->child[counter] : 0;
		measured->total[counter] += more;
		measured->now[counter] += more;
	}
}

#endif
