// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions with every kind of parameter and result that the ABI knows, and a program that calls them. It prints each
// call on a line: the name, then the values that are recorded, in the order of their columns. `-` is a value that is
// missing, `*` one that only the compiler knows; a column whose name begins with `?` may be left out where the debug
// information says too little. Built twice: with LIBRARY as the library, without as the program.
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum sign { BELOW = -3, ABOVE = 100000 };
struct one { int a; short b; signed char c; };
struct two { long a; int b; unsigned short c; };
struct split { double x; long n; };
struct mixed { float x; int n; };
struct apart { int n; float x; double y; };
struct big { long a; int b; signed char c; double x; };
struct bits { unsigned a : 3; int b : 5; long c; };
struct __attribute__((packed)) packed { char c; long l; };
struct aligned { int a __attribute__((aligned(32))); int b; };
struct __attribute__((aligned(16))) sixteen { long a, b; };
struct nothing {};
struct number { long double x; };
union either { int i; unsigned char c; };
typedef int wide_vector __attribute__((vector_size(32)));

long ints(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f, long g, unsigned long long h,
	  _Bool i, char j);
long among_floats(double a, int b, float c, long d, double e, unsigned char f);
int floats_on_stack(double a, double b, double c, double d, double e, double f, double g, double h, double i, int j,
		    float k);
enum sign enums(enum sign a, _Bool b, int (*c)(int), const char *d);
int by_one(struct one s, int n);
int by_two(struct two s, int n);
int by_split(struct split s, int n);
int by_mixed(struct mixed s, int n);
int by_apart(struct apart s, int n);
int by_big(int m, struct big s, int n);
int without_room(long a, long b, long c, long d, long e, struct two s, long n);
int by_bits(struct bits s, int n);
int by_packed(struct packed s, int n);
int by_aligned(long a, long b, long c, long d, long e, long f, int g, struct aligned s, int n);
int by_sixteen(long a, long b, long c, long d, long e, long f, int g, struct sixteen s, int n);
int by_nothing(struct nothing s, int n);
int by_number(int m, struct number s, long double x, int n);
int by_union(union either u, int n);
int wide(int m, __int128 w, int n);
int wide_on_stack(int a, int b, int c, int d, int e, int f, int g, __int128 w, int n);
int complex(double _Complex z, int n, float _Complex w, short m);
int variadic(int n, const char *format, ...);
struct one make_one(int n);
struct two make_two(int n);
struct split make_split(int n);
struct big make_big(int n);
long double make_number(int n);
double make_double(int n);
float _Complex make_complex(int n);
_Bool raw_bool(long n);
signed char raw_char(long n);
unsigned char raw_byte(long n);
short raw_short(long n);
unsigned short raw_word(long n);
int raw_int(long n);
unsigned raw_unsigned(long n);
void *raw_pointer(long n);
int out_parameters(int n, int *out, struct two *where);
int reads(const short *p, const char *text, struct two *const *list);
int tail(int a, long b);
long tail_end(long a, int b);
int recursive(int n);
int leaves(int n, jmp_buf *to);
int early(int n, const unsigned char *p);
void nothing_at_all(void);

#ifdef LIBRARY

volatile long sink;
__attribute__((noinline)) static long mix(long n)
{
	return sink = sink * 31 + n;
}

long ints(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f, long g, unsigned long long h,
	  _Bool i, char j)
{
	return mix(a) + mix(b) + mix(c) + mix(d) + mix(e) + mix(f) + mix(g) + mix(h) + mix(i) + mix(j);
}

long among_floats(double a, int b, float c, long d, double e, unsigned char f)
{
	return mix(b) + (long)a + mix(d) + (long)c + mix(f) + (long)e;
}

int floats_on_stack(double a, double b, double c, double d, double e, double f, double g, double h, double i, int j,
		    float k)
{
	return mix(a + b + c + d + e) + mix(f + g + h + i) + mix(j) + (int)k;
}

enum sign enums(enum sign a, _Bool b, int (*c)(int), const char *d)
{
	return mix(b) + mix((long)c) + mix(d[0]) == 0 ? ABOVE : a;
}

int by_one(struct one s, int n)
{
	return mix(s.a) + mix(s.b) + mix(s.c) + mix(n);
}

int by_two(struct two s, int n)
{
	return mix(s.a) + mix(s.b) + mix(s.c) + mix(n);
}

int by_split(struct split s, int n)
{
	return mix(s.n) + mix(s.x) + mix(n);
}

