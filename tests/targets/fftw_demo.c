// SPDX-License-Identifier: Apache-2.0 OR MIT
// Several threads that transform data of mixed sizes with FFTW, again and again: the same work in
// each round. Prints the checksum of a round, which must be the same in each and on each thread.
//
// usage: fftw_demo SECONDS
//
// SIGTERM ends it earlier, after the round.
#include <complex.h>
#include <fftw3.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, LARGEST = 4096 };

static const int sizes[] = { 64, 100, 243, 1009, 1024, 2310, 4096 };
static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;
static volatile time_t end;

// The planner keeps state of its own; only executing plans is safe on several threads.
static fftw_plan make_plan(int size, fftw_complex *data, int direction)
{
	pthread_mutex_lock(&planner);
	fftw_plan plan = fftw_plan_dft_1d(size, data, data, direction, FFTW_ESTIMATE);
	pthread_mutex_unlock(&planner);
	return plan;
}

static void destroy_plan(fftw_plan plan)
{
	pthread_mutex_lock(&planner);
	fftw_destroy_plan(plan);
	pthread_mutex_unlock(&planner);
}

static uint64_t hash(uint64_t sum, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		sum = (sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
	return sum;
}

static uint64_t one_round(fftw_complex *data)
{
	uint64_t sum = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int size = sizes[i];
		fftw_plan forward = make_plan(size, data, FFTW_FORWARD);
		fftw_plan backward = make_plan(size, data, FFTW_BACKWARD);

		for (int k = 0; k < size; k++)
			data[k] = k % 17 + k % 5 * I;
		for (int repeat = 0; repeat < 500; repeat++) {
			fftw_execute(forward);
			fftw_execute(backward);
			for (int k = 0; k < size; k++)
				data[k] /= size;
		}
		sum = hash(sum, data, size * sizeof(*data));
		destroy_plan(forward);
		destroy_plan(backward);
	}
	return sum;
}

struct result {
	uint64_t checksum;
	int same;
};

static void *transform(void *argument)
{
	struct result *result = argument;
	fftw_complex *data = aligned_alloc(64, LARGEST * sizeof(*data));

	result->checksum = one_round(data);
	result->same = 1;
	while (time(NULL) < end)
		result->same &= one_round(data) == result->checksum;
	free(data);
	return NULL;
}

static void finish(int number)
{
	(void)number;
	end = 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	struct result results[THREADS];
	int same = 1;

	end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 20);
	signal(SIGTERM, finish);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, transform, &results[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		same &= results[i].same && results[i].checksum == results[0].checksum;
	}
	printf("checksum %016lx, %s\n", results[0].checksum, same ? "the same in each round" : "not the same in each round");
	return same ? 0 : 1;
}
