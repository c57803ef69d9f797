// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions that look at their return address, and a walk along frame pointers.
#include "zoo.h"

extern const char __executable_start, etext;
static int known, unknown;

static int is_ours(const void *address)
{
	return (const char *)address >= &__executable_start && (const char *)address < &etext;
}

NOIPA void *w_who(void)
{
	return __builtin_return_address(0);
}

NOIPA void w_walk(void)
{
	void **frame = __builtin_frame_address(0);

	for (int depth = 0; depth < 6; depth++, frame = (void **)frame[0]) {
		if (is_ours(frame[1]))
			known++;
		else
			unknown++;
	}
}

NOIPA void w_down(int depth)
{
	if (depth)
		w_down(depth - 1);
	else
		w_walk();
	__asm__ volatile("");
}

int main(void)
{
	int own = 0, of_library = 0;

	ready();
	for (int i = 0; i < 1000; i++) {
		own += is_ours(w_who());
		of_library += is_ours(z_who());
	}
	for (int i = 0; i < 100; i++)
		w_down(5);
	dprintf(STDOUT_FILENO, "own %d, of the library %d, frames %d known, %d not\n", own, of_library, known, unknown);
	truth("w_who", 1000, 0);
	truth("z_who", 1000, 0);
	truth("w_down", 600, 0);
	return 3;
}
