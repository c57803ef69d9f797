/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The shadow stack for the tests in user space: stack.h, enter.h, returns.h and jump.h with memory of one thread around
 * them, and what leaves them kept in a list. The memory lies between guards, to see writes beside it. Compiled with
 * AddressSanitizer, reads beside it are seen as well, and each where it happens.
 */
#include <stdlib.h>
#include <string.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

#if defined(__SANITIZE_ADDRESS__)
#define GUARDS_ARE_POISONED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUARDS_ARE_POISONED 1
#endif
#endif
#ifdef GUARDS_ARE_POISONED
/* As in <sanitizer/asan_interface.h>, which Debian's clang does not bring. */
void __asan_poison_memory_region(void const volatile *first, size_t bytes);
#else
#define GUARDS_ARE_POISONED 0
#define __asan_poison_memory_region(first, bytes) ((void)(first), (void)(bytes))
#endif

#include "frame.h"

/* Two counters, both of which count the clock, so that what they must say is known. */
static const u32 rt_counters = 2;
/* Each call has its id as value. */
static const u32 rt_words = 1;
/* And as context. */
static const u32 rt_levels = 1;
/* Calls of regions of an odd number open. */
static const u32 rt_within = 1;

#define GUARD 0xa5
#define GUARD_BYTES 256

/* What the tests know and the shadow stack asks for. */
struct rt_world {
	const void *context;
	/* Sets the word at the address; returns 0, or another value if it cannot be read. */
	int (*read_word)(const void *context, u64 address, u64 *word);
	/* The return address that the trampoline has replaced in that slot. */
	u64 (*replaced)(const void *context, u64 slot);
	/* What is known of a return address, enum rt_arrival_kind. */
	u32 (*arrival)(const void *context, u64 address, u32 *words);
	/* Whether a region ends in jumps to another. */
	u32 (*is_known_tail)(const void *context, u32 from, u32 to);
	u64 trampoline;
};

struct rt_test {
	u8 low[GUARD_BYTES];
	struct rt_thread thread;
	u8 middle[GUARD_BYTES];
	struct rt_far far;
	struct rt_measured measured;
	struct rt_row rows[RT_FRAMES - RT_ROWS_NEAR];
	struct rt_left left;
	u8 high[GUARD_BYTES];
	u32 far_made;
	u32 memory_is_short;
	u32 has_folded;
	u32 folded; /* region whose calls leave without a record */
	struct rt_world world;
	u64 now;
	u64 losses[RT_LOSSES];
	u64 untimed[RT_UNTIMED_REASONS];
	u64 asked_for; /* return address that a probe was last asked for; 0: none */
	u64 elsewhere; /* slot of a call that has returned on another thread; 0: none */
	u64 miscounted;
	struct rt_call *records;
	u64 count, room;
};

/* The callbacks of stack.h carry no context. */
static __thread struct rt_test *current;

typedef long rt_step_of(u32 step, void *context);
#define rt_step(name) static long name(u32 step, void *context)

static __always_inline void rt_repeat(u32 limit, rt_step_of *step, void *context)
{
	u32 i;

	for (i = 0; i < limit; i++) {
		if (step(i, context))
			break;
	}
}

#define rt_rare static

#include "enter.h"
#include "jump.h"

static struct rt_thread *rt_thread(void)
{
	return &current->thread;
}

static struct rt_measured *rt_measured(void)
{
	return &current->measured;
}

static struct rt_call to_call(u32 location, const struct rt_frame *frame, u64 duration, u32 ending)
{
	struct rt_call call = {
		.id = frame->id,
		.parent = frame->parent,
		.start = frame->start,
		.duration = duration,
		.child = frame->child,
		.region = frame->region,
		.location = location,
		.depth = frame->depth,
		.ending = ending,
	};

	return call;
}

static int is_counted(const struct rt_reading *reading, u64 duration, u64 child)
{
	return reading->inclusive == duration && reading->child == child;
}

static u32 rt_is_recorded(const struct rt_frame *frame, u64 duration, u32 ending)
{
	(void)duration, (void)ending;
	return frame->marked || !current->has_folded || frame->region != current->folded;
}

static u32 rt_emit(const struct rt_hit *hit, const struct rt_frame *frame, const struct rt_values *values, u64 duration,
		   u32 ending)
{
	const struct rt_reading *readings = hit->measured->readings;
	struct rt_test *test = current;

	test->miscounted += !values || values->word[0] != frame->id || values->context != (u32)frame->id;
	test->miscounted += values && values->waits != (ending != RT_RETURNED);
	test->miscounted += !is_counted(&readings[0], duration, frame->child);
	test->miscounted += !is_counted(&readings[1], 2 * duration, 2 * frame->child);
	if (!rt_is_recorded(frame, duration, ending))
		return 0;
	if (test->count == test->room) {
		test->room = test->room ? test->room * 2 : 64;
		test->records = realloc(test->records, test->room * sizeof(*test->records));
		if (!test->records)
			abort();
	}
	test->records[test->count++] = to_call(hit->thread->location, frame, duration, ending);
	return 1;
}

