// SPDX-License-Identifier: Apache-2.0 OR MIT
// A coroutine whose stack lies in main's frame.
#include "switch.h"

int main(void)
{
	char stack[65536] __attribute__((aligned(16)));

	make(stack, sizeof(stack));
	ready();
	rounds();
	return done();
}
