// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with several names, several functions of one name, a function chosen at load time, and one
// that looks like the constants behind it.

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

__asm__(".text\n.globl untyped, untyped_table\n"
	"untyped: lea 5(%rdi), %eax\n"
	"test %eax, %eax\n"
	"ret\n"
	"untyped_table: .byte 0x55, 0x90, 0x53, 0xc3, 0x55, 0x90, 0x53, 0xc3\n");
