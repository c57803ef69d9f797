// SPDX-License-Identifier: Apache-2.0 OR MIT
// Jump tables of both kinds, tail calls, a function that never returns, and one with a cold part.

void sink(int);
int callee(int);
__attribute__((noreturn)) void die(int);

int table(int x)
{
	switch (x) {
	case 0: sink(3); return 1;
	case 1: sink(8); break;
	case 2: return callee(9);
	case 3: sink(1); return 5;
	case 4: die(x);
	case 5: sink(6); return 7;
	}
	return x;
}

int threaded(const unsigned char *code, int x)
{
	static void *const steps[] = { &&add, &&twice, &&end };
	goto *steps[*code];
add:
	x += 7;
	goto *steps[*++code];
twice:
	x *= 2;
	goto *steps[*++code];
end:
	return x;
}

int tail(int (**f)(int), int x)
{
	sink(x);
	return (*f)(x);
}

__attribute__((noreturn)) void fatal(int x)
{
	sink(x);
	die(x);
}

int checked(int x)
{
	if (__builtin_expect(x < 0, 0)) {
		sink(x);
		die(x + 1);
	}
	return callee(x) + callee(x + 1);
}

int recursive(int x)
{
	return x < 2 ? x : recursive(x - 1) + recursive(x - 2);
}
