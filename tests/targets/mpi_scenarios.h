// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the ranks do, by the word of a scenario. */

#define TAG 7

static int buffers[MOST][256];

static int size_of(MPI_Comm comm)
{
	int size;

	MPI_Comm_size(comm, &size);
	return size;
}

static int rank_of(MPI_Comm comm)
{
	int rank;

	MPI_Comm_rank(comm, &rank);
	return rank;
}

/* Each rank sends to all others, messages of all sizes; also to itself and to nobody. */
static void blocking(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm);
	MPI_Status status;

	for (int i = 0; i < 20; i++) {
		for (int from = 0; from < size; from++) {
			if (from == rank) {
				for (int to = 0; to < size; to++)
					if (to != rank)
						MPI_Send(buffers[0], i * 5, MPI_INT, to, TAG + i % 3, comm);
			} else {
				MPI_Recv(buffers[1], 256, MPI_INT, from, TAG + i % 3, comm, &status);
			}
		}
	}
	for (int i = 0; i < 5; i++) {
		int right = (rank + 1) % size, left = (rank + size - 1) % size;

		MPI_Sendrecv(buffers[0], 10 + i, MPI_INT, right, 40, buffers[1], 256, MPI_INT, left, 40, comm, &status);
		MPI_Sendrecv_replace(buffers[2], 20 + i, MPI_INT, left, 41, right, 41, comm, &status);
		if (rank % 2)
			MPI_Ssend(buffers[0], 4, MPI_DOUBLE, rank - 1, 42, comm);
		else if (rank + 1 < size)
			MPI_Recv(buffers[1], 60, MPI_DOUBLE, rank + 1, 42, comm, MPI_STATUS_IGNORE);
		MPI_Send(buffers[0], 4, MPI_INT, MPI_PROC_NULL, 1, comm);
		MPI_Recv(buffers[0], 4, MPI_INT, MPI_PROC_NULL, 1, comm, MPI_STATUS_IGNORE);
	}
}

/* Requests that are waited for in every way. */
static void nonblocking(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), others = size - 1, flag;
	MPI_Request requests[16];
	MPI_Status statuses[16];

	for (int i = 0; i < 10; i++) {
		int right = (rank + 1) % size, left = (rank + size - 1) % size;

		MPI_Irecv(buffers[0], 256, MPI_INT, left, i, comm, &requests[0]);
		MPI_Isend(buffers[1], 2 + i, MPI_INT, right, i, comm, &requests[1]);
		MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
		MPI_Wait(&requests[0], &statuses[0]);
		/* Completed in another order than posted. */
		MPI_Irecv(buffers[2], 256, MPI_INT, left, 90, comm, &requests[0]);
		MPI_Irecv(buffers[3], 256, MPI_INT, left, 90, comm, &requests[1]);
		MPI_Issend(buffers[4], 30 + i, MPI_INT, right, 90, comm, &requests[2]);
		MPI_Issend(buffers[5], 60 + i, MPI_INT, right, 90, comm, &requests[3]);
		MPI_Wait(&requests[1], &statuses[0]);
		do
			MPI_Test(&requests[0], &flag, &statuses[0]);
		while (!flag);
		MPI_Wait(&requests[2], &statuses[0]);
		MPI_Wait(&requests[3], &statuses[0]);
	}
	for (int i = 0; i < 10; i++) {
		int done = 0, indices[16], number, index;

		for (int other = 0; other < others; other++) {
			int to = (rank + 1 + other) % size, from = (rank + size - 1 - other) % size;

			MPI_Irecv(buffers[other], 256, MPI_INT, from, 100 + i, comm, &requests[other]);
			MPI_Isend(buffers[20 + other], 10 * (other + 1), MPI_INT, to, 100 + i, comm,
				  &requests[others + other]);
		}
		switch (i % 5) {
		case 0:
			MPI_Waitall(2 * others, requests, statuses);
			break;
		case 1:
			for (int n = 0; n < 2 * others; n++)
				MPI_Waitany(2 * others, requests, &index, statuses);
			break;
		case 2:
			while (done < 2 * others) {
				MPI_Waitsome(2 * others, requests, &number, indices, statuses);
				done += number;
			}
			break;
		case 3:
			while (done < 2 * others) {
				MPI_Testsome(2 * others, requests, &number, indices, statuses);
				done += number;
			}
			break;
		default:
			for (int n = 0; n < others; n++) {
				do
					MPI_Testany(others, requests, &index, &flag, statuses);
				while (!flag);
			}
			do
				MPI_Testall(others, requests + others, &flag, statuses);
			while (!flag);
		}
	}
}

