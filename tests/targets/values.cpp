// SPDX-License-Identifier: Apache-2.0 OR MIT
// As values.c, of what C++ adds: hidden parameters, references, objects that are no plain data, exceptions, overloads.
// A column whose name begins with `?` may be left out where the debug information says too little.
#include <cstdio>
#include <string>
#include <utility>

struct Plain { int a; short b; };
struct Base { virtual ~Base() {} virtual int get(int x, long y); int v = 3; };
struct Other { virtual ~Other() {} virtual long other(short s, unsigned char u); long w = 4; };
struct Both : Base { int get(int x, long y) override; };
struct Copied { int a; Copied(int x) : a(x) {} Copied(const Copied &o) : a(o.a) {} };
struct Destroyed { int a; long b; ~Destroyed() {} };
struct OnlyMoved { int a; OnlyMoved(int x) : a(x) {} OnlyMoved(const OnlyMoved &) = delete; OnlyMoved(OnlyMoved &&) = default; };
struct Deleted { int a; Deleted(int x) : a(x) {} Deleted(const Deleted &) = delete; };
struct Defaulted { int a; Defaulted() = default; Defaulted(const Defaulted &) = default; ~Defaulted() = default; };
struct Outside { int a; Outside() = default; Outside(const Outside &); };
inline Outside::Outside(const Outside &) = default;
struct Moving { int a; Moving(int x) : a(x) {} Moving(Moving &&o) : a(o.a) {} };
template <class T> struct Converted { T a; Converted(T x) : a(x) {} template <class U> Converted(const Converted<U> &o) : a(o.a) {} };
struct Holder { Destroyed d; int c; };
struct Empty {};
struct Derived : Plain { unsigned c; };
struct EmptyBase : Empty { int x; };
struct VirtualBase : virtual Empty { int x; };
enum class Small : signed char { A = -3, B = 100 };
enum Signed { BELOW = -1, ABOVE = 70000 };
enum class Large : unsigned long long { A = 1ull << 63 };
enum class Flag : bool { No, Yes };
namespace ns {
int over(int a);
long over(long a, int b);
bool over(const char *s, bool b);
}
struct Sum {
	long total;
	Sum(int start);
	~Sum();
	int add(int n, double d) const;
	static long product(long a, long b);
	Sum &operator+=(int n);
	Destroyed make(int n, short s);
	Plain plain(int n);
};
int references(int &a, const long &b, Plain &&c, int *&d);
int by_plain(Plain p, int n);
int by_copied(Copied c, int n);
int by_destroyed(int m, Destroyed c, int n);
int by_only_moved(OnlyMoved c, int n);
int by_deleted(Deleted c, int n);
int by_defaulted(Defaulted c, int n);
int by_outside(Outside c, int n);
int by_moving(Moving c, int n);
int by_converted(Converted<int> c, int n);
int by_holder(Holder c, int n);
int by_empty(Empty e, int n, Empty f, int m);
int by_derived(Derived d, int n);
int by_empty_base(EmptyBase d, int n);
int by_virtual_base(VirtualBase d, int n);
int by_string(std::string s, int n);
Small enums(Small s, Signed p, Large b, Flag f);
int method(int (Sum::*f)(int, double) const, int n);
int member(long Sum::*f, int n);
int null(decltype(nullptr) p, int n);
int throws(int n);
int through(int n);
std::string text(int n);
OnlyMoved moved(int n);
std::pair<int, long> pairs(std::pair<int, long> p, int n);
template <class T> T both(T a, T b);

#ifdef LIBRARY

static volatile long sink;

__attribute__((noinline)) static int mix(long n)
{
	return sink = sink * 31 + n;
}

