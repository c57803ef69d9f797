// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with several names, several functions of one name, and a function chosen at load time.

int work(int n)
{
	return n * 3;
}

extern __typeof__(work) work_alias __attribute__((alias("work")));

__attribute__((symver("exp@V1"))) int exp_old(int n)
{
	return n - 1;
}

__attribute__((symver("exp@@V2"))) int exp_new(int n)
{
	return n + 1;
}

static int chosen_first(int n)
{
	return n + 100;
}

static int chosen_second(int n)
{
	return n + 200;
}

static int (*resolve_chosen(void))(int)
{
	// The name of the region must not depend on which is taken; the first never is.
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse2") ? chosen_second : chosen_first;
}

int chosen(int n) __attribute__((ifunc("resolve_chosen")));
