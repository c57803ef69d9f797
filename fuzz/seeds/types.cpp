// SPDX-License-Identifier: Apache-2.0 OR MIT
// Debug information with many kinds of types.

enum Colour : short { RED = -1 };
union Either { int a; double b[2]; };
struct Plain { char a; long b : 3; Either c; Plain *next; };
struct Special { Special(const Special &); virtual ~Special(); int a; };
typedef int (*Function)(Plain, const Special &);

extern "C" Plain f(Colour a, const Plain *b, Special c, Function d, long double e, float _Complex g, bool h, ...) { return *b; }
extern "C" long g(int Plain::*a, int (Special::*b)(), Either &c, char d[3][4], decltype(nullptr)) { return c.a; }