int Base::get(int x, long y) { return mix(x + v) + mix(y); }
long Other::other(short s, unsigned char u) { return mix(s + w) + mix(u); }
int Both::get(int x, long y) { return mix(x - v) + mix(y); }
namespace ns {
int over(int a) { return mix(a); }
long over(long a, int b) { return mix(a) + mix(b); }
bool over(const char *s, bool b) { return mix(s[0]) + b; }
}
Sum::Sum(int start) : total(start) { mix(start); }
Sum::~Sum() { mix(total); }
int Sum::add(int n, double d) const { return mix(n + total) + mix(d); }
long Sum::product(long a, long b) { return mix(a) * mix(b); }
Sum &Sum::operator+=(int n) { total += mix(n); return *this; }
Destroyed Sum::make(int n, short s) { return Destroyed{ mix(n + total), s }; }
Plain Sum::plain(int n) { return Plain{ mix(n + total), 3 }; }
int references(int &a, const long &b, Plain &&c, int *&d) { return mix(a) + mix(b) + mix(c.a) + mix(*d); }
int by_plain(Plain p, int n) { return mix(p.a) + mix(p.b) + mix(n); }
int by_copied(Copied c, int n) { return mix(c.a) + mix(n); }
int by_destroyed(int m, Destroyed c, int n) { return mix(m) + mix(c.a) + mix(c.b) + mix(n); }
int by_only_moved(OnlyMoved c, int n) { return mix(c.a) + mix(n); }
int by_deleted(Deleted c, int n) { return mix(c.a) + mix(n); }
int by_defaulted(Defaulted c, int n) { return mix(c.a) + mix(n); }
int by_outside(Outside c, int n) { return mix(c.a) + mix(n); }
int by_moving(Moving c, int n) { return mix(c.a) + mix(n); }
int by_converted(Converted<int> c, int n) { return mix(c.a) + mix(n); }
int by_holder(Holder c, int n) { return mix(c.c) + mix(n); }
int by_empty(Empty, int n, Empty, int m) { return mix(n) + mix(m); }
int by_derived(Derived d, int n) { return mix(d.a) + mix(d.c) + mix(n); }
int by_empty_base(EmptyBase d, int n) { return mix(d.x) + mix(n); }
int by_virtual_base(VirtualBase d, int n) { return mix(d.x) + mix(n); }
int by_string(std::string s, int n) { return mix(s.size()) + mix(n); }
Small enums(Small s, Signed p, Large b, Flag f) { return mix(long(p)) + mix(long(b)) + mix(long(f)) == 0 ? Small::B : s; }
int method(int (Sum::*f)(int, double) const, int n) { return mix(f != nullptr) + mix(n); }
int member(long Sum::*f, int n) { return mix(f != nullptr) + mix(n); }
int null(decltype(nullptr), int n) { return mix(n); }
__attribute__((noinline)) int throws(int n) { if (n % 2) throw n; return mix(n); }
int through(int n) { int result = throws(n + 1); return mix(result); }
std::string text(int n) { return std::string(mix(n) & 31, 'x'); }
OnlyMoved moved(int n) { return OnlyMoved(mix(n)); }
std::pair<int, long> pairs(std::pair<int, long> p, int n) { return { mix(p.first) + n, mix(p.second) }; }
template <class T> T both(T a, T b) { return mix(a) + mix(b); }
template int both<int>(int, int);
template short both<short>(short, short);

#else

#define TELL(function, ...) (printf(function "\t" __VA_ARGS__), puts(""))

static long at(const void *p)
{
	return long(p);
}

static void functions(int n)
{
	long l;

	l = ns::over(n);
	TELL("ns::over(int)", "a=%d\tresult=%ld", n, l);
	l = ns::over(n - 3l, -n);
	TELL("ns::over(long, int)", "a=%ld\tb=%d\tresult=%ld", n - 3l, -n, l);
	l = ns::over("x", n & 1);
	TELL("ns::over(char const*, bool)", "s=*\tb=%d\tresult=%ld", n & 1, l);
	l = both<int>(n, 2);
	TELL("int both<int>(int, int)", "a=%d\tb=2\tresult=%ld", n, l);
	l = both<short>(n, -2);
	TELL("short both<short>(short, short)", "a=%d\tb=-2\tresult=%ld", n, l);
	l = long(enums(Small::A, BELOW, Large::A, Flag::Yes));
	TELL("enums(Small, Signed, Large, Flag)", "s=-3\tp=-1\tb=%lld\tf=1\tresult=%ld", (long long)(1ull << 63), l);
	l = method(&Sum::add, n);
	TELL("method(int (Sum::*)(int, double) const, int)", "f_ptr=*\tf_adj=0\tn=%d\tresult=%ld", n, l);
	l = member(&Sum::total, n);
	TELL("member(long Sum::*, int)", "f=0\tn=%d\tresult=%ld", n, l);
	l = null(nullptr, n);
	TELL("null(std::nullptr_t, int)", "arg1=0\tn=%d\tresult=%ld", n, l);
	text(n);
	TELL("text[abi:cxx11](int)", "n=%d", n);
	moved(n);
	TELL("moved(int)", "n=%d", n);
	pairs({ n, 4 }, 5);
	TELL("pairs(std::pair<int, long>, int)", "p_first=%d\tp_second=4\tn=5", n);
}

