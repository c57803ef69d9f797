// SPDX-License-Identifier: Apache-2.0 OR MIT
// Accesses of OpenSHMEM to the memory of other processing elements, which log themselves to a file of each of these:
//
//     P kind target bytes
//
// Usage: shmem_accesses FOLDER NUMBER
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 512 };

static FILE *out;
static unsigned seed;

static unsigned next(unsigned most)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % most;
}

static void told(const char *kind, int target, size_t bytes)
{
	if (out)
		fprintf(out, "P %s %d %zu\n", kind, target, bytes);
}

static void access_once(unsigned kind, int pe, size_t count, long *there, long *here)
{
	switch (kind) {
	case 0:
		told("rma_put", pe, count * sizeof(int));
		shmem_int_put((int *)there, (int *)here, count, pe);
		break;
	case 1:
		told("rma_get", pe, count * sizeof(double));
		shmem_double_get((double *)here, (double *)there, count, pe);
		break;
	case 2:
		told("rma_put", pe, count);
		shmem_putmem(there, here, count, pe);
		break;
	case 3:
		told("rma_get", pe, count * 4);
		shmem_get32(here, there, count, pe);
		break;
	case 4:
		told("rma_put", pe, sizeof(long));
		shmem_long_p(there, (long)count, pe);
		break;
	case 5:
		told("rma_get", pe, sizeof(short));
		shmem_short_g((short *)there, pe);
		break;
	case 6:
		told("rma_iput", pe, count * sizeof(float));
		shmem_float_put_nbi((float *)there, (float *)here, count, pe);
		break;
	case 7:
		told("rma_iget", pe, count * 8);
		shmem_get64_nbi(here, there, count, pe);
		break;
	case 8:
		told("rma_put", pe, count / 2 * sizeof(long));
		shmem_long_iput(there, here, 2, 1, count / 2, pe);
		break;
	default:
		told("rma_atomic", pe, sizeof(int));
		shmem_int_atomic_fetch_add((int *)there, 1, pe);
	}
}

int main(int count, char **words)
{
	char path[4096];
	int number = atoi(words[count - 1]);
	long *there, *here = calloc(MOST, sizeof(long));

	shmem_init();
	there = shmem_malloc(MOST * sizeof(long));
	seed = shmem_my_pe() + 1;
	/* Until what traces it knows where each call returns. */
	for (int i = 0; i < 8; i++) {
		for (int kind = 0; kind < 10; kind++)
			access_once(kind, shmem_my_pe(), 1, there, here);
		shmem_quiet();
		shmem_barrier_all();
		usleep(40000);
	}
	snprintf(path, sizeof(path), "%s/log.%d", words[1], shmem_my_pe());
	out = fopen(path, "w");
	for (int i = 0; i < number; i++) {
		access_once(next(10), (int)next(shmem_n_pes()), 1 + next(MOST - 1), there, here);
		if (i % 1000 == 999)
			shmem_quiet();
	}
	fclose(out);
	shmem_barrier_all();
	shmem_finalize();
	return 0;
}
