// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls that know what they cost: time on a CPU, fresh pages, moves to another CPU.
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

enum { ROUNDS = 30, PAGE = 4096 };

struct cost {
	long long clock_ns;
	long faults;
	long switches;
};

static struct cost cost_so_far(void)
{
	struct timespec time;
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (struct cost){
		.clock_ns = time.tv_sec * 1000000000ll + time.tv_nsec,
		.faults = usage.ru_minflt + usage.ru_majflt,
		.switches = usage.ru_nvcsw + usage.ru_nivcsw,
	};
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	// Where there is only one CPU, it stays.
	sched_setaffinity(0, sizeof(set), &set);
}

static void spin(int milliseconds)
{
	struct cost begin = cost_so_far();

	while (cost_so_far().clock_ns - begin.clock_ns < milliseconds * 1000000ll)
		;
}

struct work {
	char *pages;
	int count;
	int cpu;
};

static void work(void *argument)
{
	const struct work *work = argument;

	for (int i = 0; i < work->count; i++)
		work->pages[i * PAGE] = 1;
	spin(2);
	// Off the CPU, and on to the next: the neighbours must not be counted.
	run_on(work->cpu);
	usleep(1000);
	leaf(0);
	spin(1);
}

// A process of its own, so that it shares no locks with the calls.
static pid_t start_neighbour(int cpu)
{
	pid_t pid = fork();
	volatile int *page;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run_on(cpu);
	for (;;) {
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*page = 1;
		munmap((void *)page, PAGE);
	}
}

// What a call costs by the kernel's own account, taken around it.
static void *calls(void *unused)
{
	struct cost before, after;
	struct work task;

	(void)unused;
	for (int round = 0; round < ROUNDS; round++) {
		task = (struct work){ .count = 1 + round % 7, .cpu = round % 2 };
		task.pages = mmap(NULL, task.count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		madvise(task.pages, task.count * PAGE, MADV_NOHUGEPAGE);
		before = cost_so_far();
		visit(work, &task);
		after = cost_so_far();
		munmap(task.pages, task.count * PAGE);
		dprintf(STDERR_FILENO, "cost %d %ld %lld %d %ld %ld\n", getpid(), syscall(SYS_gettid),
			after.clock_ns - before.clock_ns, task.count, after.faults - before.faults,
			after.switches - before.switches);
	}
	truth("visit*%d(leaf)", ROUNDS);
	return NULL;
}

static void costs(void)
{
	pid_t neighbours[] = { start_neighbour(0), start_neighbour(1) };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, calls, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		kill(neighbours[i], SIGKILL);
}

static const struct scenario scenarios[] = {
	{ "costs", costs },
};

SCENARIOS(scenarios)