int by_mixed(struct mixed s, int n)
{
	return mix(s.n) + mix(s.x) + mix(n);
}

int by_apart(struct apart s, int n)
{
	return mix(s.n) + mix(s.x) + mix(s.y) + mix(n);
}

int by_big(int m, struct big s, int n)
{
	return mix(m) + mix(s.a) + mix(s.b) + mix(s.c) + mix(s.x) + mix(n);
}

int without_room(long a, long b, long c, long d, long e, struct two s, long n)
{
	return mix(a + b + c + d + e) + mix(s.a) + mix(s.b) + mix(s.c) + mix(n);
}

int by_bits(struct bits s, int n)
{
	return mix(s.a) + mix(s.b) + mix(s.c) + mix(n);
}

int by_packed(struct packed s, int n)
{
	return mix(s.c) + mix(s.l) + mix(n);
}

int by_aligned(long a, long b, long c, long d, long e, long f, int g, struct aligned s, int n)
{
	return mix(a + b + c + d + e + f) + mix(g) + mix(s.a) + mix(s.b) + mix(n);
}

int by_sixteen(long a, long b, long c, long d, long e, long f, int g, struct sixteen s, int n)
{
	return mix(a + b + c + d + e + f) + mix(g) + mix(s.a) + mix(s.b) + mix(n);
}

int by_nothing(struct nothing s, int n)
{
	(void)s;
	return mix(n);
}

int by_number(int m, struct number s, long double x, int n)
{
	return mix(m) + mix(s.x) + mix(x) + mix(n);
}

int by_union(union either u, int n)
{
	return mix(u.i) + mix(n);
}

int wide(int m, __int128 w, int n)
{
	return mix(m) + mix(w) + mix(n);
}

int wide_on_stack(int a, int b, int c, int d, int e, int f, int g, __int128 w, int n)
{
	return mix(a + b + c + d + e + f) + mix(g) + mix(w) + mix(n);
}

int complex(double _Complex z, int n, float _Complex w, short m)
{
	return mix(__real__ z) + mix(__imag__ w) + mix(n) + mix(m);
}

int variadic(int n, const char *format, ...)
{
	return mix(n) + mix(format[0]);
}

struct one make_one(int n)
{
	return (struct one){ mix(n), n, -n };
}

struct two make_two(int n)
{
	return (struct two){ mix(n), n, n };
}

struct split make_split(int n)
{
	return (struct split){ n, mix(n) };
}

struct big make_big(int n)
{
	return (struct big){ mix(n), -n, n, n };
}

long double make_number(int n)
{
	return mix(n);
}

double make_double(int n)
{
	return mix(n);
}

float _Complex make_complex(int n)
{
	return mix(n);
}

// What a caller must ignore of the register is no zero.
#define RAW(type, name)                                                                                           \
	__attribute__((naked)) type name(__attribute__((unused)) long n)                                          \
	{                                                                                                         \
		asm("mov %rdi, %rax\n\tret");                                                                     \
	}
RAW(_Bool, raw_bool)
RAW(signed char, raw_char)
RAW(unsigned char, raw_byte)
RAW(short, raw_short)
RAW(unsigned short, raw_word)
RAW(int, raw_int)
RAW(unsigned, raw_unsigned)
RAW(void *, raw_pointer)

int out_parameters(int n, int *out, struct two *where)
{
	where->b = mix(n);
	return *out = mix(-n);
}

int reads(const short *p, const char *text, struct two *const *list)
{
	return mix(*p) + mix(text[0]) + mix(list[1]->b);
}

int tail(int a, long b)
{
	return tail_end(b * 3, a - 1);
}

__attribute__((noinline)) long tail_end(long a, int b)
{
	return mix(a) + mix(b);
}

int recursive(int n)
{
	// Calls that the compiler knows would become a loop.
	int (*volatile again)(int) = recursive;

	return n < 1 ? 7 : again(n - 1) * 3 + n;
}

int leaves(int n, jmp_buf *to)
{
	if (n % 3 == 0)
		longjmp(*to, 1);
	return mix(n);
}

int early(int n, const unsigned char *p)
{
	if (n & 1)
		return -n;
	return mix(n) + mix(*p);
}

void nothing_at_all(void)
{
	mix(1);
}

#else

#define ROUNDS 16
static unsigned long state = 1;

static long next(void)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (long)state >> 5;
}

static int called(int n)
{
	return n;
}

#define TELL(function, format, ...) printf(function "\t" format "\n", ##__VA_ARGS__)

