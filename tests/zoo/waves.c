// SPDX-License-Identifier: Apache-2.0 OR MIT
// Transforms by FFTW on each rank, and sums over all ranks.
#include <fftw3.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	enum { SIZE = 1024, ROUNDS = 400 };
	int rank, ranks;
	double sum = 0, all = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	fftw_complex *data = fftw_alloc_complex(SIZE);
	fftw_plan plan = fftw_plan_dft_1d(SIZE, data, data, FFTW_FORWARD, FFTW_ESTIMATE);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < SIZE; i++) {
			data[i][0] = sin(i * (rank + 1.0));
			data[i][1] = round % 7;
		}
		fftw_execute(plan);
		sum += data[round % SIZE][0];
		MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("%d ranks, %.6e\n", ranks, all);
	fftw_destroy_plan(plan);
	fftw_free(data);
	MPI_Finalize();
	return 0;
}
