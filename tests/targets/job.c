// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ranks whose work is as 1 to 2 to 3 and so on, and messages that are late: of these, one is received by a blocking call,
// one is waited for, and two are waited for together. Each rank tells in a line how long it worked, was in barriers and in
// sums of all ranks, sent and received all messages, and waited until the late ones were sent, in nanoseconds:
//
//     rank RANK WORK BARRIERS SUMS MESSAGES LATE
//
// and when it entered each barrier, each sum and a broadcast of rank 0, in nanoseconds of the clock of all ranks:
//
//     entered RANK TIME...
//
// and for each rank that it sent to how many messages and bytes these were:
//
//     sent RANK TARGET MESSAGES BYTES
#include "clock.h"

#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 5, SHARE = 100000000, LATE = 100000000, WAYS = 3, LATE_MESSAGES = 4 };

static int late_ones(int rank, int to)
{
	return rank == 0 && to == 1 ? LATE_MESSAGES : 0;
}

// Sends to each other rank, and receives from each, of each rank another number and size. They are small enough to be
// sent before they are received. How long it sent and received, in nanoseconds.
static long exchange(int rank)
{
	char bytes[1000] = "";
	long begin, sending = 0;
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int to = 0; to < ranks; to++) {
		int count = rank + 1, size = 100 * (to + 1) + rank;

		begin = now();
		for (int i = 0; to != rank && i < count; i++)
			MPI_Send(bytes, size, MPI_BYTE, to, 1, MPI_COMM_WORLD);
		sending += now() - begin;
		// A late message is a number.
		if (to != rank)
			dprintf(1, "sent %d %d %d %ld\n", rank, to, count + late_ones(rank, to),
				count * size + late_ones(rank, to) * (long)sizeof(long));
	}
	begin = now();
	for (int from = 0; from < ranks; from++) {
		for (int i = 0; from != rank && i <= from; i++)
			MPI_Recv(bytes, sizeof(bytes), MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	return sending + now() - begin;
}

// Receives messages that are sent late, the two of the last way one after the other; each says when it was sent. How long
// that took, and how long it was until the last was sent, in nanoseconds.
static long receive(int way, long *late)
{
	long begin = now(), sent[2] = { 0, 0 };
	MPI_Request requests[2];

	switch (way) {
	case 0:
		MPI_Recv(&sent[1], 1, MPI_LONG, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	case 1:
		MPI_Irecv(&sent[1], 1, MPI_LONG, 0, 7, MPI_COMM_WORLD, &requests[0]);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		break;
	default:
		for (int i = 0; i < 2; i++)
			MPI_Irecv(&sent[i], 1, MPI_LONG, 0, 7, MPI_COMM_WORLD, &requests[i]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	*late += sent[1] - begin;
	return now() - begin;
}

int main(int argc, char **argv)
{
	long work = 0, barriers = 0, sums = 0, messages, late = 0, begin, start, mine = 1, sum;
	long entered[2 * ROUNDS + 1];
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	messages = exchange(rank);
	for (int i = 0; i < ROUNDS; i++) {
		begin = now();
		sleep_until(begin + (rank + 1L) * SHARE);
		work += now() - begin;
		entered[i] = begin = now();
		MPI_Barrier(MPI_COMM_WORLD);
		barriers += now() - begin;
	}
	for (int i = 0; i < ROUNDS; i++) {
		begin = now();
		sleep_until(begin + (rank + 1L) * SHARE / 2);
		work += now() - begin;
		entered[ROUNDS + i] = begin = now();
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		sums += now() - begin;
	}
	start = now();
	entered[2 * ROUNDS] = begin = now();
	MPI_Bcast(&start, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	sums += now() - begin;
	if (rank > 1) {
		// Takes no processor from those who send and receive.
		begin = now();
		sleep_until(start + 2L * WAYS * LATE);
		work += now() - begin;
	}
	for (int way = 0; way < WAYS && rank <= 1; way++) {
		int parts = way == 2 ? 2 : 1;

		// Who receives comes first.
		start += LATE;
		for (int part = 0; rank == 0 && part < parts; part++) {
			begin = now();
			sleep_until(start + (part + 1L) * LATE / parts);
			work += now() - begin;
			begin = now();
			MPI_Send(&begin, 1, MPI_LONG, 1, 7, MPI_COMM_WORLD);
			messages += now() - begin;
		}
		if (rank == 1) {
			begin = now();
			sleep_until(start);
			work += now() - begin;
			messages += receive(way, &late);
		}
		start += LATE;
	}
	dprintf(1, "rank %d %ld %ld %ld %ld %ld\n", rank, work, barriers, sums, messages, late);
	char line[1024];
	int length = snprintf(line, sizeof(line), "entered %d", rank);

	for (int i = 0; i <= 2 * ROUNDS; i++)
		length += snprintf(line + length, sizeof(line) - length, " %ld", entered[i]);
	dprintf(1, "%s\n", line);
	MPI_Finalize();
	return 0;
}