static void tell_recursive(int n, int results[])
{
	for (; n >= 0; n--)
		TELL("recursive", "n=%d\tresult=%d", n, results[n]);
}

static void ways(volatile int n)
{
	static int results[8] = { 7 };
	jmp_buf back;
	int depth = n % 8 < 0 ? -(n % 8) : n % 8, result;
	unsigned char byte = n;

	for (int i = 1; i < 8; i++)
		results[i] = results[i - 1] * 3 + i;
	recursive(depth);
	tell_recursive(depth, results);
	if (!setjmp(back)) {
		result = leaves(n, &back);
		TELL("leaves", "n=%d\tto=%ld\tresult=%d", n, (long)&back, result);
	} else {
		TELL("leaves", "n=%d\tto=%ld\tresult=-", n, (long)&back);
	}
	result = early(n, &byte);
	TELL("early", "n=%d\tp=%ld\tresult=%d", n, (long)&byte, result);
	result = tail(n, 5);
	TELL("tail", "a=%d\tb=5\tresult=%d", n, result);
	// What the first one returns is a part of what the second one did.
	TELL("tail_end", "a=15\tb=%d\tresult=*", n - 1);
	nothing_at_all();
}

static void structures(long m, int n)
{
	struct one one = { m, m >> 7, m >> 13 };
	struct two two = { m, m >> 7, m >> 13 };
	struct split split = { 3.5, m };
	struct mixed mixed = { 1.5, m };
	struct apart apart = { m, 2.5, 3.5 };
	struct big big = { m, m >> 9, m >> 3, 4.25 };
	struct bits bits = { m, m >> 3, m };
	struct packed packed = { m, m * 3 };
	struct aligned aligned = { m, m >> 5 };
	struct sixteen sixteen = { m, m * 5 };
	struct nothing nothing;
	struct number number = { 2.5 };
	union either either = { m };
	int r;

	r = by_one(one, n);
	TELL("by_one", "s_a=%d\ts_b=%d\ts_c=%d\tn=%d\tresult=%d", one.a, one.b, one.c, n, r);
	r = by_two(two, n);
	TELL("by_two", "s_a=%ld\ts_b=%d\ts_c=%d\tn=%d\tresult=%d", two.a, two.b, two.c, n, r);
	r = by_split(split, n);
	TELL("by_split", "s_n=%ld\tn=%d\tresult=%d", split.n, n, r);
	r = by_mixed(mixed, n);
	TELL("by_mixed", "s_x=1.5\ts_n=%d\tn=%d\tresult=%d", mixed.n, n, r);
	r = by_apart(apart, n);
	TELL("by_apart", "s_n=%d\ts_x=2.5\tn=%d\tresult=%d", apart.n, n, r);
	r = by_big(n + 1, big, n);
	TELL("by_big", "m=%d\ts_a=%ld\ts_b=%d\ts_c=%d\ts_x=4.25\tn=%d\tresult=%d", n + 1, big.a, big.b, big.c, n, r);
	r = without_room(m, 2, 3, 4, 5, two, m * 3);
	TELL("without_room", "a=%ld\tb=2\tc=3\td=4\te=5\ts_a=%ld\ts_b=%d\ts_c=%d\tn=%ld\tresult=%d", m, two.a, two.b,
	     two.c, m * 3, r);
	r = by_bits(bits, n);
	TELL("by_bits", "s_c=%ld\tn=%d\tresult=%d", bits.c, n, r);
	r = by_packed(packed, n);
	TELL("by_packed", "s_c=%d\ts_l=%ld\tn=%d\tresult=%d", packed.c, packed.l, n, r);
	r = by_aligned(m, 2, 3, 4, 5, 6, 7, aligned, n);
	TELL("by_aligned", "a=%ld\tb=2\tc=3\td=4\te=5\tf=6\tg=7\ts_a=%d\ts_b=%d\tn=%d\tresult=%d", m, aligned.a,
	     aligned.b, n, r);
	r = by_sixteen(m, 2, 3, 4, 5, 6, 7, sixteen, n);
	TELL("by_sixteen", "a=%ld\tb=2\tc=3\td=4\te=5\tf=6\tg=7\ts_a=%ld\ts_b=%ld\tn=%d\tresult=%d", m, sixteen.a,
	     sixteen.b, n, r);
	r = by_nothing(nothing, n);
	TELL("by_nothing", "n=%d\tresult=%d", n, r);
	r = by_number(n + 1, number, m, n);
	TELL("by_number", "m=%d\tx=%.17e\tn=%d\tresult=%d", n + 1, (double)m, n, r);
	r = by_union(either, n);
	TELL("by_union", "u_i=%d\tu_c=%d\tn=%d\tresult=%d", either.i, either.c, n, r);
}

