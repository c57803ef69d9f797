// SPDX-License-Identifier: Apache-2.0 OR MIT
// Children, other programs, and processes that end or block inside a call.
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

static void finish_child(pid_t child)
{
	int status;

	waitpid(child, &status, 0);
	dprintf(STDOUT_FILENO, "child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void child_calls(void)
{
	for (int i = 0; i < 20; i++)
		outer(i);
	truth("outer*20(middle(leaf*2) leaf)");
}

static void forks(void)
{
	leaf(0);
	truth("leaf");
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();

		if (child == 0) {
			child_calls();
			_exit(40 + i);
		}
		finish_child(child);
		middle(i);
		truth("middle(leaf*2)");
	}
}

// Children that call nothing that is traced: most of those that execute a program.
static void idle_children(void)
{
	char *const words[] = { "true", NULL };
	pid_t child;

	for (int i = 0; i < 5; i++) {
		middle(i);
		if (system("true"))
			abort();
		if (posix_spawnp(&child, "true", NULL, NULL, words, environ))
			abort();
		finish_child(child);
		child = fork();
		if (child == 0) {
			execvp("true", words);
			_exit(127);
		}
		finish_child(child);
	}
	truth("middle*5(leaf*2)");
}

// Children that call at once and end while others are forked.
static void crowd(void)
{
	for (int i = 0; i < 20; i++)
		if (fork() == 0) {
			child_calls();
			_exit(0);
		}
	while (wait(NULL) > 0)
		continue;
}

static void wait_for_byte(void)
{
	char byte;

	if (read(STDIN_FILENO, &byte, 1) != 1)
		abort();
}

// A child that calls before its recorder may go on, and once more when it is told to.
static void forks_when_told(void)
{
	pid_t child;

	wait_for_byte();
	child = fork();
	if (child == 0) {
		child_calls();
		dprintf(STDOUT_FILENO, "called\n");
		wait_for_byte();
		middle(0);
		truth("middle(leaf*2)");
		_exit(0);
	}
	finish_child(child);
	leaf(0);
	truth("leaf");
}

static pid_t inner_child;

static void fork_in_callback(void *unused)
{
	(void)unused;
	inner_child = fork();
	leaf(0);
}

// The child leaves a call that its parent entered: that is no call of the child.
static void fork_inside(void)
{
	visit(fork_in_callback, NULL);
	if (inner_child == 0) {
		middle(0);
		truth("leaf middle(leaf*2)");
		_exit(7);
	}
	finish_child(inner_child);
	truth("visit(leaf)");
}

static void exec_self(const char *scenario)
{
	execl("/proc/self/exe", "processes", scenario, (char *)NULL);
	_exit(127);
}

static void vforks(void)
{
	outer(0);
	truth("outer(middle(leaf*2) leaf)");

	pid_t child = vfork();

	if (child == 0) {
		leaf(0);
		leaf(1);
		exec_self("after_vfork");
	}
	finish_child(child);
	middle(1);
	truth("middle(leaf*2)");
}

// What the child of vforks runs: it made two calls before the exec.
static void after_vfork(void)
{
	truth("leaf*2");
	child_calls();
}

static void exec_in_callback(void *unused)
{
	(void)unused;
	leaf(0);
	exec_self("after_exec");
}

static void execs(void)
{
	truth("visit~(leaf)");
	visit(exec_in_callback, NULL);
}

__attribute__((noinline)) int own(int number)
{
	__asm__ volatile("" : "+r"(number));
	return number;
}

// Executes a copy of the program that has no name, as container runtimes do.
static void exec_copy(char *scenario)
{
	char *const words[] = { "processes", scenario, NULL };
	int copy = memfd_create("copy", MFD_CLOEXEC), self = open("/proc/self/exe", O_RDONLY);
	char folder[4096] = "";

	// Its library lies beside it, which the copy does not.
	if (readlink("/proc/self/exe", folder, sizeof(folder) - 1) < 0)
		abort();
	*strrchr(folder, '/') = 0;
	setenv("LD_LIBRARY_PATH", folder, 1);
	own(0);
	while (sendfile(copy, self, NULL, 1 << 20) > 0)
		continue;
	fexecve(copy, words, environ);
	_exit(127);
}

static void execs_copy(void)
{
	exec_copy("after_copy");
}

static void after_copy(void)
{
	for (int i = 0; i < 99; i++)
		own(i);
}

// It calls after a while.
static void execs_slow_copy(void)
{
	exec_copy("after_slow_copy");
}

static void after_slow_copy(void)
{
	sleep(2);
	after_copy();
}

static void *exec_in_thread(void *unused)
{
	exec_self("after_exec");
	return unused;
}

// The thread goes on in the place of the first one.
static void execs_in_thread(void)
{
	pthread_t thread;

	leaf(0);
	truth("leaf");
	pthread_create(&thread, NULL, exec_in_thread, NULL);
	pthread_join(thread, NULL);
}

static void after_exec(void)
{
	child_calls();
}

static void kill_in_callback(void *unused)
{
	(void)unused;
	leaf(0);
	kill(getpid(), SIGKILL);
}

static void killed(void)
{
	outer(0);
	truth("outer(middle(leaf*2) leaf) visit~(leaf)");
	visit(kill_in_callback, NULL);
}

static void block_in_callback(void *unused)
{
	char byte;

	(void)unused;
	leaf(0);
	while (read(STDIN_FILENO, &byte, 1) == 1)
		continue;
}

// Blocks inside a call until its standard input is closed.
static void blocks(void)
{
	truth("visit~(leaf)");
	visit(block_in_callback, NULL);
	// Else it only returned from here, and to a call through a pointer, which is met too late.
	getppid();
}

// Calls until its standard input is closed; for tracers that come and go.
static void calls_on(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 1)
		outer(byte);
}

// Calls through a pointer until its standard input is closed.
static void calls_by_pointer(void)
{
	int (*volatile call)(int) = leaf;
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 1)
		call(byte);
}

static void ends_with_code(void)
{
	leaf(0);
	truth("leaf");
	exit(37);
}

static const struct scenario scenarios[] = {
	{ "idle_children", idle_children }, { "crowd", crowd },
	{ "execs_copy", execs_copy }, { "after_copy", after_copy },
	{ "execs_slow_copy", execs_slow_copy }, { "after_slow_copy", after_slow_copy },
	{ "forks_when_told", forks_when_told },
	{ "forks", forks },	    { "fork_inside", fork_inside }, { "vforks", vforks },
	{ "after_vfork", after_vfork }, { "execs", execs },	    { "after_exec", after_exec },
	{ "execs_in_thread", execs_in_thread },
	{ "killed", killed },	    { "blocks", blocks },	    { "calls_on", calls_on },
	{ "calls_by_pointer", calls_by_pointer },
	{ "ends_with_code", ends_with_code },
};

SCENARIOS(scenarios)
