// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Messages of MPI that log themselves: each function is defined here around its PMPI one, and writes what it did to a
 * file of its rank, in ranks of the world. The first eight bytes of a message are its sender and a number of its own.
 *
 *   S number target tag bytes communicator            a message begins to be sent
 *   R number source tag bytes communicator from id    a message was received: the number of its receive, in the order
 *                                                     in which they were posted, and what the message says of itself
 *   C function communicator root sent received        a collective operation; -1: no root
 *   F kind bytes done                                 a file was read or written: as asked for and as the status says, or -1
 *   P kind target bytes                               an access to memory of another rank
 *   G communicator members                            a communicator was made
 *
 * Usage: mpi_messages FOLDER SCENARIO... It starts when there is a file FOLDER/go.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 128

static FILE *out;
static int world_rank, sent, posted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static MPI_Group world_group;
/* That of the window of accesses. */
static MPI_Comm window_comm;

/* Communicators by label. */
static struct {
	MPI_Comm comm;
	char label[32];
} known[MOST];
static int labels;

/* Receives that were posted, and persistent requests. */
static struct pending {
	MPI_Request request;
	int kind; /* 0: none, 1: receive, 2: persistent send, 3: persistent receive, 4: active persistent receive */
	int number, count, peer, tag;
	long bytes;
	const void *buffer;
	MPI_Comm comm;
	pthread_t thread;
} pending[MOST];

/* That of logs. */
static const char *folder;

/* The message that was probed for last. */
static struct pending probed;

static const char *label_of(MPI_Comm comm)
{
	for (int i = 0; i < labels; i++)
		if (known[i].comm == comm)
			return known[i].label;
	return "?";
}

static int world_of(MPI_Comm comm, int rank)
{
	MPI_Group group;
	int result, inter;

	if (rank < 0)
		return -1;
	PMPI_Comm_test_inter(comm, &inter);
	if (inter)
		PMPI_Comm_remote_group(comm, &group);
	else
		PMPI_Comm_group(comm, &group);
	PMPI_Group_translate_ranks(group, 1, &rank, world_group, &result);
	PMPI_Group_free(&group);
	return result;
}

static void name(MPI_Comm comm, const char *label)
{
	int size;

	if (comm == MPI_COMM_NULL)
		return;
	pthread_mutex_lock(&lock);
	known[labels].comm = comm;
	snprintf(known[labels++].label, sizeof(known->label), "%s", label);
	pthread_mutex_unlock(&lock);
	PMPI_Comm_size(comm, &size);
	fprintf(out, "G %s ", label);
	for (int rank = 0; rank < size; rank++) {
		MPI_Group group;
		int world;

		PMPI_Comm_group(comm, &group);
		PMPI_Group_translate_ranks(group, 1, &rank, world_group, &world);
		PMPI_Group_free(&group);
		fprintf(out, "%s%d", rank ? "," : "", world);
	}
	fprintf(out, "\n");
}

static void drop(MPI_Comm comm)
{
	for (int i = 0; i < labels; i++)
		if (known[i].comm == comm)
			known[i].comm = MPI_COMM_NULL;
}

static long bytes_of(int count, MPI_Datatype type)
{
	int size;

	PMPI_Type_size(type, &size);
	return (long)count * size;
}

static void log_send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
	long bytes = bytes_of(count, type);
	int number;

	if (to == MPI_PROC_NULL)
		return;
	pthread_mutex_lock(&lock);
	number = ++sent;
	if (bytes >= 8) {
		((int *)buffer)[0] = world_rank;
		((int *)buffer)[1] = number;
	}
	fprintf(out, "S %d %d %d %ld %s\n", number, world_of(comm, to), tag, bytes, label_of(comm));
	pthread_mutex_unlock(&lock);
}

/* What a status says was received; without one, what was posted. */
static void log_recv(int number, const void *buffer, long posted_bytes, MPI_Comm comm, const MPI_Status *status)
{
	int bytes = 0, source, tag;

	/* Nobody, or nothing. */
	if (status->MPI_SOURCE < 0)
		return;
	PMPI_Get_count(status, MPI_BYTE, &bytes);
	source = world_of(comm, status->MPI_SOURCE);
	tag = status->MPI_TAG;
	(void)posted_bytes;
	pthread_mutex_lock(&lock);
	fprintf(out, "R %d %d %d %d %s %d %d\n", number, source, tag, bytes, label_of(comm),
		bytes >= 8 ? ((int *)buffer)[0] : -1, bytes >= 8 ? ((int *)buffer)[1] : -1);
	pthread_mutex_unlock(&lock);
}

