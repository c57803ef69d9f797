// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels in assembly, and threads of the library's own.
#include "zoo.h"

#include <cblas.h>

enum { SIZE = 64, CALLS = 200 };

int main(void)
{
	static double a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
	double sum = 0;

	for (int i = 0; i < SIZE * SIZE; i++) {
		a[i] = i % 7;
		b[i] = i % 5;
	}
	ready();
	for (int i = 0; i < CALLS; i++) {
		cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
		sum += cblas_ddot(SIZE, c, 1, a, 1) + cblas_ddot(i % 2 ? 0 : SIZE, a, 1, b, 1);
	}
	dprintf(STDOUT_FILENO, "sum %.0f\n", sum);
	truth("cblas_dgemm", CALLS, 0);
	truth("cblas_ddot", 2 * CALLS, 0);
	return 8;
}
