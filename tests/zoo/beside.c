// SPDX-License-Identifier: Apache-2.0 OR MIT
// A coroutine whose stack the kernel merges with that of the thread which resumes it.
#include "switch.h"

#include <pthread.h>
#include <sys/mman.h>

static void *thread(void *unused)
{
	rounds();
	return unused;
}

int main(void)
{
	const size_t size = 16 << 20;
	pthread_t worker;
	char *stack;

	ready();
	stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	make(stack, size);
	if (pthread_create(&worker, NULL, thread, NULL))
		return 98;
	pthread_join(worker, NULL);
	return done();
}
