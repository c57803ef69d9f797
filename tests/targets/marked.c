// SPDX-License-Identifier: Apache-2.0 OR MIT
// Places that are marked by notes as <sys/sdt.h> writes them, with arguments in each kind of operand.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 100 };

/* How many tracers look at the place `guarded`. */
unsigned short lookers __attribute__((section(".probes"), used));

// A nop with its note. Of the operands, the note has the text.
#define MARK(name, semaphore, arguments, ...)                                                              \
	__asm__ volatile("990: nop\n\t.pushsection .note.stapsdt,\"\",\"note\"\n\t.balign 4\n\t"           \
			 ".4byte 992f-991f,994f-993f,3\n\t991: .asciz \"stapsdt\"\n\t992: .balign 4\n\t"   \
			 "993: .8byte 990b,0," semaphore "\n\t.asciz \"app\"\n\t.asciz \"" name "\"\n\t"   \
			 ".asciz \"" arguments "\"\n\t994: .balign 4\n\t.popsection"                       \
			 : : __VA_ARGS__ : "memory")

__attribute__((noinline)) long leaf(long number)
{
	/* The place is not the first instruction, and the stack pointer is still at the return address. */
	__asm__ volatile("lea (%0),%0" : "+r"(number));
	MARK("leaf", "0", "-8@%0", "r"(number));
	return number + 1;
}

__attribute__((noinline)) long first(long number)
{
	MARK("first", "0", "-8@%0", "r"(number));
	return number + 1;
}

__attribute__((noinline)) long work(int number, const char *text)
{
	volatile int squares[4] = { 0, number * number, -number, 0 };
	unsigned char low = (unsigned char)(number + 250);
	long element = 2;

	MARK("work", "0", "8@%0 -4@%k1 4@$77 -4@%2 1@%b3 -4@(%4,%5,4) 8@nowhere(%%rip)",
	     "r"(text), "r"(number), "m"(squares[1]), "q"(low), "r"(squares), "r"(element));
	if (lookers)
		MARK("guarded", "lookers", "2@%w0", "r"((short)lookers));
	return leaf(squares[2]) + leaf(number) + first(number);
}

int main(int argc, char **argv)
{
	long sum = 0;

	if (strcmp(argv[argc - 1], "wait") == 0) {
		printf("ready %d\n", getpid());
		fflush(stdout);
		getchar();
	}
	printf("lookers %d\n", lookers);
	for (int i = 0; i < ROUNDS; i++)
		sum += work(i, i % 2 ? "odd" : "even");
	printf("sum %ld\n", sum);
	fflush(stdout);
	getchar();
	printf("lookers %d\n", lookers);
	return 0;
}