static struct pending *keep(MPI_Request request, int kind, const void *buffer, long bytes, MPI_Comm comm)
{
	struct pending *at = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST && !at; i++)
		if (!pending[i].kind)
			at = &pending[i];
	if (!at)
		abort();
	*at = (struct pending){ .request = request, .kind = kind, .buffer = buffer, .bytes = bytes, .comm = comm };
	at->thread = pthread_self();
	pthread_mutex_unlock(&lock);
	return at;
}

/* Of the own thread: when a request ends, another thread may get its handle at once. */
static struct pending *find(MPI_Request request)
{
	struct pending *at = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; request != MPI_REQUEST_NULL && i < MOST && !at; i++)
		if (pending[i].kind && pending[i].request == request && pthread_equal(pending[i].thread, pthread_self()))
			at = &pending[i];
	pthread_mutex_unlock(&lock);
	return at;
}

static void find_all(int count, const MPI_Request requests[], struct pending *found[])
{
	for (int i = 0; i < count; i++)
		found[i] = find(requests[i]);
}

static int next_posted(void)
{
	int number;

	pthread_mutex_lock(&lock);
	number = ++posted;
	pthread_mutex_unlock(&lock);
	return number;
}

#define SEND(name)                                                                                          \
	int MPI_##name(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)      \
	{                                                                                                   \
		log_send(buf, count, type, to, tag, comm);                                                  \
		return PMPI_##name(buf, count, type, to, tag, comm);                                        \
	}
SEND(Send)
SEND(Ssend)
SEND(Bsend)
SEND(Rsend)

#define ISEND(name)                                                                                         \
	int MPI_##name(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,      \
		       MPI_Request *request)                                                               \
	{                                                                                                   \
		log_send(buf, count, type, to, tag, comm);                                                  \
		return PMPI_##name(buf, count, type, to, tag, comm, request);                               \
	}
ISEND(Isend)
ISEND(Issend)

int MPI_Recv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
	int number = next_posted();
	int error = PMPI_Recv(buf, count, type, from, tag, comm, status);

	if (status == MPI_STATUS_IGNORE) {
		int *head = buf;

		if (from != MPI_PROC_NULL)
			fprintf(out, "R %d %d %d ?%ld %s %d %d\n", number, head[0], tag, bytes_of(count, type),
				label_of(comm), head[0], head[1]);
	} else {
		log_recv(number, buf, 0, comm, status);
	}
	return error;
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
	int number = next_posted();
	int error = PMPI_Irecv(buf, count, type, from, tag, comm, request);
	struct pending *at = keep(*request, 1, buf, bytes_of(count, type), comm);

	at->number = number;
	at->peer = from;
	at->tag = tag;
	return error;
}

/* A request has ended; without a status, the message says who sent it. */
static void ended(struct pending *at, const MPI_Status *status)
{
	const int *head;
	int cancelled = 0;

	if (!at || (at->kind != 1 && at->kind != 4))
		return;
	head = at->buffer;
	if (!status)
		fprintf(out, "R %d %d %d ?%ld %s %d %d\n", at->number, world_of(at->comm, at->peer), at->tag, at->bytes,
			label_of(at->comm), head[0], head[1]);
	else if (PMPI_Test_cancelled(status, &cancelled), !cancelled)
		log_recv(at->number, at->buffer, at->bytes, at->comm, status);
	at->kind = at->kind == 1 ? 0 : 3;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
	struct pending *before = find(*request);
	int error = PMPI_Wait(request, status);

	ended(before, status);
	return error;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
	struct pending *before = find(*request);
	int error = PMPI_Test(request, flag, status);

	if (*flag)
		ended(before, status);
	return error;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
	struct pending *before[MOST];
	int error;

	find_all(count, requests, before);
	error = PMPI_Waitall(count, requests, statuses);
	for (int i = 0; i < count; i++)
		ended(before[i], statuses == MPI_STATUSES_IGNORE ? 0 : &statuses[i]);
	return error;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status *statuses)
{
	struct pending *before[MOST];
	int error;

	find_all(count, requests, before);
	error = PMPI_Testall(count, requests, flag, statuses);
	for (int i = 0; *flag && i < count; i++)
		ended(before[i], &statuses[i]);
	return error;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
	struct pending *before[MOST];
	int error;

	find_all(count, requests, before);
	error = PMPI_Waitany(count, requests, index, status);
	if (*index != MPI_UNDEFINED)
		ended(before[*index], status);
	return error;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
	struct pending *before[MOST];
	int error;

	find_all(count, requests, before);
	error = PMPI_Testany(count, requests, index, flag, status);
	if (*flag && *index != MPI_UNDEFINED)
		ended(before[*index], status);
	return error;
}