/* Whoever comes first. */
static void wildcards(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm);
	MPI_Request requests[8];
	MPI_Status statuses[8];

	for (int i = 0; i < 10; i++) {
		if (rank == 0) {
			for (int n = 1; n < size; n++)
				MPI_Recv(buffers[n], 256, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &statuses[n]);
			for (int n = 1; n < size; n++)
				MPI_Irecv(buffers[n], 256, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[n - 1]);
			MPI_Waitall(size - 1, requests, statuses);
		} else {
			MPI_Send(buffers[0], 10 + rank, MPI_INT, 0, rank * 10 + i, comm);
			MPI_Send(buffers[0], 30 + rank, MPI_INT, 0, rank * 10 + i, comm);
		}
		MPI_Barrier(comm);
	}
}

static void derived(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size, left = (rank + size - 1) % size;
	MPI_Datatype column, pair, nothing;
	MPI_Request request;
	MPI_Status status;

	MPI_Type_vector(8, 2, 8, MPI_INT, &column);
	MPI_Type_commit(&column);
	MPI_Type_contiguous(3, MPI_DOUBLE, &pair);
	MPI_Type_commit(&pair);
	MPI_Type_contiguous(0, MPI_DOUBLE, &nothing);
	MPI_Type_commit(&nothing);
	for (int i = 1; i < 5; i++) {
		MPI_Irecv(buffers[1], 256, MPI_INT, left, 3, comm, &request);
		MPI_Send(buffers[0], 1, column, right, 3, comm);
		MPI_Wait(&request, &status);
		MPI_Irecv(buffers[1], 10, pair, left, 4, comm, &request);
		MPI_Send(buffers[0], i, pair, right, 4, comm);
		MPI_Wait(&request, &status);
		MPI_Sendrecv(buffers[0], i, MPI_DOUBLE_INT, right, 5, buffers[1], 256, MPI_DOUBLE_INT, left, 5, comm, &status);
		MPI_Sendrecv(buffers[0], i, nothing, right, 6, buffers[1], 1, nothing, left, 6, comm, &status);
	}
	MPI_Type_free(&column);
	MPI_Type_free(&pair);
	MPI_Type_free(&nothing);
}

/* Communicators of communicators, some of which get the number of one that is gone. */
static void communicators(void)
{
	MPI_Comm half, reversed, copy, pairs, cart, group_comm, sub;
	MPI_Group group;
	int rank = world_rank, size = size_of(MPI_COMM_WORLD), evens[MOST], count = 0, dims[1] = { size }, periods[1] = { 1 };

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	name(half, rank % 2 ? "odd" : "even");
	blocking(half);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
	name(reversed, "reversed");
	blocking(reversed);
	MPI_Comm_dup(reversed, &copy);
	name(copy, "copy");
	nonblocking(copy);
	MPI_Comm_split(reversed, rank_of(reversed) / 2, 0, &pairs);
	name(pairs, rank_of(reversed) / 2 ? "second" : "first");
	blocking(pairs);
	drop(half);
	MPI_Comm_free(&half);
	MPI_Comm_split(MPI_COMM_WORLD, rank ? 1 : MPI_UNDEFINED, -rank, &sub);
	name(sub, "sub");
	if (sub != MPI_COMM_NULL)
		blocking(sub);
	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
	name(cart, "cart");
	blocking(cart);
	for (int i = size - 2; i >= 0; i -= 2)
		evens[count++] = i;
	PMPI_Group_incl(world_group, count, evens, &group);
	MPI_Comm_create(MPI_COMM_WORLD, group, &group_comm);
	name(group_comm, "group");
	if (group_comm != MPI_COMM_NULL)
		blocking(group_comm);
}

