#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints the top ten functions by exclusive time, once a second, while rtrace records.

    rtrace run --lib libz.so --sink 'python3 examples/top.py' -- python3 -m gzip file

The calls arrive on standard input as an Arrow stream; SCHEMA.md names the columns.
"""

import collections
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc


def show(calls, nanoseconds):
    print(f"{'calls':>12} {'exclusive':>12}  function")
    for name, time_ns in nanoseconds.most_common(10):
        print(f"{calls[name]:>12} {time_ns / 1e6:>9.3f} ms  {ascii(name)[1:-1]}")
    print(flush=True)


calls, nanoseconds = collections.Counter(), collections.Counter()
shown = time.monotonic()
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    exclusive = pc.subtract(batch["duration_ns"], batch["child_ns"])
    table = pa.table({"function": batch["function"].cast(pa.string()), "exclusive": exclusive})
    # Untimed calls count, and add no time: theirs is null.
    sums = [("exclusive", "sum"), ("exclusive", "count", pc.CountOptions(mode="all"))]
    for row in table.group_by("function").aggregate(sums).to_pylist():
        name = row["function"] or "[unknown]"
        calls[name] += row["exclusive_count"]
        nanoseconds[name] += row["exclusive_sum"] or 0
    if time.monotonic() - shown >= 1:
        show(calls, nanoseconds)
        shown = time.monotonic()
show(calls, nanoseconds)
