"""Forks, threads and coroutines that all use zlib; children end by themselves or by a signal."""
import os
import sys

print("ready", os.getpid(), flush=True)
sys.stdin.readline()

import asyncio
import signal
import threading
import zlib

CHILDREN, THREADS, TASKS = 20, 8, 10


def work(n):
    return sum(zlib.crc32(b"%d" % i) for i in range(n))


async def task(n):
    await asyncio.sleep(0)
    return work(n)


async def tasks():
    return sum(await asyncio.gather(*(task(10) for _ in range(TASKS))))


sums = [0] * THREADS


def thread(number):
    sums[number] = work(100)


threads = [threading.Thread(target=thread, args=(n,)) for n in range(THREADS)]
for each in threads:
    each.start()
for each in threads:
    each.join()
statuses = []
for child in range(CHILDREN):
    pid = os.fork()
    if not pid:
        work(10)
        if child % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(child)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(sum(sums), asyncio.run(tasks()), *statuses)
if "zlib" in sys.argv:
    print("truth crc32", THREADS * 100 + TASKS * 10 + CHILDREN * 10, 0)