static void persistent(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size, left = (rank + size - 1) % size;
	MPI_Request requests[4];
	MPI_Status statuses[4];

	MPI_Recv_init(buffers[0], 256, MPI_INT, left, 5, comm, &requests[0]);
	MPI_Send_init(buffers[1], 33, MPI_INT, right, 5, comm, &requests[1]);
	MPI_Recv_init(buffers[2], 256, MPI_INT, MPI_ANY_SOURCE, 6, comm, &requests[2]);
	MPI_Send_init(buffers[3], 44, MPI_INT, left, 6, comm, &requests[3]);
	for (int i = 0; i < 6; i++) {
		if (i % 2) {
			MPI_Startall(4, requests);
		} else {
			for (int n = 0; n < 4; n++)
				MPI_Start(&requests[n]);
		}
		if (i % 3)
			MPI_Waitall(4, requests, statuses);
		else
			for (int n = 0; n < 4; n++)
				MPI_Wait(&requests[n], &statuses[n]);
	}
	for (int n = 0; n < 4; n++)
		MPI_Request_free(&requests[n]);
}

/* Messages that are probed for before they are received. */
static void probes(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size;
	MPI_Message message;
	MPI_Request request, received;
	MPI_Status status, ended;
	int flag;

	for (int i = 0; i < 10; i++) {
		MPI_Isend(buffers[0], 2 + i, MPI_INT, right, 60, comm, &request);
		MPI_Probe(MPI_ANY_SOURCE, 60, comm, &status);
		MPI_Recv(buffers[1], 256, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
		MPI_Wait(&request, &ended);
		MPI_Isend(buffers[0], 20 + i, MPI_INT, right, 61, comm, &request);
		MPI_Mprobe(MPI_ANY_SOURCE, 61, comm, &message, &status);
		MPI_Mrecv(buffers[1], 256, MPI_INT, &message, &status);
		MPI_Wait(&request, &ended);
		MPI_Isend(buffers[0], 40 + i, MPI_INT, right, 61, comm, &request);
		do
			MPI_Improbe(MPI_ANY_SOURCE, 61, comm, &flag, &message, &status);
		while (!flag);
		MPI_Imrecv(buffers[1], 256, MPI_INT, &message, &received);
		MPI_Wait(&received, &status);
		MPI_Wait(&request, &ended);
	}
}

/* Functions with counts of 64 bits, where MPI has them. */
static void large(MPI_Comm comm)
{
#if MPI_VERSION >= 4
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size, left = (rank + size - 1) % size;
	MPI_Request requests[2];
	MPI_Status statuses[2];

	for (int i = 0; i < 10; i++) {
		MPI_Irecv_c(buffers[0], 256, MPI_INT, left, 70, comm, &requests[0]);
		MPI_Isend_c(buffers[1], 2 + i, MPI_DOUBLE, right, 70, comm, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		if (rank % 2 == 0) {
			MPI_Send_c(buffers[0], 20 + i, MPI_INT, right, 71, comm);
			MPI_Recv_c(buffers[1], 256, MPI_INT, left, 72, comm, statuses);
		} else {
			MPI_Recv_c(buffers[1], 256, MPI_INT, left, 71, comm, statuses);
			MPI_Send_c(buffers[0], 30 + i, MPI_INT, right, 72, comm);
		}
		MPI_Bcast_c(buffers[0], 5 + i, MPI_INT, i % size, comm);
	}
#else
	(void)comm;
	abort();
#endif
}

static void collectives(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), counts[MOST], pairs[MOST], places[MOST];
	MPI_Request request, requests[2];
	MPI_Status status, statuses[2];

	for (int i = 0; i < MOST; i++) {
		counts[i] = 2 + i % 5;
		pairs[i] = (rank + i) % 4;
		places[i] = 6 * i;
	}
	for (int root = 0; root < size; root++) {
		int is_root = is_own(comm, root);

		MPI_Barrier(comm);
		MPI_Bcast(buffers[0], 5 + root, MPI_DOUBLE, root, comm);
		MPI_Ibcast(buffers[0], 6 + root, MPI_INT, root, comm, &request);
		MPI_Wait(&request, &status);
		MPI_Ibarrier(comm, &requests[0]);
		MPI_Iallreduce(buffers[0], buffers[1], 3 + root, MPI_INT, MPI_SUM, comm, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		MPI_Reduce(buffers[0], buffers[1], 7 + root, MPI_INT, MPI_SUM, root, comm);
		MPI_Allreduce(buffers[0], buffers[1], 8 + root, MPI_INT, MPI_MAX, comm);
		MPI_Scan(buffers[0], buffers[1], 9, MPI_INT, MPI_SUM, comm);
		MPI_Exscan(buffers[0], buffers[1], 10, MPI_INT, MPI_SUM, comm);
		MPI_Gather(buffers[0], 4, MPI_INT, buffers[1], 2, MPI_DOUBLE, root, comm);
		MPI_Gather(is_root ? MPI_IN_PLACE : buffers[0], 4, MPI_INT, buffers[1], 4, MPI_INT, root, comm);
		MPI_Scatter(buffers[0], 6, MPI_INT, buffers[1], 3, MPI_DOUBLE, root, comm);
		MPI_Scatter(buffers[0], 6, MPI_INT, is_root ? MPI_IN_PLACE : buffers[1], 6, MPI_INT, root, comm);
		MPI_Allgather(buffers[0], 11, MPI_INT, buffers[1], 11, MPI_INT, comm);
		MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, buffers[1], 12, MPI_INT, comm);
		MPI_Alltoall(buffers[0], 3, MPI_INT, buffers[1], 3, MPI_INT, comm);
		MPI_Reduce_scatter_block(buffers[0], buffers[1], 5, MPI_INT, MPI_SUM, comm);
		MPI_Gatherv(buffers[0], counts[rank], MPI_INT, buffers[1], counts, places, MPI_INT, root, comm);
		MPI_Gatherv(is_root ? MPI_IN_PLACE : buffers[0], counts[rank], MPI_INT, buffers[1], counts, places, MPI_INT, root,
			    comm);
		MPI_Scatterv(buffers[0], counts, places, MPI_INT, buffers[1], counts[rank], MPI_INT, root, comm);
		MPI_Scatterv(is_root ? buffers[0] : 0, is_root ? counts : 0, is_root ? places : 0, MPI_INT, buffers[1],
			     counts[rank], MPI_INT, root, comm);
		MPI_Allgatherv(buffers[0], counts[rank], MPI_INT, buffers[1], counts, places, MPI_INT, comm);
		MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, buffers[1], counts, places, MPI_INT, comm);
		MPI_Alltoallv(buffers[0], pairs, places, MPI_INT, buffers[1], pairs, places, MPI_INT, comm);
		MPI_Alltoallv(MPI_IN_PLACE, pairs, places, MPI_INT, buffers[1], pairs, places, MPI_INT, comm);
		MPI_Reduce_scatter(buffers[0], buffers[1], counts, MPI_INT, MPI_SUM, comm);
		MPI_Reduce_scatter(MPI_IN_PLACE, buffers[1], counts, MPI_INT, MPI_SUM, comm);
	}
}