#define SOME(name)                                                                                          \
	int MPI_##name(int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses)  \
	{                                                                                                   \
		struct pending *before[MOST];                                                                   \
		int error;                                                                                  \
                                                                                                            \
		find_all(count, requests, before);                                        \
		error = PMPI_##name(count, requests, done, indices, statuses);                              \
		for (int i = 0; *done != MPI_UNDEFINED && i < *done; i++)                                   \
			ended(before[indices[i]], &statuses[i]);                                            \
		return error;                                                                               \
	}
SOME(Waitsome)
SOME(Testsome)

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int to, int sendtag, void *recvbuf,
		 int recvcount, MPI_Datatype recvtype, int from, int recvtag, MPI_Comm comm, MPI_Status *status)
{
	int number = next_posted(), error;

	log_send(sendbuf, sendcount, sendtype, to, sendtag, comm);
	error = PMPI_Sendrecv(sendbuf, sendcount, sendtype, to, sendtag, recvbuf, recvcount, recvtype, from, recvtag,
			      comm, status);
	log_recv(number, recvbuf, 0, comm, status);
	return error;
}

int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
	int error = PMPI_Mprobe(from, tag, comm, message, status);

	if (from != MPI_PROC_NULL)
		probed = (struct pending){ .number = next_posted(), .comm = comm };
	return error;
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
	int error = PMPI_Improbe(from, tag, comm, flag, message, status);

	if (*flag && from != MPI_PROC_NULL)
		probed = (struct pending){ .number = next_posted(), .comm = comm };
	return error;
}

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
	int error = PMPI_Imrecv(buf, count, type, message, request);

	keep(*request, 1, buf, bytes_of(count, type), probed.comm)->number = probed.number;
	return error;
}

int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
	int error = PMPI_Mrecv(buf, count, type, message, status);

	log_recv(probed.number, buf, 0, probed.comm, status);
	return error;
}

#define FILE_AT(name, event, is_const)                                                                      \
	int MPI_File_##name(MPI_File file, MPI_Offset offset, is_const void *buf, int count, MPI_Datatype type,   \
			    MPI_Status *status)                                                             \
	{                                                                                                   \
		int error = PMPI_File_##name(file, offset, buf, count, type, status), bytes = -1;          \
                                                                                                            \
		if (status != MPI_STATUS_IGNORE)                                                           \
			PMPI_Get_count(status, MPI_BYTE, &bytes);                                          \
		fprintf(out, "F %s %ld %d\n", event, bytes_of(count, type), bytes);                        \
		return error;                                                                               \
	}
FILE_AT(write_at, "io_write", const)
FILE_AT(write_at_all, "io_write", const)
FILE_AT(read_at_all, "io_read", )

int MPI_File_iread_at(MPI_File file, MPI_Offset offset, void *buf, int count, MPI_Datatype type, MPI_Request *request)
{
	fprintf(out, "F io_read %ld -1\n", bytes_of(count, type));
	return PMPI_File_iread_at(file, offset, buf, count, type, request);
}

/* The same with counts of 64 bits. */
#if MPI_VERSION >= 4
int MPI_Send_c(const void *buf, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
	log_send(buf, count, type, to, tag, comm);
	return PMPI_Send_c(buf, count, type, to, tag, comm);
}

int MPI_Isend_c(const void *buf, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
		MPI_Request *request)
{
	log_send(buf, count, type, to, tag, comm);
	return PMPI_Isend_c(buf, count, type, to, tag, comm, request);
}

int MPI_Irecv_c(void *buf, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
	int number = next_posted();
	int error = PMPI_Irecv_c(buf, count, type, from, tag, comm, request);

	keep(*request, 1, buf, bytes_of(count, type), comm)->number = number;
	return error;
}

int MPI_Recv_c(void *buf, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
	int number = next_posted();
	int error = PMPI_Recv_c(buf, count, type, from, tag, comm, status);

	log_recv(number, buf, 0, comm, status);
	return error;
}
#endif

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int to, int sendtag, int from, int recvtag,
			 MPI_Comm comm, MPI_Status *status)
{
	int number = next_posted(), error;

	log_send(buf, count, type, to, sendtag, comm);
	error = PMPI_Sendrecv_replace(buf, count, type, to, sendtag, from, recvtag, comm, status);
	log_recv(number, buf, 0, comm, status);
	return error;
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
	int error = PMPI_Send_init(buf, count, type, to, tag, comm, request);
	struct pending *at = keep(*request, 2, buf, bytes_of(count, type), comm);

	at->peer = to;
	at->tag = tag;
	return error;
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
	int error = PMPI_Recv_init(buf, count, type, from, tag, comm, request);

	keep(*request, 3, buf, bytes_of(count, type), comm);
	return error;
}