static void methods(int n)
{
	Both object;
	Base *base = &object;
	Other third, *other = &third;
	long l;

	l = base->get(n, n * 7l);
	TELL("Both::get(int, long)", "this=%ld\tx=%d\ty=%ld\tresult=%ld", at(&object), n, n * 7l, l);
	l = other->other(-n, 200);
	TELL("Other::other(short, unsigned char)", "this=%ld\ts=%d\tu=200\tresult=%ld", at(&third), -n, l);
	Sum sum(n);
	TELL("Sum::Sum(int)", "this=%ld\tstart=%d", at(&sum), n);
	l = sum.add(n, 3.5);
	TELL("Sum::add(int, double) const", "this=%ld\tn=%d\tresult=%ld", at(&sum), n, l);
	l = Sum::product(n, -n);
	TELL("Sum::product(long, long)", "a=%d\tb=%d\tresult=%ld", n, -n, l);
	Sum &same = sum += n;
	TELL("Sum::operator+=(int)", "this=%ld\tn=%d\tresult=%ld", at(&sum), n, at(&same));
	sum.make(n, -n);
	TELL("Sum::make(int, short)", "this=%ld\tn=%d\ts=%d", at(&sum), n, -n);
	sum.plain(n);
	TELL("Sum::plain(int)", "this=%ld\tn=%d", at(&sum), n);
	TELL("Sum::~Sum()", "this=%ld", at(&sum));
}

static void objects(int n)
{
	int m = n + 3, a = n, *d = &a, r;
	long b = 2;
	Plain plain{ 1, 2 };
	Defaulted defaulted;
	Outside outside;
	Derived derived;
	EmptyBase empty_base;
	VirtualBase virtual_base;

	r = references(a, b, std::move(plain), d);
	TELL("references(int&, long const&, Plain&&, int*&)", "a=%ld\tb=%ld\tc=%ld\td=%ld\tresult=%d", at(&a), at(&b), at(&plain), at(&d), r);
	r = by_plain({ n, 2 }, m);
	TELL("by_plain(Plain, int)", "p_a=%d\tp_b=2\tn=%d\tresult=%d", n, m, r);
	r = by_copied(Copied(n), m);
	TELL("by_copied(Copied, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	r = by_destroyed(n, Destroyed{ n, -2 }, m);
	TELL("by_destroyed(int, Destroyed, int)", "m=%d\tc_a=%d\tc_b=-2\tn=%d\tresult=%d", n, n, m, r);
	r = by_only_moved(OnlyMoved(n), m);
	TELL("by_only_moved(OnlyMoved, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	r = by_deleted(Deleted(n), m);
	TELL("by_deleted(Deleted, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	defaulted.a = n;
	r = by_defaulted(defaulted, m);
	TELL("by_defaulted(Defaulted, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	outside.a = n;
	r = by_outside(Outside(outside), m);
	TELL("by_outside(Outside, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	r = by_moving(Moving(n), m);
	TELL("by_moving(Moving, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	r = by_converted(Converted<int>(n), m);
	TELL("by_converted(Converted<int>, int)", "c_a=%d\tn=%d\tresult=%d", n, m, r);
	r = by_holder(Holder{ { n, 2 }, 4 }, m);
	TELL("by_holder(Holder, int)", "c_c=4\tn=%d\tresult=%d", m, r);
	r = by_empty({}, n, {}, m);
	TELL("by_empty(Empty, int, Empty, int)", "n=%d\tm=%d\tresult=%d", n, m, r);
	derived.a = n;
	derived.b = 2;
	derived.c = 8;
	r = by_derived(derived, m);
	TELL("by_derived(Derived, int)", "d_c=8\tn=%d\tresult=%d", m, r);
	empty_base.x = n;
	r = by_empty_base(empty_base, m);
	TELL("by_empty_base(EmptyBase, int)", "d_x=%d\tn=%d\tresult=%d", n, m, r);
	virtual_base.x = n;
	r = by_virtual_base(virtual_base, m);
	TELL("by_virtual_base(VirtualBase, int)", "?n=%d\tresult=%d", m, r);
	r = by_string("hello", n);
	// The name of the type is that of the C++ library.
	TELL("by_string(*", "s__M_string_length=5\tn=%d\tresult=%d", n, r);
}

static void exceptions(int n)
{
	try {
		int r = throws(n);
		TELL("throws(int)", "n=%d\tresult=%d", n, r);
	} catch (int) {
		TELL("throws(int)", "n=%d\tresult=-", n);
	}
	try {
		int r = through(n);
		TELL("throws(int)", "n=%d\tresult=*", n + 1);
		TELL("through(int)", "n=%d\tresult=%d", n, r);
	} catch (int) {
		TELL("throws(int)", "n=%d\tresult=-", n + 1);
		TELL("through(int)", "n=%d\tresult=-", n);
	}
}

int main()
{
	for (int n = 5000; n < 5016; n++) {
		functions(n);
		methods(n);
		objects(n);
		exceptions(n);
	}
}

#endif
