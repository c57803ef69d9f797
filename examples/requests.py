#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tracing costs a server that runs under load, in requests per second.

    examples/requests.py --counter COMMAND -- TRACER ... [-- TRACER ...] ...

COMMAND prints how many requests the server has served so far. Each TRACER command runs in turn on the same server, as
servers differ by a third from start to start; the time before and after it is what it is compared with. For example, with
nginx and `stub_status` under a load of `wrk`:

    examples/requests.py --counter "curl -s localhost:8080/status | awk 'NR == 3 { print \\$3 }'" --rounds 3 \\
        -- rtrace attach nginx --lib libcrypto.so.3 --no-tui -o /tmp/default \\
        -- rtrace attach nginx --lib libcrypto.so.3 --no-tui -o /tmp/small --budget 5%

Each line has percents of the requests per second without the tracer: the mean, and the slowest second, until rtrace says
that it is recording, while it records, and until it has ended.
"""

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import threading
import time

STEP = 0.25
STEPS_OF_SECOND = 4


class Rate(threading.Thread):
    """Reads the counter until it is told to stop."""

    def __init__(self, counter):
        super().__init__(daemon=True)
        self.counter = counter
        self.samples = []
        self.is_over = False

    def count(self):
        return int(subprocess.run(self.counter, shell=True, check=True, capture_output=True, text=True).stdout)

    def run(self):
        count, then = self.count(), time.monotonic()
        while not self.is_over:
            time.sleep(STEP)
            more, now = self.count(), time.monotonic()
            self.samples.append((now, (more - count) / (now - then)))
            count, then = more, now

    def between(self, begin, end):
        return [rate for at, rate in self.samples if begin <= at < end]


def seconds(rates):
    """The means of all whole seconds."""
    lasts = range(STEPS_OF_SECOND, max(len(rates), STEPS_OF_SECOND) + 1)
    return [statistics.mean(rates[last - STEPS_OF_SECOND : last]) for last in lasts]


def trace(command, duration):
    """Runs a tracer; when it began, recorded, was told to end, and had ended."""
    if "-o" in command:
        shutil.rmtree(command[command.index("-o") + 1], ignore_errors=True)
    begin = time.monotonic()
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = list(itertools.takewhile(lambda line: "recording" not in line, tracer.stderr))
    recording = time.monotonic()
    if tracer.poll() is not None:
        sys.exit("".join(said))
    time.sleep(duration)
    asked = time.monotonic()
    tracer.terminate()
    tracer.stderr.read()
    tracer.wait()
    return begin, recording, asked, time.monotonic()


def main():
    words = sys.argv[1:]
    first = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counter", required=True, help="shell command that prints the requests served so far")
    parser.add_argument("--rounds", type=int, default=1, help="how often each command runs")
    parser.add_argument("--duration", type=float, default=6, help="seconds that each records")
    options = parser.parse_args(words[:first])
    commands = [list(group) for is_mark, group in itertools.groupby(words[first:], lambda word: word == "--") if not is_mark]
    if not commands:
        parser.error("no tracer: add -- rtrace attach ...")
    rate = Rate(options.counter)
    rate.start()
    time.sleep(3)
    for command in commands * options.rounds:
        begin, recording, asked, end = trace(command, options.duration)
        time.sleep(4)
        alone = statistics.median(rate.between(begin - 3, begin) + rate.between(end + 1, end + 4))
        print(f"{alone:,.0f}/s alone; {' '.join(command)}")
        for phase, since, until in [("attach", begin, recording), ("record", recording, asked), ("end", asked, end)]:
            rates = rate.between(since, until + STEP)
            if rates:
                mean, worst = statistics.mean(rates) / alone, min(seconds(rates)) / alone
                print(f"    {phase:7s} {until - since:5.1f} s   mean {mean:4.0%}   slowest second {worst:4.0%}", flush=True)
    rate.is_over = True


if __name__ == "__main__":
    main()