/* Memory of others, through a window of a communicator in which ranks have another order. */
static void accesses(void)
{
	int size = size_of(MPI_COMM_WORLD);
	static long memory[256], value = 1, old;
	MPI_Request request;
	MPI_Status status;
	MPI_Win win;

	MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &window_comm);
	MPI_Win_create(memory, sizeof(memory), sizeof(long), MPI_INFO_NULL, window_comm, &win);
	for (int i = 0; i < 5; i++) {
		MPI_Win_fence(0, win);
		for (int target = 0; target < size; target++) {
			MPI_Put(buffers[0], 2 + i, MPI_INT, target, 0, 2 + i, MPI_INT, win);
			MPI_Get(buffers[1], 3 + i, MPI_DOUBLE, target, 10, 3 + i, MPI_DOUBLE, win);
			MPI_Accumulate(&value, 1, MPI_LONG, target, 30, 1, MPI_LONG, MPI_SUM, win);
		}
		MPI_Put(buffers[0], 2, MPI_INT, MPI_PROC_NULL, 0, 2, MPI_INT, win);
		MPI_Win_fence(0, win);
		for (int target = 0; target < size; target++) {
			MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
			MPI_Fetch_and_op(&value, &old, MPI_LONG, target, 40, MPI_SUM, win);
			MPI_Win_flush(target, win);
			MPI_Rput(buffers[0], 4 + i, MPI_INT, target, 50, 4 + i, MPI_INT, win, &request);
			MPI_Wait(&request, &status);
			MPI_Win_unlock(target, win);
		}
	}
	MPI_Win_free(&win);
}

