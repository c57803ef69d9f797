// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ranks whose work is as 1 to 2 to 3 and so on, and a message that is late. Each rank tells in a line
// how long it worked, and waited at barriers, for all messages and for the late one, in nanoseconds:
//
//     rank RANK WORK BARRIERS MESSAGES LATE
//
// and for each rank that it sent to how many messages and bytes these were:
//
//     sent RANK TARGET MESSAGES BYTES
#include "clock.h"

#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 5, SHARE = 100000000, LATE = 100000000 };

static int is_late(int rank, int to)
{
	return rank == 0 && to == 1;
}

// Sends to each other rank, and receives from each, of each rank another number and size. They are small enough to be
// sent before they are received. How long it received, in nanoseconds.
static long exchange(int rank)
{
	char bytes[1000] = "";
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int to = 0; to < ranks; to++) {
		int count = rank + 1, size = 100 * (to + 1) + rank;

		for (int i = 0; to != rank && i < count; i++)
			MPI_Send(bytes, size, MPI_BYTE, to, 1, MPI_COMM_WORLD);
		// The late message is a number.
		if (to != rank)
			dprintf(1, "sent %d %d %d %ld\n", rank, to, count + is_late(rank, to), count * size + (is_late(rank, to) ? (long)sizeof(long) : 0));
	}
	long begin = now();

	for (int from = 0; from < ranks; from++) {
		for (int i = 0; from != rank && i <= from; i++)
			MPI_Recv(bytes, sizeof(bytes), MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	return now() - begin;
}

int main(int argc, char **argv)
{
	long work = 0, barriers = 0, messages, late = 0, begin, start;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	messages = exchange(rank);
	for (int i = 0; i < ROUNDS; i++) {
		begin = now();
		sleep_until(begin + (rank + 1L) * SHARE);
		work += now() - begin;
		begin = now();
		MPI_Barrier(MPI_COMM_WORLD);
		barriers += now() - begin;
	}
	start = now();
	MPI_Bcast(&start, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		begin = now();
		sleep_until(start + LATE + LATE);
		work += now() - begin;
		MPI_Send(&start, 1, MPI_LONG, 1, 7, MPI_COMM_WORLD);
	} else if (rank == 1) {
		begin = now();
		sleep_until(start + LATE);
		work += now() - begin;
		begin = now();
		MPI_Recv(&start, 1, MPI_LONG, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		late = now() - begin;
	}
	dprintf(1, "rank %d %ld %ld %ld %ld\n", rank, work, barriers, messages + late, late);
	MPI_Finalize();
	return 0;
}
