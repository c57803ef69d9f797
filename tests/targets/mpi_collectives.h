// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Collective operations: what is sent to all ranks and received from all, as Score-P counts it; -1: not told. */

static void collective(const char *event, MPI_Comm comm, int root, long out_bytes, long in_bytes)
{
	fprintf(out, "C %s %s %d %ld %ld\n", event, label_of(comm), root < 0 ? -1 : world_of(comm, root), out_bytes,
		in_bytes);
}

static int ranks(MPI_Comm comm)
{
	int size;

	PMPI_Comm_size(comm, &size);
	return size;
}

static int is_own(MPI_Comm comm, int root)
{
	int rank;

	PMPI_Comm_rank(comm, &rank);
	return rank == root;
}

#define BUFFERS const void *from, int count, MPI_Datatype type, void *to, int room, MPI_Datatype of

int MPI_Barrier(MPI_Comm comm)
{
	collective("barrier", comm, -1, 0, 0);
	return PMPI_Barrier(comm);
}

#if MPI_VERSION >= 4
int MPI_Bcast_c(void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
{
	long bytes = bytes_of(count, type);

	collective("broadcast", comm, root, is_own(comm, root) ? bytes * ranks(comm) : 0, bytes);
	return PMPI_Bcast_c(buffer, count, type, root, comm);
}
#endif

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	long bytes = bytes_of(count, type);

	collective("broadcast", comm, root, is_own(comm, root) ? bytes * ranks(comm) : 0, bytes);
	return PMPI_Bcast(buffer, count, type, root, comm);
}