/* A file that all write and read, beyond its end, too; the library sends messages of its own meanwhile. */
static void files(void)
{
	int size = size_of(MPI_COMM_WORLD);
	MPI_Request request;
	MPI_Status status;
	MPI_File file;
	char path[4096];

	snprintf(path, sizeof(path), "%s/data", folder);
	MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
	MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
	for (int i = 0; i < 10; i++) {
		MPI_File_write_at(file, 400 * world_rank, buffers[0], 10 + i, MPI_INT, &status);
		MPI_File_write_at(file, 400 * world_rank + 200, buffers[0], 50, MPI_INT, MPI_STATUS_IGNORE);
		MPI_File_write_at_all(file, 400 * world_rank, buffers[0], 12 + i, MPI_INT, &status);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_File_read_at_all(file, 400 * (size - 1), buffers[1], 80 + 10 * i, MPI_INT, &status);
		MPI_File_iread_at(file, 0, buffers[1], 3 + i, MPI_DOUBLE, &request);
		MPI_Wait(&request, &status);
	}
	MPI_File_sync(file);
	MPI_File_close(&file);
}

/* More requests at once than the elements of a list that are recorded. */
static void many(MPI_Comm comm)
{
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size, left = (rank + size - 1) % size, flag;
	MPI_Request requests[60];
	MPI_Status statuses[60];

	for (int i = 0; i < 20; i++) {
		int count = 20 + 10 * (i % 5), index;

		for (int n = 0; n < count / 2; n++) {
			MPI_Irecv(buffers[n], 256, MPI_INT, left, 50 + n % 3, comm, &requests[n]);
			MPI_Isend(buffers[60 + n], 2 + n, MPI_INT, right, 50 + n % 3, comm, &requests[count / 2 + n]);
		}
		flag = 0;
		switch (i % 4) {
		case 0:
			MPI_Waitall(count, requests, statuses);
			break;
		case 1:
			while (!flag)
				MPI_Testall(count, requests, &flag, statuses);
			break;
		case 2:
			for (int n = 0; n < count; n++)
				MPI_Waitany(count, requests, &index, statuses);
			break;
		default:
			for (int n = 0; n < count; n += flag)
				MPI_Testany(count, requests, &index, &flag, statuses);
		}
	}
}