static void started(MPI_Request request)
{
	struct pending *at = find(request);

	if (at->kind == 2) {
		log_send(at->buffer, at->bytes, MPI_BYTE, at->peer, at->tag, at->comm);
	} else {
		at->kind = 4;
		at->number = next_posted();
	}
}

int MPI_Start(MPI_Request *request)
{
	started(*request);
	return PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[])
{
	for (int i = 0; i < count; i++)
		started(requests[i]);
	return PMPI_Startall(count, requests);
}

int MPI_Request_free(MPI_Request *request)
{
	struct pending *at = find(*request);

	if (at)
		at->kind = 0;
	return PMPI_Request_free(request);
}

#include "mpi_collectives.h"

static void access_to(const char *event, int target, int count, MPI_Datatype type)
{
	if (target != MPI_PROC_NULL)
		fprintf(out, "P %s %d %ld\n", event, world_of(window_comm, target), bytes_of(count, type));
}

int MPI_Put(const void *from, int count, MPI_Datatype type, int target, MPI_Aint at, int room, MPI_Datatype of,
	    MPI_Win win)
{
	access_to("rma_iput", target, count, type);
	return PMPI_Put(from, count, type, target, at, room, of, win);
}

int MPI_Get(void *to, int count, MPI_Datatype type, int target, MPI_Aint at, int room, MPI_Datatype of, MPI_Win win)
{
	access_to("rma_iget", target, count, type);
	return PMPI_Get(to, count, type, target, at, room, of, win);
}

int MPI_Rput(const void *from, int count, MPI_Datatype type, int target, MPI_Aint at, int room, MPI_Datatype of,
	     MPI_Win win, MPI_Request *request)
{
	access_to("rma_iput", target, count, type);
	return PMPI_Rput(from, count, type, target, at, room, of, win, request);
}

int MPI_Rget(void *to, int count, MPI_Datatype type, int target, MPI_Aint at, int room, MPI_Datatype of, MPI_Win win,
	     MPI_Request *request)
{
	access_to("rma_iget", target, count, type);
	return PMPI_Rget(to, count, type, target, at, room, of, win, request);
}

int MPI_Get_accumulate(const void *from, int count, MPI_Datatype type, void *old, int room, MPI_Datatype of, int target,
		       MPI_Aint at, int changed, MPI_Datatype there, MPI_Op op, MPI_Win win)
{
	access_to("rma_iatomic", target, changed, there);
	return PMPI_Get_accumulate(from, count, type, old, room, of, target, at, changed, there, op, win);
}

int MPI_Compare_and_swap(const void *from, const void *expected, void *old, MPI_Datatype type, int target, MPI_Aint at,
			 MPI_Win win)
{
	access_to("rma_iatomic", target, 1, type);
	return PMPI_Compare_and_swap(from, expected, old, type, target, at, win);
}

int MPI_Accumulate(const void *from, int count, MPI_Datatype type, int target, MPI_Aint at, int room,
		   MPI_Datatype of, MPI_Op op, MPI_Win win)
{
	access_to("rma_iatomic", target, count, type);
	return PMPI_Accumulate(from, count, type, target, at, room, of, op, win);
}

int MPI_Fetch_and_op(const void *from, void *to, MPI_Datatype type, int target, MPI_Aint at, MPI_Op op, MPI_Win win)
{
	access_to("rma_iatomic", target, 1, type);
	return PMPI_Fetch_and_op(from, to, type, target, at, op, win);
}

#include "mpi_scenarios.h"

int main(int count, char **words)
{
	char path[4096];
	int provided, is_threaded = count > 2 && !strcmp(words[2], "threads");

	if (is_threaded)
		MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
	else
		MPI_Init(&count, &words);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
	folder = words[1];
	snprintf(path, sizeof(path), "%s/log.%d", folder, world_rank);
	out = fopen(path, "w");
	name(MPI_COMM_WORLD, "world");
	warm_up();
	for (int i = 2; i < count; i++)
		run(words[i]);
	fclose(out);
	MPI_Finalize();
	return 0;
}