static u32 rt_opens(u32 region)
{
	return region & 1;
}

static u32 rt_is_outside(const struct rt_thread *thread, u32 region)
{
	(void)thread, (void)region;
	return 0;
}

static u32 rt_path(struct rt_thread *thread, const struct rt_frame *caller, u32 region)
{
	(void)thread, (void)caller, (void)region;
	return 0;
}

static void rt_lost(u32 region, u32 reason)
{
	(void)region;
	current->losses[reason]++;
}

static void rt_untimed(u32 region, u32 reason)
{
	(void)region;
	current->untimed[reason]++;
}

static struct rt_left *rt_left(u32 create)
{
	(void)create;
	return current->memory_is_short ? 0 : &current->left;
}

static struct rt_far *rt_far(u32 create)
{
	if (create && !current->memory_is_short)
		current->far_made = 1;
	return current->far_made ? &current->far : 0;
}

static void rt_fetch_rest(struct rt_measured *measured, struct rt_row *row, u32 region)
{
	(void)measured, (void)region;
	row->values.waits = 0;
}

static struct rt_row *rt_row(struct rt_hit *hit, u32 index, u32 create)
{
	(void)create;
	if (index < RT_ROWS_NEAR)
		return &hit->measured->near[index];
	return index < RT_FRAMES ? &current->rows[index - RT_ROWS_NEAR] : 0;
}

static int rt_read_slot(u64 slot, u64 *word)
{
	return current->world.read_word(current->world.context, slot, word);
}

static u64 rt_now(void)
{
	return current->now;
}

static u64 rt_trampoline(void)
{
	return current->world.trampoline;
}

static u64 rt_replaced(u64 slot)
{
	return current->world.replaced(current->world.context, slot);
}

static void rt_see_context(const struct rt_hit *hit, const struct rt_frame *caller)
{
	hit->measured->entering.context = hit->thread->calls + 1;
}

static u64 rt_known_arrival(const struct rt_hit *hit, u64 address)
{
	u32 words = 0, kind;

	(void)hit;
	if (address == current->world.trampoline)
		return RT_UNKNOWN;
	kind = current->world.arrival(current->world.context, address, &words);
	return RT_ARRIVAL(kind, words);
}

static u64 rt_first_arrival(const struct rt_hit *hit, u64 address)
{
	return rt_known_arrival(hit, address);
}

static u64 rt_answer(const struct rt_hit *hit, u64 address)
{
	return rt_known_arrival(hit, address);
}

static u32 rt_is_replaced(const struct rt_hit *hit, u64 address)
{
	(void)hit;
	(void)address;
	return 0;
}

static u32 rt_has_vanished(const struct rt_hit *hit, u64 address)
{
	(void)hit;
	(void)address;
	return 0;
}

static void rt_ask_for_site(const struct rt_hit *hit, u64 address)
{
	(void)hit;
	current->asked_for = address;
}

static void rt_ask_for_interim(const struct rt_hit *hit, u64 address)
{
	(void)hit;
	current->asked_for = address;
}

static void rt_note_foreign(u64 slot, u64 id)
{
	(void)id;
	if (current->elsewhere == slot)
		current->elsewhere = 0;
}

static u32 rt_ended_elsewhere(u64 slot, u64 id)
{
	(void)id;
	return slot && current->elsewhere == slot;
}

static u32 rt_is_known_tail(u32 from, u32 to)
{
	return current->world.is_known_tail(current->world.context, from, to);
}

static void put_guard(u8 *guard)
{
	memset(guard, GUARD, GUARD_BYTES);
	__asan_poison_memory_region(guard, GUARD_BYTES);
}

struct rt_test *rt_test_new(u32 location, u32 memory_is_short, const struct rt_world *world)
{
	struct rt_test *test = calloc(1, sizeof(*test));

	if (!test)
		abort();
	put_guard(test->low);
	put_guard(test->middle);
	put_guard(test->high);
	test->thread.location = location;
	test->memory_is_short = memory_is_short;
	test->world = *world;
	return test;
}

void rt_test_fold(struct rt_test *test, u32 region)
{
	test->has_folded = 1;
	test->folded = region;
}

void rt_test_free(struct rt_test *test)
{
	free(test->records);
	free(test);
}

void rt_test_move(struct rt_test *test, u64 slot)
{
	test->elsewhere = slot;
}