static void results(long m, int n)
{
	struct two two = { 1, m, 3 }, *list[] = { 0, &two };
	short number = m;
	char text[20];
	int r, out = 1;

	struct one one = make_one(n);
	TELL("make_one", "n=%d\ta=%d\tb=%d\tc=%d", n, one.a, one.b, one.c);
	two = make_two(n);
	TELL("make_two", "n=%d\ta=%ld", n, two.a);
	struct split split = make_split(n);
	TELL("make_split", "n=%d\tx=%ld", n, split.n);
	struct big big = make_big(n);
	TELL("make_big", "n=%d\ta=%ld\tb=%d\tc=%d\tx=%.17e", n, big.a, big.b, big.c, big.x);
	make_number(n);
	TELL("make_number", "n=%d", n);
	make_double(n);
	TELL("make_double", "n=%d", n);
	make_complex(n);
	TELL("make_complex", "n=%d", n);
#define TELL_RAW(name, type)                                                                                       \
	name(m);                                                                                                  \
	TELL(#name, "?n=%ld\tresult=%lld", m, (long long)(type)m)
	// A truth value is 0 or 1 in its byte; what is above it is anything.
	long truth = (m & ~0xffl) | (n & 1);
	raw_bool(truth);
	TELL("raw_bool", "?n=%ld\tresult=%d", truth, n & 1);
	TELL_RAW(raw_char, signed char);
	TELL_RAW(raw_byte, unsigned char);
	TELL_RAW(raw_short, short);
	TELL_RAW(raw_word, unsigned short);
	TELL_RAW(raw_int, int);
	TELL_RAW(raw_unsigned, unsigned);
	TELL_RAW(raw_pointer, long);
	r = out_parameters(n, &out, &two);
	TELL("out_parameters", "n=%d\tout=%d\tb=%d\tresult=%d", n, out, two.b, r);
	snprintf(text, sizeof(text), "text %d", n);
	two.b = m;
	r = reads(&number, text, list);
	TELL("reads", "p=%d\ttext=%.15s\tb=%d\tresult=%d", number, text, two.b, r);
	memset(&two, 0, sizeof(two));
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		long m = next(), r;
		int n = next();

		r = ints(m, m >> 1, m >> 2, m >> 3, m >> 4, m >> 5, m, m, n & 1, m >> 6);
		TELL("ints", "a=%d\tb=%d\tc=%d\td=%d\te=%d\tf=%u\tg=%ld\th=%ld\ti=%d\tj=%d\tresult=%ld", (signed char)m,
		     (unsigned char)(m >> 1), (short)(m >> 2), (unsigned short)(m >> 3), (int)(m >> 4),
		     (unsigned)(m >> 5), m, m, n & 1, (char)(m >> 6), r);
		r = among_floats(1, n, 2, m, 3, m);
		TELL("among_floats", "b=%d\td=%ld\tf=%d\tresult=%ld", n, m, (unsigned char)m, r);
		r = floats_on_stack(1, 2, 3, 4, 5, 6, 7, 8, m, n, -0.5);
		TELL("floats_on_stack", "i=%.17e\tj=%d\tk=-0.5\tresult=%ld", (double)m, n, r);
		enum sign e = enums(n & 1 ? BELOW : ABOVE, n & 1, called, "x");
		TELL("enums", "a=%d\tb=%d\tc=%ld\td=*\tresult=%d", n & 1 ? BELOW : ABOVE, n & 1, (long)called, e);
		r = wide(n + 1, m, n);
		TELL("wide", "m=%d\tn=%d\tresult=%ld", n + 1, n, r);
		r = wide_on_stack(n, 2, 3, 4, 5, 6, 7, m, n + 1);
		TELL("wide_on_stack", "a=%d\tb=2\tc=3\td=4\te=5\tf=6\tg=7\tn=%d\tresult=%ld", n, n + 1, r);
		r = complex(1, n, 2, m);
		TELL("complex", "n=%d\tm=%d\tresult=%ld", n, (short)m, r);
		r = variadic(n, "format", m, 1.5);
		TELL("variadic", "n=%d\tformat=*\tresult=%ld", n, r);
		structures(m, n);
		results(m, n);
		ways(n);
	}
	return 0;
}

#endif
