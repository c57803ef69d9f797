# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Messages of mpi4py that log themselves, in the lines of mpi_messages.c.

usage: mpi_python.py FOLDER. It starts when there is a file FOLDER/go.
"""

import os
import struct
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
log = open(f"{sys.argv[1]}/log.{rank}", "w")
print("G world", ",".join(map(str, range(ranks))), file=log)
sent = posted = 0


def log_send(data, to, tag, label="world"):
    global sent
    sent += 1
    if len(data) >= 8:
        struct.pack_into("ii", data, 0, rank, sent)
    print("S", sent, to, tag, len(data), label, file=log)


def post():
    global posted
    posted += 1
    return posted


def log_recv(number, data, status, label="world", members=None):
    source, count = status.Get_source(), status.Get_count(MPI.BYTE)
    said = struct.unpack_from("ii", data) if count >= 8 else (-1, -1)
    print("R", number, members[source] if members else source, status.Get_tag(), count, label, *said, file=log)


def room():
    return bytearray(1024)


def blocking():
    status = MPI.Status()
    for n in range(20):
        for source in range(ranks):
            if source == rank:
                for to in range(ranks):
                    if to != rank:
                        data = bytearray(20 * n)
                        log_send(data, to, 7 + n % 3)
                        world.Send([data, MPI.BYTE], to, 7 + n % 3)
            else:
                number, data = post(), room()
                world.Recv([data, MPI.BYTE], source, 7 + n % 3, status)
                log_recv(number, data, status)


def nonblocking():
    for n in range(12):
        numbers, rooms, requests = [], [], []
        for k in (1, 2):
            numbers.append(post())
            rooms.append(room())
            requests.append(world.Irecv([rooms[-1], MPI.BYTE], (rank - k) % ranks, 100 + n))
        data = [bytearray(30 + n + k) for k in (1, 2)]
        for k in (1, 2):
            log_send(data[k - 1], (rank + k) % ranks, 100 + n)
            requests.append(world.Isend([data[k - 1], MPI.BYTE], (rank + k) % ranks, 100 + n))
        statuses = [MPI.Status() for _ in requests]
        if n % 3 == 0:
            MPI.Request.Waitall(requests, statuses)
        elif n % 3 == 1:
            while not MPI.Request.Testall(requests, statuses):
                pass
        else:
            for request, status in zip(requests, statuses):
                request.Wait(status)
        for place in range(2):
            log_recv(numbers[place], rooms[place], statuses[place])


def communicators():
    half = world.Split(rank % 2, -rank)
    members = list(range(rank % 2, ranks, 2))[::-1]
    label = "odd" if rank % 2 else "even"
    print("G", label, ",".join(map(str, members)), file=log)
    status, other = MPI.Status(), 1 - half.rank
    for n in range(10):
        number, data, received = post(), bytearray(10 + n), room()
        log_send(data, members[other], n, label)
        half.Sendrecv([data, MPI.BYTE], other, n, [received, MPI.BYTE], other, n, status)
        log_recv(number, received, status, label, members)


def collectives():
    for root in range(ranks):
        is_root = rank == root
        print("C barrier world -1 0 0", file=log)
        world.Barrier()
        print("C broadcast world", root, 50 * ranks if is_root else 0, 50, file=log)
        world.Bcast([bytearray(50), MPI.BYTE], root)
        print("C allreduce world -1", 16 * ranks, 16 * ranks, file=log)
        world.Allreduce([bytearray(16), 2, MPI.LONG], [bytearray(16), 2, MPI.LONG])


# What is called where nothing is sent, until what traces it knows where each call returns.
while not os.path.exists(f"{sys.argv[1]}/go"):
    status = MPI.Status()
    world.Send([bytearray(0), MPI.BYTE], MPI.PROC_NULL)
    world.Recv([bytearray(0), MPI.BYTE], MPI.PROC_NULL, 0, status)
    world.Sendrecv([bytearray(0), MPI.BYTE], MPI.PROC_NULL, 0, [bytearray(0), MPI.BYTE], MPI.PROC_NULL, 0, status)
    requests = [world.Irecv([bytearray(0), MPI.BYTE], MPI.PROC_NULL), world.Isend([bytearray(0), MPI.BYTE], MPI.PROC_NULL)]
    MPI.Request.Waitall(requests, [MPI.Status(), MPI.Status()])
    MPI.Request.Testall(requests, [MPI.Status(), MPI.Status()])
    world.Irecv([bytearray(0), MPI.BYTE], MPI.PROC_NULL).Wait(status)
    MPI.COMM_SELF.Split().Free()
    time.sleep(0.04)
blocking()
nonblocking()
communicators()
collectives()
log.close()