static void count(struct rt_hit *hit)
{
	hit->measured = &current->measured;
	hit->measured->now[0] = hit->now;
	hit->measured->now[1] = 2 * hit->now;
}

static struct rt_hit new_hit(struct rt_test *test, u64 slot, u32 stack, u64 now)
{
	struct rt_hit hit = { .thread = &test->thread, .slot = slot, .now = now };

	hit.stack = stack == RT_STACK_OWN ? rt_own_stack(&test->thread) : stack;
	current = test;
	test->now = now;
	count(&hit);
	/* As the BPF side does: the alternate signal stack is told without a look at the mappings. */
	if (stack != RT_STACK_SIGNAL)
		test->thread.stack_key = hit.stack;
	return hit;
}

void rt_test_enter(struct rt_test *test, u64 slot, u32 stack, u64 now, u32 region, u32 policy, u32 tails, u32 laps,
		   u32 pops)
{
	/* Counters are read, so the time is known. */
	struct rt_hit hit = new_hit(test, slot, stack, now);

	hit.region = region;
	hit.measured->entering = (struct rt_values){ .has = 1, .waits = 1, .word = { test->thread.calls + 1 } };
	rt_enter(&hit, policy, tails, laps, pops);
}

/*
 * Control arrives at the return address `word`, which was taken from the slot, with up to `reach` words below
 * the stack pointer left alone. Returns whether a call ended.
 */
u32 rt_test_return(struct rt_test *test, u64 slot, u64 word, u32 stack, u64 now, u32 is_fixed, u32 reach)
{
	struct rt_hit hit = new_hit(test, slot, stack, now);

	hit.word = word;
	hit.is_fixed = is_fixed;
	hit.only_returns = (u32)rt_known_arrival(&hit, word) == RT_ARRIVAL_SKIP;
	hit.reach = reach;
	return rt_return(&hit);
}

/* Control jumps to where the stack pointer is `target`; `from` and `is_final` as in struct rt_hit. */
void rt_test_jump(struct rt_test *test, u64 from, u64 target, u32 stack, u64 now, u32 is_final)
{
	struct rt_hit hit = new_hit(test, target - sizeof(u64), stack, now);

	/* As on the BPF side: where stacks share a mapping, it may be a switch to another one. */
	if (hit.stack == RT_STACK_SHARED && (!is_final || !from))
		return;
	hit.from = from;
	hit.is_final = is_final;
	rt_jump(&hit);
}

void rt_test_abandon(struct rt_test *test, u64 now)
{
	struct rt_hit hit = { .thread = &test->thread, .now = now };

	current = test;
	count(&hit);
	rt_abandon(&hit);
}

u64 rt_test_count_between(const struct rt_raw *from, const struct rt_raw *to, u32 *is_estimate)
{
	return rt_count_between(from, to, is_estimate);
}

u64 rt_test_calls(const struct rt_test *test)
{
	return test->thread.calls;
}

u32 rt_test_frames(const struct rt_test *test)
{
	return test->thread.frames;
}

u32 rt_test_openers(const struct rt_test *test)
{
	return test->thread.openers;
}

/* Whether other stacks lie in the thread's own, as far as it knows. */
u32 rt_test_shares_stack(const struct rt_test *test)
{
	return test->thread.shares_stack;
}

/* Number of calls that are kept aside. */
u32 rt_test_left(const struct rt_test *test)
{
	u32 i, left = 0;

	for (i = 0; i < RT_LEFT_MAX; i++)
		left += test->left.call[i].frame.id != 0;
	return left;
}

/* Copies the frame at the index out. */
void rt_test_frame(struct rt_test *test, u32 index, struct rt_call *call)
{
	struct rt_hit hit = { .thread = &test->thread };
	struct rt_frame *frame;

	current = test;
	frame = rt_frame(&hit, index);
	if (!frame)
		abort();
	*call = to_call(test->thread.location, frame, 0, RT_OPEN);
}

const struct rt_call *rt_test_records(const struct rt_test *test, u64 *count)
{
	*count = test->count;
	return test->records;
}

u64 rt_test_lost(const struct rt_test *test, u32 reason)
{
	return test->losses[reason];
}

u64 rt_test_untimed(const struct rt_test *test, u32 reason)
{
	return test->untimed[reason];
}

u64 rt_test_asked_for(const struct rt_test *test)
{
	return test->asked_for;
}

int rt_test_counts_well(const struct rt_test *test)
{
	return test->miscounted == 0;
}

int rt_test_is_intact(const struct rt_test *test)
{
	u32 i;

	if (GUARDS_ARE_POISONED)
		return 1;
	for (i = 0; i < GUARD_BYTES; i++) {
		if (test->low[i] != GUARD || test->middle[i] != GUARD || test->high[i] != GUARD)
			return 0;
	}
	return 1;
}