int MPI_Ibcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request)
{
	long bytes = bytes_of(count, type);

	collective("broadcast", comm, root, is_own(comm, root) ? bytes * ranks(comm) : 0, bytes);
	return PMPI_Ibcast(buffer, count, type, root, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
	collective("barrier", comm, -1, 0, 0);
	return PMPI_Ibarrier(comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
		   MPI_Request *request)
{
	collective("allreduce", comm, -1, bytes_of(count, type) * ranks(comm), bytes_of(count, type) * ranks(comm));
	return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
	long bytes = bytes_of(count, type);

	collective("reduce", comm, root, from == MPI_IN_PLACE ? 0 : bytes,
		   is_own(comm, root) ? bytes * (ranks(comm) - (from == MPI_IN_PLACE)) : 0);
	return PMPI_Reduce(from, to, count, type, op, root, comm);
}

/* `all` ranks, whose own one is `own`, and how many are sent to and received from. */
#define TO_ALL(name, event, out_ranks, in_ranks)                                                            \
	int MPI_##name(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)  \
	{                                                                                                   \
		long bytes = bytes_of(count, type);                                                         \
		int all = ranks(comm), others = all - (from == MPI_IN_PLACE), own;                          \
                                                                                                            \
		PMPI_Comm_rank(comm, &own);                                                                 \
		(void)others;                                                                               \
		collective(event, comm, -1, bytes * (out_ranks), bytes * (in_ranks));                       \
		return PMPI_##name(from, to, count, type, op, comm);                                        \
	}
TO_ALL(Allreduce, "allreduce", others, others)
TO_ALL(Scan, "scan", others - own, own + 1 - (all - others))
TO_ALL(Exscan, "exscan", all - own - 1, own)

#define NEIGHBOURS(name)                                                                                    \
	int MPI_##name(BUFFERS, MPI_Comm comm)                                                             \
	{                                                                                                   \
		collective("collective", comm, -1, -1, -1);                                                 \
		return PMPI_##name(from, count, type, to, room, of, comm);                                  \
	}
NEIGHBOURS(Neighbor_allgather)
NEIGHBOURS(Neighbor_alltoall)

int MPI_Gather(BUFFERS, int root, MPI_Comm comm)
{
	collective("gather", comm, root, from == MPI_IN_PLACE ? 0 : bytes_of(count, type),
		   is_own(comm, root) ? bytes_of(room, of) * (ranks(comm) - (from == MPI_IN_PLACE)) : 0);
	return PMPI_Gather(from, count, type, to, room, of, root, comm);
}

int MPI_Scatter(BUFFERS, int root, MPI_Comm comm)
{
	collective("scatter", comm, root,
		   is_own(comm, root) ? bytes_of(count, type) * (ranks(comm) - (to == MPI_IN_PLACE)) : 0,
		   to == MPI_IN_PLACE ? 0 : bytes_of(room, of));
	return PMPI_Scatter(from, count, type, to, room, of, root, comm);
}

int MPI_Allgather(BUFFERS, MPI_Comm comm)
{
	long others = ranks(comm) - (from == MPI_IN_PLACE);

	collective("allgather", comm, -1, (from == MPI_IN_PLACE ? bytes_of(room, of) : bytes_of(count, type)) * others,
		   bytes_of(room, of) * others);
	return PMPI_Allgather(from, count, type, to, room, of, comm);
}

int MPI_Alltoall(BUFFERS, MPI_Comm comm)
{
	long given = from == MPI_IN_PLACE ? bytes_of(room, of) : bytes_of(count, type);

	long others = ranks(comm) - (from == MPI_IN_PLACE);

	collective("alltoall", comm, -1, given * others, bytes_of(room, of) * others);
	return PMPI_Alltoall(from, count, type, to, room, of, comm);
}

int MPI_Reduce_scatter_block(const void *from, void *to, int room, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	long others = ranks(comm) - (from == MPI_IN_PLACE);

	collective("reduce_scatter_block", comm, -1, bytes_of(room, type) * others, bytes_of(room, type) * others);
	return PMPI_Reduce_scatter_block(from, to, room, type, op, comm);
}

/* Only Open MPI says how many ranks there are, and in place, the own part is not known apart. */
static long all_of(const int counts[], MPI_Datatype type, MPI_Comm comm, int in_place)
{
#ifdef OPEN_MPI
	int size, inter;
	long all = 0;

	PMPI_Comm_test_inter(comm, &inter);
	if (inter)
		PMPI_Comm_remote_size(comm, &size);
	else
		PMPI_Comm_size(comm, &size);
	for (int rank = 0; rank < size; rank++)
		all += bytes_of(counts[rank], type);
	return in_place ? -1 : all;
#else
	(void)counts, (void)type, (void)comm, (void)in_place;
	return -1;
#endif
}

int MPI_Gatherv(const void *from, int count, MPI_Datatype type, void *to, const int rooms[], const int places[],
		MPI_Datatype of, int root, MPI_Comm comm)
{
	int in_place = from == MPI_IN_PLACE;

	collective("gatherv", comm, root, in_place ? 0 : bytes_of(count, type),
		   is_own(comm, root) ? all_of(rooms, of, comm, in_place) : 0);
	return PMPI_Gatherv(from, count, type, to, rooms, places, of, root, comm);
}

int MPI_Scatterv(const void *from, const int counts[], const int places[], MPI_Datatype type, void *to, int room,
		 MPI_Datatype of, int root, MPI_Comm comm)
{
	int in_place = to == MPI_IN_PLACE;

	collective("scatterv", comm, root, is_own(comm, root) ? all_of(counts, type, comm, in_place) : 0,
		   in_place ? 0 : bytes_of(room, of));
	return PMPI_Scatterv(from, counts, places, type, to, room, of, root, comm);
}

int MPI_Allgatherv(const void *from, int count, MPI_Datatype type, void *to, const int rooms[], const int places[],
		   MPI_Datatype of, MPI_Comm comm)
{
	int in_place = from == MPI_IN_PLACE;

	collective("allgatherv", comm, -1, in_place ? -1 : bytes_of(count, type) * ranks(comm),
		   all_of(rooms, of, comm, in_place));
	return PMPI_Allgatherv(from, count, type, to, rooms, places, of, comm);
}

int MPI_Alltoallv(const void *from, const int counts[], const int places[], MPI_Datatype type, void *to,
		  const int rooms[], const int at[], MPI_Datatype of, MPI_Comm comm)
{
	int in_place = from == MPI_IN_PLACE;

	collective("alltoallv", comm, -1, in_place ? -1 : all_of(counts, type, comm, 0), all_of(rooms, of, comm, in_place));
	return PMPI_Alltoallv(from, counts, places, type, to, rooms, at, of, comm);
}

int MPI_Reduce_scatter(const void *from, void *to, const int rooms[], MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	long all = all_of(rooms, type, comm, 0), room, in_place = from == MPI_IN_PLACE;
	int own;

	PMPI_Comm_rank(comm, &own);
	room = all < 0 ? -1 : bytes_of(rooms[own], type);
	collective("reduce_scatter", comm, -1, all < 0 || !in_place ? all : all - room,
		   all < 0 ? -1 : room * (ranks(comm) - in_place));
	return PMPI_Reduce_scatter(from, to, rooms, type, op, comm);
}
