// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "ways.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct span spans[SPANS];
int span_count;

void u_note(const char *name, int is_inside, long long begin, long long end)
{
	if (span_count < SPANS)
		spans[span_count++] = (struct span){ name, syscall(SYS_gettid), is_inside, begin, end };
}

TRACED void w_visit(void (*callback)(void *), void *argument)
{
	callback(argument);
	__asm__ volatile("");
}

TRACED void w_visit_too(void (*callback)(void *), void *argument)
{
	callback(argument);
	__asm__ volatile("");
}

TRACED int w_deref(const volatile int *cell, int n)
{
	int total = 0;

	for (int i = 0; i < n; i++)
		total += cell[i];
	return total;
}

TRACED void *w_who(void)
{
	return __builtin_return_address(0);
}

TRACED void *w_tail_who(void)
{
	return w_who();
}

__attribute__((optimize("no-omit-frame-pointer"))) TRACED int w_walk(int n)
{
	enum { LARGEST = 512 };
	void **frame = __builtin_frame_address(0);
	int known = 0;

	if (n > 0)
		return OPAQUE(w_walk(n - 1));
	while ((uintptr_t)frame[1] - (uintptr_t)w_walk < LARGEST) {
		known++;
		frame = frame[0];
	}
	return known;
}

TRACED int w_nlr_push_tail(struct nlr *nlr)
{
	return nlr->saved[0] == NULL;
}

static struct nlr top;

TRACED int w_work(int n)
{
	if (n & 1)
		w_nlr_jump(&top);
	return n;
}

TRACED int w_attempt(int n)
{
	if (w_nlr_push(&top))
		return 11;
	return OPAQUE(w_work(n));
}
