// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions whose loop begins at their first instruction.
#include "zoo.h"

struct item {
	struct item *next;
};

struct item *last(struct item *item);
void drain(volatile long *left);
void fill(char *at, long bytes);

__asm__(".globl last, drain, fill\n"
	".type last,@function\n"
	"last: mov %rdi,%rax; mov (%rdi),%rdi; test %rdi,%rdi; jne last; ret\n"
	".size last,.-last\n"
	".type drain,@function\n"
	"drain: decq (%rdi); jne drain; ret\n"
	".size drain,.-drain\n"
	".type fill,@function\n"
	"fill: mov %rsi,%rcx; mov $7,%al; jmp filled\n"
	".size fill,.-fill\n"
	".globl filled\n"
	".type filled,@function\n"
	"filled: rep stosb; ret\n"
	".size filled,.-filled\n");

int main(void)
{
	struct item items[10];
	char text[40];
	long sum = 0;

	for (int i = 0; i < 10; i++)
		items[i].next = i < 9 ? &items[i + 1] : NULL;
	ready();
	for (int i = 0; i < 500; i++) {
		volatile long left = 10;

		drain(&left);
		fill(text, sizeof text);
		sum += left + text[39] + (last(items) - items);
	}
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("last", 500, 0);
	truth("drain", 500, 0);
	truth("fill", 500, 0);
	truth("filled", 500, 0);
	return 5;
}
