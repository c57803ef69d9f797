// SPDX-License-Identifier: Apache-2.0 OR MIT
// Boost.Context: contexts that are resumed under calls, one of them on a stack in main's frame.
#include "zoo.h"

#include <boost/context/continuation.hpp>

namespace context = boost::context;

static context::continuation inner;
static long sum;

static void nothing(void *unused)
{
	(void)unused;
	sum++;
}

static void resume(void *unused)
{
	(void)unused;
	inner = inner.resume();
}

int main()
{
	ready();
	inner = context::callcc([](context::continuation &&outer) {
		for (;;) {
			sum += z_cb2(nothing, nullptr);
			outer = outer.resume();
		}
		return std::move(outer);
	});
	for (int i = 0; i < 999; i++)
		sum += z_cb(resume, nullptr);
	dprintf(STDOUT_FILENO, "sum %ld\n", sum);
	truth("z_cb", 999, 0);
	truth("z_cb2", 1000, 0);
	return 6;
}
