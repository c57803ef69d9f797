// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls functions that a kernel must single-step, in every way in which they can be reached.
#include "harness.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

int step(int n);
int format(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int through(void (*callback)(int), int n);
int within(int n);

extern char **environ;

static void calls(void)
{
	int sum = 0;

	for (int i = 0; i < 200; i++)
		sum += step(i);
	for (int i = 0; i < 50; i++)
		sum += within(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("step*200 within*50(step)");
}

static void arguments(void)
{
	char text[200];

	for (int i = 0; i < 20; i++) {
		int length = format(text, "%d %s %g %c %ld %d %d %g %g", i, "text", i / 4.0, 'a' + i, 1L << i, i + 1, i + 2,
				    i * 1.5, -0.5);
		dprintf(STDOUT_FILENO, "%d %s\n", length, text);
	}
	truth("format*20");
}

static void pointers(void)
{
	int (*volatile pointer)(int) = step;
	int (*found)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "step");
	int sum = 0;

	for (int i = 0; i < 30; i++)
		sum += pointer(i) + found(i);
	dprintf(STDOUT_FILENO, "sum %d, the same %d\n", sum, found == pointer);
	truth("step*60");
}

static void environment(void)
{
	for (char **variable = environ; *variable; variable++)
		dprintf(STDOUT_FILENO, "%s\n", *variable);
	for (int descriptor = 0; descriptor < 1024; descriptor++)
		if (fcntl(descriptor, F_GETFD) >= 0)
			dprintf(STDOUT_FILENO, "descriptor %d\n", descriptor);
	step(1);
	truth("step");
}

// The program break must be where malloc takes memory from, as ever.
static void memory(void)
{
	char *end = sbrk(0);

	for (int i = 0; i < 1000; i++)
		if (!malloc(step(1000)))
			exit(1);
	dprintf(STDOUT_FILENO, "by brk %d\n", (char *)sbrk(0) > end);
	truth("step*1000");
}

static jmp_buf back;

static void jump_back(int n)
{
	longjmp(back, n);
}

static void jumps(void)
{
	volatile int sum = 0;

	for (volatile int i = 1; i < 20; i++) {
		int n = setjmp(back);

		if (n == 0)
			through(jump_back, i);
		sum += step(n);
	}
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	for (int i = 1; i < 20; i++)
		truth("through! step");
}

static volatile int looked, cut_short;

static void *outermost_caller(void)
{
	void *callers[64];
	int count = backtrace(callers, 64);

	return count > 0 ? callers[count - 1] : NULL;
}

static void *start;

static void look(int signal)
{
	(void)signal;
	looked++;
	cut_short += outermost_caller() != start;
}

static void profiled(void)
{
	struct sigaction action = { .sa_handler = look, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
	struct itimerval never = { { 0, 0 }, { 0, 0 } };
	int sum = 0;

	start = outermost_caller();
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	for (int i = 0; looked < 100; i++)
		sum += within(i);
	setitimer(ITIMER_PROF, &never, NULL);
	dprintf(STDOUT_FILENO, "cut short %d\n", cut_short);
}

static void runs_itself(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();

		if (child == 0) {
			execl("/proc/self/exe", "stubs", "calls", NULL);
			_exit(127);
		}
		waitpid(child, NULL, 0);
	}
	step(1);
	truth("step");
}

static const struct scenario scenarios[] = {
	{ "calls", calls },
	{ "arguments", arguments },
	{ "pointers", pointers },
	{ "environment", environment },
	{ "memory", memory },
	{ "jumps", jumps },
	{ "profiled", profiled },
	{ "runs_itself", runs_itself },
};

SCENARIOS(scenarios)
