// SPDX-License-Identifier: Apache-2.0 OR MIT
// An allocator with storage of each thread; where the dynamic linker allocates that when it is first
// used, it never comes to an end.
#include <stddef.h>

void *__libc_malloc(size_t size);

__thread size_t allocations;

void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}
