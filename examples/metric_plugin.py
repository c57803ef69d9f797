#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A metric plug-in for rtrace: the machine's load and free memory, ten times a second.

    rtrace attach -p PID --lib LIB --metric-plugin examples/metric_plugin.py
"""

import time

PERIOD_S = 0.1


def free_kib():
    with open("/proc/meminfo") as meminfo:
        fields = dict(line.split(":") for line in meminfo)
    return int(fields["MemAvailable"].split()[0])


def runnable():
    with open("/proc/loadavg") as loadavg:
        return int(loadavg.read().split()[3].split("/")[0])


# What is measured: name, scope and unit; its values are of one point in time.
print("metrics node/available:node:2^10*B node/runnable:node:#", flush=True)
while True:
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    print(f"node/available {free_kib()} {now}", flush=True)
    print(f"node/runnable {runnable()} {now}", flush=True)
    time.sleep(PERIOD_S)
