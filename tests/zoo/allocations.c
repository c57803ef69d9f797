// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory from several threads, under whichever allocator is preloaded.
#include "zoo.h"

#include <pthread.h>

static void *allocate(void *number)
{
	uintptr_t sum = 0;

	for (int i = 1; i < 5000; i++) {
		char *block = malloc(i % 1000 + 1);

		block[0] = (char)i;
		block = realloc(block, i % 3000 + 1);
		sum += (unsigned char)block[0] + (uintptr_t)number;
		free(block);
	}
	return (void *)sum;
}

int main(void)
{
	uintptr_t sum = 0;
	pthread_t threads[4];

	ready();
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, allocate, (void *)i);
	for (int i = 0; i < 4; i++) {
		void *of_thread;

		pthread_join(threads[i], &of_thread);
		sum += (uintptr_t)of_thread;
	}
	dprintf(STDOUT_FILENO, "sum %lu\n", (unsigned long)sum);
	return 0;
}
