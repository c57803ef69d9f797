// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that changes code of its own behind the first byte of instructions, as static calls and patched constants do
// (`behind`; `late`: and calls it some time later), or drops the pages of its code, breakpoints included (`dropped`). It calls before and after that, and ends
// with 0 if each call did what the code says.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 500, PAGE = 4096 };

int w_constant(void);
int w_caller(void);
extern char second_call[], code_end[];

__attribute__((used)) int add_one(int n)
{
	return n + 1;
}

__attribute__((used)) int add_thousand(int n)
{
	return n + 1000;
}

// The probe that detects returns of `w_constant` sits on the second call.
__asm__(".pushsection .text\n"
	".balign 4096\n"
	".globl w_constant\n.type w_constant, @function\nw_constant:\n\tmov $1, %eax\n\tret\n.size w_constant, . - w_constant\n"
	".globl w_caller\n.type w_caller, @function\nw_caller:\n\tpush %rbx\n\tcall w_constant\n\tmov %eax, %edi\n"
	"second_call:\n\tcall add_one\n\tpop %rbx\n\tret\n.size w_caller, . - w_caller\n"
	".balign 4096\ncode_end:\n"
	".popsection");

static int call(int expected)
{
	int wrong = 0;

	for (int i = 0; i < CALLS; i++)
		wrong += w_caller() != expected;
	return wrong;
}

int main(int argc, char **argv)
{
	char *page = (char *)w_constant;
	int is_late = argc > 1 && strcmp(argv[1], "late") == 0;
	int is_behind = argc < 2 || is_late || strcmp(argv[1], "behind") == 0, wrong, distance;

	printf("ready %d\n", getpid());
	fflush(stdout);
	getchar();
	wrong = call(2);
	if (is_behind) {
		if (mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
			return 2;
		((char *)w_constant)[1] = 2;
		distance = (char *)add_thousand - (second_call + 5);
		memcpy(second_call + 1, &distance, sizeof(distance));
		if (mprotect(page, PAGE, PROT_READ | PROT_EXEC))
			return 2;
	} else if (madvise(page, code_end - page, MADV_DONTNEED)) {
		return 3;
	}
	if (is_late || !is_behind)
		usleep(300000);
	wrong += call(is_behind ? 1002 : 2);
	printf("called\n");
	fflush(stdout);
	getchar();
	return wrong != 0;
}
