// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads that are cancelled in the middle of a call, at no cancellation point, with an object to
// destroy. To be linked statically: then no import tells that they may be.
#include "harness.h"

#include <pthread.h>

extern "C" {

__attribute__((noipa)) int w_spin(const volatile int *until)
{
	int turns = 0;

	while (!*until)
		turns++;
	return turns;
}

__attribute__((noipa)) int w_note(int n)
{
	__asm__ volatile("");
	return n + 1;
}
}

namespace {

constexpr int THREADS = 30;
volatile int is_over, spinning, destroyed;

struct Guard {
	~Guard()
	{
		destroyed = w_note(destroyed);
	}
};

void *spin(void *unused)
{
	Guard guard;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
	truth("w_spin! w_note");
	spinning = 1;
	w_spin(&is_over);
	return unused;
}

void cancel_all()
{
	int cancelled = 0;

	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		void *result;

		spinning = 0;
		pthread_create(&thread, nullptr, spin, nullptr);
		while (!spinning)
			usleep(100);
		usleep(5000);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		cancelled += result == PTHREAD_CANCELED;
	}
	dprintf(STDOUT_FILENO, "cancelled %d, destroyed %d\n", cancelled, destroyed);
}

const scenario scenarios[] = {{"cancel", cancel_all}};

} // namespace

SCENARIOS(scenarios)