/* What few programs do: undone receives, messages to oneself, sizes that nobody asks for, ready and buffered sends. */
static void unusual(MPI_Comm comm)
{
	static char attached[1 << 16];
	/* gcc takes what stands for no statuses for the address of some. */
	static MPI_Status *volatile no_statuses = MPI_STATUSES_IGNORE;
	static const MPI_Datatype types[] = { MPI_CHAR, MPI_SHORT, MPI_LONG_DOUBLE, MPI_C_DOUBLE_COMPLEX, MPI_PACKED };
	int size = size_of(comm), rank = rank_of(comm), right = (rank + 1) % size, left = (rank + size - 1) % size, flag;
	void *room;
	int bytes;
	MPI_Request requests[2];
	MPI_Message message;
	MPI_Status status;

	MPI_Buffer_attach(attached, sizeof(attached));
	for (int i = 0; i < 10; i++) {
#ifdef OPEN_MPI
		/* MPICH does not tell it from a receive of no bytes. */
		MPI_Irecv(buffers[0], 256, MPI_INT, left, 80, comm, &requests[0]);
		MPI_Cancel(&requests[0]);
		MPI_Wait(&requests[0], &status);
#endif
		MPI_Irecv(buffers[0], 256, MPI_INT, rank, 81, comm, &requests[0]);
		MPI_Send(buffers[1], 2 + i, MPI_INT, rank, 81, comm);
		MPI_Wait(&requests[0], &status);
		MPI_Sendrecv(buffers[0], 3 + i, MPI_INT, rank, 82, buffers[1], 256, MPI_INT, rank, 82, comm, &status);
		MPI_Irecv(buffers[0], 200, MPI_INT, left, 83, comm, &requests[0]);
		MPI_Isend(buffers[1], 4 + i, MPI_INT, right, 83, comm, &requests[1]);
		MPI_Waitall(2, requests, no_statuses);
		MPI_Irecv(buffers[0], 256, MPI_INT, left, 84, comm, &requests[0]);
		MPI_Barrier(comm);
		MPI_Rsend(buffers[1], 5 + i, MPI_INT, right, 84, comm);
		MPI_Wait(&requests[0], &status);
		MPI_Bsend(buffers[1], 6 + i, MPI_INT, right, 85, comm);
		do
			MPI_Iprobe(MPI_ANY_SOURCE, 85, comm, &flag, &status);
		while (!flag);
		MPI_Recv(buffers[0], 256, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
		MPI_Isend(buffers[1], 7 + i, MPI_INT, right, 61, comm, &requests[1]);
		do
			MPI_Improbe(left, 61, comm, &flag, &message, &status);
		while (!flag);
		MPI_Mrecv(buffers[0], 256, MPI_INT, &message, &status);
		MPI_Wait(&requests[1], &status);
		for (int n = 0; n < 5; n++) {
			MPI_Irecv(buffers[0], 1024, MPI_BYTE, left, 86, comm, &requests[0]);
			MPI_Send(buffers[1], i ? 8 + i : 0, types[n], right, 86, comm);
			MPI_Wait(&requests[0], &status);
		}
	}
	MPI_Buffer_detach(&room, &bytes);
}

/* Operations in place, between neighbours, and on memory that the window brings. */
static void further_operations(void)
{
	int size = size_of(MPI_COMM_WORLD), dims[1] = { size }, periods[1] = { 1 }, weight = 1;
	long *memory, value = 1, old[4];
#ifndef OPEN_MPI
	long expected = 0;
#endif
	int left = (world_rank + size - 1) % size, right = (world_rank + 1) % size;
	MPI_Request request;
	MPI_Status status;
	MPI_Comm ring, graph;
	MPI_Win win;

	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
	name(ring, "ring");
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, &weight, 1, &right, &weight, MPI_INFO_NULL,
				       0, &graph);
	name(graph, "graph");
	/* MPICH says nothing of ranks in a communicator but by this function. */
	if (rank_of(ring) != world_rank || rank_of(graph) != world_rank)
		abort();
	MPI_Comm_dup(MPI_COMM_WORLD, &window_comm);
	MPI_Win_allocate(2048, sizeof(long), MPI_INFO_NULL, window_comm, &memory, &win);
	for (int i = 0; i < 10; i++) {
		MPI_Allreduce(MPI_IN_PLACE, buffers[0], 3 + i, MPI_INT, MPI_SUM, ring);
		MPI_Reduce(is_own(ring, i % size) ? MPI_IN_PLACE : buffers[0], buffers[0], 4 + i, MPI_INT, MPI_SUM, i % size,
			   ring);
		MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, buffers[0], 1 + i, MPI_INT, ring);
		MPI_Scan(MPI_IN_PLACE, buffers[0], 0, MPI_INT, MPI_SUM, ring);
		MPI_Neighbor_allgather(buffers[0], 2 + i, MPI_INT, buffers[1], 2 + i, MPI_INT, ring);
		MPI_Neighbor_alltoall(buffers[0], 2 + i, MPI_INT, buffers[1], 2 + i, MPI_INT, graph);
		MPI_Sendrecv(buffers[0], 2 + i, MPI_INT, right, 87, buffers[1], 256, MPI_INT, left, 87, graph, &status);
		MPI_Win_lock_all(0, win);
		for (int target = 0; target < size; target++) {
			MPI_Rget(buffers[1], 1 + i, MPI_LONG, target, 0, 1 + i, MPI_LONG, win, &request);
			MPI_Wait(&request, &status);
			/* Open MPI 4.1.4 crashes in it on one machine. */
#ifndef OPEN_MPI
			MPI_Compare_and_swap(&value, &expected, old, MPI_LONG, target, 30, win);
#endif
			MPI_Get_accumulate(&value, 1, MPI_LONG, old, 1, MPI_LONG, target, 31, 1, MPI_LONG, MPI_SUM, win);
			MPI_Win_flush_all(win);
		}
		MPI_Win_unlock_all(win);
	}
	MPI_Win_free(&win);
}

