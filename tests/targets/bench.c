// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls to measure. Each line of standard input asks for `WORK THREADS CALLS`, in which each of the
// threads makes so many calls of the work; when all are done, a line is printed.
#include <complex.h>
#include <dlfcn.h>
#include <fftw3.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 32, MOST_THREADS = 64 };

// An empty function that begins with a push, as most do.
void pushes(long a, long b, long c, long d, long e, const char *text);
__asm__(".globl pushes\n.type pushes,@function\n"
	"pushes: .cfi_startproc\npush %rbx\n.cfi_adjust_cfa_offset 8\n"
	"mov $1, %ebx\n1: dec %ebx\njnz 1b\npop %rbx\n"
	".cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.size pushes,.-pushes\n");

static void loop(long calls)
{
	for (long i = 0; i < calls; i++)
		pushes(i, 2, -3, 4096, i * 8, "a text to record");
}

static void transform(long calls)
{
	static fftw_complex data[SIZE];

	for (long i = 0; i < calls; i++) {
		fftw_plan plan = fftw_plan_dft_1d(SIZE, data, data, FFTW_FORWARD, FFTW_ESTIMATE);

		fftw_execute(plan);
		fftw_destroy_plan(plan);
	}
}

static void ask(long calls)
{
	static volatile int sum;
	omp_lock_t lock;

	omp_init_lock(&lock);
	for (long i = 0; i < calls; i++) {
		omp_set_lock(&lock);
		sum += omp_get_thread_num() + omp_get_max_threads() + omp_in_parallel();
		omp_unset_lock(&lock);
	}
	omp_destroy_lock(&lock);
}

static void *function(void *library, const char *name)
{
	void *address = library ? dlsym(library, name) : NULL;

	if (!address) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return address;
}

// Short functions of MKL, which is loaded only now, as it is not linked.
static void calculate(long calls)
{
	enum { ROW_MAJOR = 101, ORDER = 4 };
	void *mkl = dlopen("libmkl_rt.so.3", RTLD_NOW);
	double (*dot)(int, const double *, int, const double *, int) = function(mkl, "cblas_ddot");
	double (*norm)(int, const double *, int) = function(mkl, "cblas_dnrm2");
	void (*axpy)(int, double, const double *, int, double *, int) = function(mkl, "cblas_daxpy");
	void (*add)(int, const double *, const double *, double *) = function(mkl, "vdAdd");
	int (*factorize)(int, char, int, double *, int) = function(mkl, "LAPACKE_dpotrf");
	double x[SIZE] = { 1, 2, 3 }, y[SIZE];
	static volatile double sum;

	for (long i = 0; i < calls; i++) {
		double matrix[ORDER * ORDER] = { [0] = 4, [5] = 4, [10] = 4, [15] = 4 };

		add(SIZE, x, x, y);
		axpy(SIZE, 0.5, x, 1, y, 1);
		sum = dot(SIZE, x, 1, y, 1) + norm(SIZE, y, 1);
		factorize(ROW_MAJOR, 'L', ORDER, matrix, ORDER);
	}
}

static const struct work {
	const char *name;
	void (*run)(long calls);
} works[] = { { "loop", loop }, { "fftw", transform }, { "gomp", ask }, { "mkl", calculate } };

struct job {
	const struct work *work;
	long calls;
};

static void *run_job(void *argument)
{
	const struct job *job = argument;

	job->work->run(job->calls);
	return NULL;
}

static const struct work *find(const char *name)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		if (strcmp(works[i].name, name) == 0)
			return &works[i];
	}
	return NULL;
}

int main(void)
{
	pthread_t started[MOST_THREADS];
	struct job job;
	char name[16];
	int threads;

	while (scanf("%15s %d %ld", name, &threads, &job.calls) == 3) {
		job.work = find(name);
		if (!job.work || threads < 1 || threads > MOST_THREADS)
			return 1;
		for (int i = 1; i < threads; i++)
			pthread_create(&started[i], NULL, run_job, &job);
		run_job(&job);
		for (int i = 1; i < threads; i++)
			pthread_join(started[i], NULL);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
