// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls functions whose first or last instruction is done by rtrace where it may write the registers.
#include "harness.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

unsigned long frame_8(void), frame_24(void), frame_120(void), frame_128(void), frame_2040(void), frame_2048(void);
int landed(void (*callback)(void));
void nothing(void);
int next(int n);

#define ARITHMETIC 0x8d5 // overflow, sign, zero, adjust, parity, carry
#define DEPTHS 64

// Calls a function that makes a frame; whether the flags are not those of the same subtraction here.
// What the compiler keeps below the stack pointer is skipped.
#define DIFFERS(size)                                                                           \
	({                                                                                      \
		unsigned long from, flags, told;                                                \
		__asm__ volatile("sub $128, %%rsp\nmov %%rsp, %0\nsub $8, %0\nsub %3, %0\n"     \
				 "pushfq\npop %1\ncall frame_" #size "@PLT\nadd $128, %%rsp"    \
				 : "=&r"(from), "=&r"(flags), "=&a"(told)                       \
				 : "i"(size)                                                    \
				 : "cc", "memory", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"); \
		((flags ^ told) & ARITHMETIC) != 0;                                             \
	})

__attribute__((noinline)) static int differing(int depth)
{
	volatile char *room = __builtin_alloca(16 * (depth + 1));

	room[0] = 1;
	return DIFFERS(8) + DIFFERS(24) + DIFFERS(120) + DIFFERS(128) + DIFFERS(2040) + DIFFERS(2048);
}

static void frames(void)
{
	int count = 0;

	for (int depth = 0; depth < DEPTHS; depth++)
		count += differing(depth);
	dprintf(STDOUT_FILENO, "%d differ\n", count);
	for (int depth = 0; depth < DEPTHS; depth++)
		truth("frame_8 frame_24 frame_120 frame_128 frame_2040 frame_2048");
}

static void call_nothing(void)
{
	nothing();
	next(1);
}

static void ends(void)
{
	int sum = 0;

	for (int i = 0; i < 100; i++) {
		nothing();
		sum += next(i);
		landed(call_nothing);
	}
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	for (int i = 0; i < 100; i++)
		truth("nothing next landed(nothing next)");
}

static jmp_buf back;

static void jump_back(void)
{
	longjmp(back, 1);
}

static void jumps(void)
{
	for (volatile int i = 0; i < 50; i++) {
		if (setjmp(back) == 0)
			landed(jump_back);
		nothing();
	}
	for (int i = 0; i < 50; i++)
		truth("landed! nothing");
}

static volatile int ticks;

static void tick(int signal)
{
	(void)signal;
	ticks++;
}

// Signals arrive at any of the instructions.
static void interrupted(void)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 500 }, { 0, 500 } };
	struct itimerval never = { { 0, 0 }, { 0, 0 } };
	int count = 0, rounds = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (; ticks < 30; rounds++) {
		count += differing(rounds % DEPTHS);
		landed(call_nothing);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	dprintf(STDERR_FILENO, "%d rounds\n", rounds);
	dprintf(STDOUT_FILENO, "%d differ\n", count);
}

// Calls until its standard input ends.
static void until_told(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	int rounds = 0, count = 0;

	for (; poll(&input, 1, 1) == 0; rounds++) {
		for (int i = 0; i < 10; i++) {
			count += differing(i);
			landed(call_nothing);
		}
	}
	dprintf(STDOUT_FILENO, "%d differ\n", count);
	dprintf(STDOUT_FILENO, "rounds %d\n", 10 * rounds);
}

static const struct scenario scenarios[] = {
	{ "frames", frames },
	{ "ends", ends },
	{ "jumps", jumps },
	{ "interrupted", interrupted },
	{ "until_told", until_told },
};

SCENARIOS(scenarios)