/* Two halves that talk to each other. */
static void intercommunicator(void)
{
	int side = world_rank % 2, number = rank_of(MPI_COMM_WORLD) / 2;
	MPI_Comm half, inter, merged;
	MPI_Status status;

	MPI_Comm_split(MPI_COMM_WORLD, side, world_rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 99, &inter);
	name(inter, "inter");
	for (int i = 0; i < 10; i++)
		MPI_Sendrecv(buffers[0], 10 + i, MPI_INT, number, 5, buffers[1], 256, MPI_INT, number, 5, inter, &status);
	MPI_Intercomm_merge(inter, side, &merged);
	name(merged, "merged");
	blocking(merged);
}

/* Each thread has a tag of its own, and one that it shares with the others: there each message has a size of its own. */
static void *exchange(void *number)
{
	static int rooms[4][2][256];
	int thread = (int)(long)number, size = size_of(MPI_COMM_WORLD), *in = rooms[thread][0], *from = rooms[thread][1];
	int right = (world_rank + 1) % size, left = (world_rank + size - 1) % size;
	MPI_Comm comm = MPI_COMM_WORLD;
	MPI_Request requests[2];
	MPI_Status statuses[2];

	for (int i = 0; i < 40; i++) {
		MPI_Irecv(in, 256, MPI_INT, left, 1000 + thread, comm, &requests[0]);
		MPI_Isend(from, 2 + i * thread, MPI_INT, right, 1000 + thread, comm, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		MPI_Sendrecv(from, 2 + i, MPI_INT, left, 2000 + thread, in, 256, MPI_INT, right, 2000 + thread, comm,
			     statuses);
		MPI_Sendrecv(from, 2 + 4 * i + thread, MPI_INT, right, 3000, in, 256, MPI_INT, left, 3000, comm, statuses);
	}
	return 0;
}

static void threads(void)
{
	pthread_t others[3];

	for (long thread = 0; thread < 3; thread++)
		pthread_create(&others[thread], 0, exchange, (void *)(thread + 1));
	exchange(0);
	for (int thread = 0; thread < 3; thread++)
		pthread_join(others[thread], 0);
}

/* Calls everything where nothing is sent, until what traces it knows where each call returns. */
static void warm_up(void)
{
	MPI_Comm world = MPI_COMM_WORLD;
	MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	MPI_Status statuses[2];
	MPI_Message message;
	int number, index, flag, indices[2];
	char go[4096];

	snprintf(go, sizeof(go), "%s/go", folder);
	while (access(go, F_OK)) {
		MPI_Send(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world);
		MPI_Ssend(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world);
		MPI_Recv(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, statuses);
		MPI_Sendrecv(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, buffers[1], 0, MPI_INT, MPI_PROC_NULL, 0, world,
			     statuses);
		MPI_Sendrecv_replace(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, MPI_PROC_NULL, 0, world, statuses);
		MPI_Isend(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[0]);
		MPI_Wait(&requests[0], statuses);
		MPI_Issend(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[0]);
		MPI_Irecv(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[1]);
		MPI_Waitall(2, requests, statuses);
		MPI_Waitany(2, requests, &index, statuses);
		MPI_Testany(2, requests, &index, &flag, statuses);
		MPI_Waitsome(2, requests, &number, indices, statuses);
		MPI_Testsome(2, requests, &number, indices, statuses);
		MPI_Testall(2, requests, &flag, statuses);
		MPI_Test(&requests[0], &flag, statuses);
		MPI_Send_init(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[0]);
		MPI_Recv_init(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[1]);
		MPI_Start(&requests[0]);
		MPI_Wait(&requests[0], statuses);
		MPI_Startall(2, requests);
		MPI_Waitall(2, requests, statuses);
		MPI_Request_free(&requests[0]);
		MPI_Request_free(&requests[1]);
		MPI_Probe(MPI_PROC_NULL, 0, world, statuses);
		MPI_Mprobe(MPI_PROC_NULL, 0, world, &message, statuses);
		MPI_Mrecv(buffers[0], 0, MPI_INT, &message, statuses);
		MPI_Improbe(MPI_PROC_NULL, 0, world, &flag, &message, statuses);
		MPI_Imrecv(buffers[0], 0, MPI_INT, &message, &requests[0]);
		MPI_Wait(&requests[0], statuses);
#if MPI_VERSION >= 4
		MPI_Send_c(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world);
		MPI_Recv_c(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, statuses);
		MPI_Isend_c(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[0]);
		MPI_Irecv_c(buffers[0], 0, MPI_INT, MPI_PROC_NULL, 0, world, &requests[1]);
		MPI_Waitall(2, requests, statuses);
#endif
		usleep(40000);
	}
}

static void run(const char *scenario)
{
	MPI_Comm world = MPI_COMM_WORLD;

	if (!strcmp(scenario, "blocking"))
		blocking(world);
	else if (!strcmp(scenario, "nonblocking"))
		nonblocking(world);
	else if (!strcmp(scenario, "wildcards"))
		wildcards(world);
	else if (!strcmp(scenario, "derived"))
		derived(world);
	else if (!strcmp(scenario, "communicators"))
		communicators();
	else if (!strcmp(scenario, "files"))
		files();
	else if (!strcmp(scenario, "many"))
		many(world);
	else if (!strcmp(scenario, "unusual"))
		unusual(world);
	else if (!strcmp(scenario, "further_operations"))
		further_operations();
	else if (!strcmp(scenario, "probes"))
		probes(world);
	else if (!strcmp(scenario, "large"))
		large(world);
	else if (!strcmp(scenario, "collectives"))
		collectives(world);
	else if (!strcmp(scenario, "accesses"))
		accesses();
	else if (!strcmp(scenario, "intercommunicator"))
		intercommunicator();
	else if (!strcmp(scenario, "threads"))
		threads();
	else if (!strcmp(scenario, "persistent"))
		persistent(world);
	else
		abort();
}
