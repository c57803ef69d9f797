// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program to build in uncommon ways: with an entry point of its own (`-Wl,-e,own_entry`), or with
// counts of its calls (`-pg`).
#include "harness.h"

__attribute__((noipa)) int w_inner(int n)
{
	__asm__ volatile("");
	return n + 1;
}

__attribute__((noipa)) int w_outer(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += w_inner(i);
	return sum;
}

#ifndef COUNTS_CALLS
// Nobody calls it: on the stack are the program's arguments.
__asm__(".globl own_entry\n.type own_entry,@function\n"
	"own_entry: endbr64\n"
	"xor %ebp, %ebp\n"
	"jmp _start\n"
	".size own_entry,.-own_entry\n");
#endif

static int arguments;

static void calls(void)
{
	int sum = 0;

	dprintf(STDOUT_FILENO, "%d arguments\n", arguments);
	for (int i = 0; i < 40; i++)
		sum += w_outer(50);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("w_outer*40(w_inner*50)");
}

static const struct scenario scenarios[] = { { "calls", calls } };

int main(int argc, char **argv)
{
	arguments = argc - (argc > 2);
	return run_scenario(argc, argv, scenarios, 1);
}
