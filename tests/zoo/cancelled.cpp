// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads that are cancelled in the middle of a call, with an object to destroy.
#include "zoo.h"

#include <pthread.h>

extern "C" {

NOIPA int w_spin(const volatile int *until)
{
	int turns = 0;

	while (!*until)
		turns++;
	return turns;
}

NOIPA int w_note(int n)
{
	__asm__ volatile("");
	return n + 1;
}
}

static volatile int is_over, spinning, destroyed;

struct Guard {
	~Guard()
	{
		destroyed = w_note(destroyed);
	}
};

static void *spin(void *unused)
{
	Guard guard;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
	spinning = 1;
	w_spin(&is_over);
	return unused;
}

int main()
{
	int cancelled = 0;

	ready();
	for (int i = 0; i < 30; i++) {
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
	truth("w_spin", 30, 30);
	truth("w_note", 30, 0);
	return destroyed;
}
