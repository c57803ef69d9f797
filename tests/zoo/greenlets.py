"""Greenlets that switch under C callbacks: their stacks are slices that are copied away and back."""
import os
import sys

print("ready", os.getpid(), flush=True)
sys.stdin.readline()

import functools
import zlib

import greenlet

checksums = 0


def compare(a, b):
    hub.switch()
    return (a > b) - (a < b)


def sort(numbers):
    global checksums
    ordered = sorted(numbers, key=functools.cmp_to_key(compare))
    checksums = zlib.crc32(repr(ordered).encode(), checksums)


hub = greenlet.getcurrent()
workers = [greenlet.greenlet(sort) for _ in range(20)]
for number, worker in enumerate(workers):
    worker.switch([(i * 37 + number) % 101 for i in range(40)])
alive = list(workers)
switches = 0
while alive:
    for worker in alive:
        worker.switch()
        switches += 1
    alive = [worker for worker in alive if not worker.dead]
print(switches, checksums)
print("truth crc32", len(workers), 0)
