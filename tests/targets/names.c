// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls the functions of libnames.so by each of their names.
#include "harness.h"

int work(int n);
int work_alias(int n);
int exp_v1(int n);
int exp_v2(int n);
int chosen(int n);
int untyped(int n);

__asm__(".symver exp_v1, exp@V1");
__asm__(".symver exp_v2, exp@V2");

static void aliases(void)
{
	int sum = 0;

	for (int i = 0; i < 30; i++)
		sum += work(i);
	for (int i = 0; i < 12; i++)
		sum += work_alias(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("work*42");
}

static void versions(void)
{
	int sum = 0;

	for (int i = 0; i < 5; i++)
		sum += exp_v1(i);
	for (int i = 0; i < 7; i++)
		sum += exp_v2(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("exp@V1*5 exp@V2*7");
}

static void ifunc(void)
{
	int sum = 0;

	for (int i = 0; i < 50; i++)
		sum += chosen(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("chosen*50");
}

// Constants between functions, exported like these.
static int constants(void)
{
	const unsigned char *table;
	int sum = 0;

	__asm__("mov untyped_table@GOTPCREL(%%rip), %0" : "=r"(table));
	for (int i = 0; i < 8; i++)
		sum = sum * 7 + table[i];
	return sum;
}

static void without_type(void)
{
	int sum = constants();

	for (int i = 0; i < 60; i++)
		sum += untyped(i);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("untyped*60");
}

static const struct scenario scenarios[] = {
	{ "aliases", aliases },
	{ "versions", versions },
	{ "ifunc", ifunc },
	{ "untyped", without_type },
};

SCENARIOS(scenarios)
