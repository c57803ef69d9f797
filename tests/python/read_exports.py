# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the exports of a trace with other people's readers and compares every call, or every call path's sums, with
the trace's Parquet files.

usage: read_exports.py TRACE FOLDER

FOLDER holds an export NAME of each format NAME. Prints a line for each reader that is not installed. The trace must
have no losses.
"""

import csv
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

TRACE, EXPORTS = Path(sys.argv[1]), Path(sys.argv[2])
READERS = {}


def reader(name):
    def register(read):
        READERS[name] = read
        return read

    return register


def rows(path):
    return pyarrow.dataset.dataset(path).to_table().to_pylist()


REGIONS = {row["region"]: row for row in rows(TRACE / "regions.parquet")}
NAMES = {region: row["name"] for region, row in REGIONS.items()}
SYMBOLS = {region: row["symbols"][0]["symbol"] for region, row in REGIONS.items()}
LOCATIONS = {row["location"]: row for row in rows(TRACE / "locations.parquet")}
PROCESSES = {row["pid"]: row for row in rows(TRACE / "processes.parquet")}
CALLS = sorted(rows(TRACE / "calls"), key=lambda call: (call["location"], call["call"]))
BEGIN = json.loads((TRACE / "trace.json").read_text())["header"]["begin"]["monotonic"]
TIMED = [call for call in CALLS if call["ending"] != "unseen"]
assert all((call["duration_ns"] is None) == (call["ending"] == "unseen") for call in CALLS)


def ends():
    """When each call ended; one that was not timed with its last callee, or where it was entered."""
    found = {}
    for call in reversed(CALLS):
        place = call["location"], call["call"]
        if call["duration_ns"] is None:
            end = max(call["start_ns"], found.get(place, 0))
        else:
            end = call["start_ns"] + call["duration_ns"]
        caller = call["location"], call["parent"]
        found[caller] = max(end, found.get(caller, 0))
        found[place] = end
    return found


ENDS = ends()


def end(call):
    return ENDS[call["location"], call["call"]]


def timed_depths():
    """Of each call, the number of timed calls around it."""
    around = {}
    for call in CALLS:
        above = around.get((call["location"], call["parent"]), (0, False))
        around[call["location"], call["call"]] = (sum(above), call["duration_ns"] is not None)
    return {place: depth for place, (depth, _) in around.items()}


def with_paths():
    """Each call's path of functions, the root first."""
    paths = {}
    for call in CALLS:
        above = paths[call["location"], call["parent"]] if call["parent"] else ()
        paths[call["location"], call["call"]] = (*above, NAMES[call["region"]])
    return paths


METRICS = {row["metric"]: row for row in rows(TRACE / "metrics.parquet")}
COUNTERS = [row for row in METRICS.values() if row["scope"] == "call"]
SAMPLES = [{**row, **METRICS[row["metric"]]} for row in rows(TRACE / "samples")]
PATHS = with_paths()
COUNTS, TIMES, INCLUSIVE, READINGS = Counter(), Counter(), Counter(), Counter()
for call in CALLS:
    path = PATHS[call["location"], call["call"]]
    COUNTS[path] += 1
    if call["duration_ns"] is None:
        assert all(call[counter["column"]] is None for counter in COUNTERS), call
        continue
    TIMES[path] += call["duration_ns"] - call["child_ns"]
    INCLUSIVE[path] += call["duration_ns"]
    for counter in COUNTERS:
        READINGS[path, counter["name"]] += call[counter["column"]] - call[f"{counter['column']}_child"]
TIMES = +TIMES


AT_EXIT = {row["column"] for row in rows(TRACE / "values.parquet") if row["at_exit"]}
VALUES = {}
for folder in (TRACE / "values").iterdir():
    for row in rows(folder):
        VALUES[row.pop("location"), row.pop("call")] = row
assert len(VALUES) > 1_000


def values(call):
    """The arguments and results of a call, some of them None."""
    return VALUES.get((call["location"], call["call"]), {})


def known(values):
    return tuple((name, value) for name, value in values.items() if value is not None)


def same(found, expected):
    """Compares counters or lists and shows little of a difference."""
    found, expected = Counter(found), Counter(expected)
    if found != expected:
        raise AssertionError(f"unexpected {list((found - expected).items())[:3]}, missing {list((expected - found).items())[:3]}")


def intervals(calls=CALLS, offset=0):
    """Thread, function, begin, end and depth of each call; where it was not timed, its end is that of its callees."""
    for call in calls:
        thread = LOCATIONS[call["location"]]["tid"]
        yield thread, NAMES[call["region"]], call["start_ns"] - offset, end(call) - offset, call["depth"]


def instants():
    """As intervals, but calls that were not timed take no time and are nobody's caller."""
    depths = timed_depths()
    for call, (*interval, _) in zip(CALLS, intervals(), strict=True):
        thread, name, begin, stop = interval
        stop = begin if call["duration_ns"] is None else stop
        yield thread, name, begin, stop, depths[call["location"], call["call"]]


def readings(call):
    return tuple(call[counter["column"]] for counter in COUNTERS)


def grown():
    """How much each counter grows during a call: during one that was not timed, by what its callees counted."""
    found = {}
    for call in reversed(CALLS):
        place, caller = (call["location"], call["call"]), (call["location"], call["parent"])
        counts = found.get(place, (0,) * len(COUNTERS)) if call["duration_ns"] is None else readings(call)
        found[place] = counts
        found[caller] = tuple(a + b for a, b in zip(found.get(caller, (0,) * len(COUNTERS)), counts, strict=True))
    return found


def sampled(row):
    """A sample as timelines name it."""
    name = row["name"] if row["scope"] == "node" else f"{row['name']} ({row['instance']})"
    factor = f"{row['base']}^{row['exponent']}*" if row["exponent"] else ""
    return name, factor + row["unit"], row["time_ns"], row["value"]


@reader("otf2")
def otf2(path):
    output = subprocess.run(["otf2-print", path / "traces.otf2"], capture_output=True, text=True, check=True)
    assert not output.stderr, output.stderr
    events = Counter(line.split()[0] for line in output.stdout.splitlines() if line.startswith(("ENTER", "LEAVE")))
    same(events, {"ENTER": len(CALLS), "LEAVE": len(CALLS)})
    script = Path(__file__).with_name("read_otf2.py")
    output = subprocess.run(["/usr/bin/python3", script, path / "traces.otf2"], capture_output=True, text=True, check=True)
    assert not output.stderr, output.stderr
    counts = grown()

    def parameters(call):
        shown = {float: str, str: lambda text: text.replace("\n", "\\x0a")}
        return tuple((name, shown.get(type(value), int)(value)) for name, value in known(values(call)))

    expected = (
        (call["location"], NAMES[call["region"]], SYMBOLS[call["region"]], call["start_ns"], end(call), call["depth"], call["ending"], parameters(call), counts[call["location"], call["call"]])
        for call in CALLS
    )
    found = json.loads(output.stdout)
    same(((*call, tuple(map(tuple, values)), tuple(grown)) for *call, values, grown in found["calls"]), expected)
    modes = {"since_start": "ACCUMULATED_START", "since_last": "ABSOLUTE_LAST", "point": "ABSOLUTE_POINT", "until_next": "ABSOLUTE_NEXT"}
    kinds = {"thread": "LOCATION", "process": "LOCATION_GROUP", "socket": "SYSTEM_TREE_NODE", "node": "SYSTEM_TREE_NODE"}
    host = json.loads((TRACE / "trace.json").read_text())["header"]["host"]

    def owner(scope, instance):
        if scope == "thread":
            name = next(row["name"] for row in LOCATIONS.values() if row["tid"] == instance)
            name = re.sub(r"[\x00-\x1f]", lambda control: f"\\x{ord(control[0]):02x}", name)
            return f"{name} ({instance})"
        if scope == "process":
            return f"{Path(PROCESSES[instance]['executable']).name} ({instance})"
        return f"socket {instance}" if scope == "socket" else host

    expected = (
        (row["name"], modes[row["span"]], kinds[row["scope"]], owner(row["scope"], row["instance"]), row["time_ns"], row["value"])
        for row in SAMPLES
    )
    same(map(tuple, found["samples"]), expected)


def told(members):
    """The arguments and results in a JSON object, in the order of the trace."""
    result = {"result": members["result"]} if "result" in members else {}
    return tuple({**members.get("args", {}), **result, **members.get("out", {})}.items())


@reader("perfetto")
def perfetto(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

    trace = proto.Trace.FromString(path.read_bytes())
    threads, sequences, stacks, found, counters, samples, counts, arguments_of = {}, {}, {}, [], {}, [], [], []

    def annotations(notes):
        for note in notes:
            kind = note.WhichOneof("value")
            yield from annotations(note.dict_entries) if kind is None else [(note.name, getattr(note, kind))]

    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            threads[packet.track_descriptor.uuid] = packet.track_descriptor.thread.tid
        if packet.track_descriptor.HasField("counter"):
            track = packet.track_descriptor
            counters[track.uuid] = (track.name, track.counter.unit_name)
        if packet.HasField("trace_packet_defaults"):
            assert packet.sequence_flags & 1 and packet.trace_packet_defaults.timestamp_clock_id == 3
            sequences[sequence] = (packet.trace_packet_defaults.track_event_defaults.track_uuid, {})
        if not packet.HasField("track_event") or packet.track_event.HasField("name"):
            continue
        if packet.track_event.type == packet.track_event.TYPE_COUNTER:
            event = packet.track_event
            samples.append((*counters[event.track_uuid], packet.timestamp, event.double_counter_value))
            continue
        track, names = sequences[sequence]
        names.update({name.iid: name.name for name in packet.interned_data.event_names})
        event, stack = packet.track_event, stacks.setdefault(track, [])
        name = names.get(event.name_iid)
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.append((name, packet.timestamp, tuple(annotations(event.debug_annotations))))
        elif event.type == event.TYPE_SLICE_END:
            name, begin, at_enter = stack.pop()
            at_exit = tuple(pair for pair in annotations(event.debug_annotations) if pair[0] in AT_EXIT)
            arguments_of.append((name, begin, at_enter + at_exit))
            found.append((threads[track], name, begin, packet.timestamp, len(stack)))
            arguments = {note.name: note.uint_value for note in event.debug_annotations}
            counts.append((name, begin, *(arguments[counter["name"]] for counter in COUNTERS)))
        elif event.type == event.TYPE_INSTANT:
            found.append((threads[track], name, packet.timestamp, packet.timestamp, len(stack)))
            assert [note.bool_value for note in event.debug_annotations if note.name == "untimed"] == [True]
    assert not any(stacks.values())
    same(found, instants())
    same(counts, ((NAMES[call["region"]], call["start_ns"], *readings(call)) for call in TIMED))
    same(arguments_of, ((NAMES[call["region"]], call["start_ns"], known(values(call))) for call in TIMED))
    same(samples, map(sampled, SAMPLES))


@reader("chrome")
def chrome(path):
    trace = json.loads(path.read_text())
    nanoseconds = lambda micros: round(micros * 1000)
    found, samples, counts, arguments_of = [], [], [], []
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            [(unit, value)] = event["args"].items()
            samples.append((event["name"], unit, nanoseconds(event["ts"]) + BEGIN, value))
        if event["ph"] not in "Xi" or event["cat"] == "rtrace":
            continue
        begin = nanoseconds(event["ts"])
        stop = begin + nanoseconds(event.get("dur", 0))
        found.append((event["tid"], event["name"], begin + BEGIN, stop + BEGIN))
        assert (event["ph"] == "i") == event["args"].get("untimed", False), event
        counts.append((event["name"], begin + BEGIN, *(event["args"].get(counter["name"]) for counter in COUNTERS)))
        arguments_of.append((event["name"], begin + BEGIN, told(event["args"])))
    same(found, (interval[:4] for interval in instants()))
    same(counts, ((NAMES[call["region"]], call["start_ns"], *readings(call)) for call in CALLS))
    same(arguments_of, ((NAMES[call["region"]], call["start_ns"], tuple(values(call).items())) for call in CALLS))
    same(samples, ((row["name"], *sampled(row)[1:]) for row in SAMPLES))


@reader("speedscope")
def speedscope(path):
    profile = json.loads(path.read_text())
    frames, found = profile["shared"]["frames"], []
    for thread in profile["profiles"]:
        assert thread["unit"] == "nanoseconds"
        tid, stack, now = int(re.search(r"\((\d+)\)$", thread["name"])[1]), [], thread["startValue"]
        for event in thread["events"]:
            assert now <= event["at"] <= thread["endValue"]
            now = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], now))
            else:
                frame, begin = stack.pop()
                assert frame == event["frame"]
                found.append((tid, frames[frame]["name"], begin, now, len(stack)))
        assert not stack
    same(found, intervals(offset=BEGIN))


COLUMNS = ["location", "call", "parent", "depth", "start_ns", "duration_ns", "child_ns", "ending"]


def columns(rows, readings, values):
    return ((*(row[name] for name in COLUMNS), row["tid"], row["function"], tuple(values(row)), *readings(row)) for row in rows)


def expected_columns():
    for call in CALLS:
        place = (LOCATIONS[call["location"]]["tid"], NAMES[call["region"]])
        yield (*(call[name] for name in COLUMNS), *place, tuple(values(call).items()), *readings(call))


@reader("csv")
def comma_separated(path):
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line.update({name: int(line[name]) if line[name] else None for name in [*COLUMNS[:-1], "tid"]})
    counted = lambda line: (int(line[counter["name"]]) if line[counter["name"]] else None for counter in COUNTERS)
    told = lambda line: json.loads(line["values"] or "{}").items()
    same(columns(lines, counted, told), expected_columns())
    assert polars.read_csv(path).height == len(CALLS)


@reader("jsonl")
def json_lines(path):
    lines = [json.loads(line) for line in path.open()]
    assert lines[0]["type"] == "recording"
    counted = lambda line: (line.get("counters", {}).get(counter["name"], {}).get("inclusive") for counter in COUNTERS)
    same(columns((line for line in lines if line["type"] == "call"), counted, told), expected_columns())


@reader("arrow")
def arrow(path):
    counted = lambda row: (row[counter["column"]] for counter in COUNTERS)
    places = {name: place for place, name in enumerate(["n", "text", "result", "x", "y"])}

    def of_maps(row):
        pairs = []
        for members in (row[kind] or [] for kind in ("integers", "floats", "texts")):
            members = members.items() if isinstance(members, dict) else members
            pairs += [tuple(member.values()) if isinstance(member, dict) else member for member in members]
        return sorted(pairs, key=lambda pair: places[pair[0]])

    with pyarrow.ipc.open_stream(path) as stream:
        same(columns(stream.read_all().to_pylist(), counted, of_maps), expected_columns())
    same(columns(polars.read_ipc_stream(path).iter_rows(named=True), counted, of_maps), expected_columns())


@reader("folded")
def folded(path):
    found = Counter()
    for line in path.open():
        stack, time = line.rsplit(" ", 1)
        _process, _thread, *functions = stack.split(";")
        found[tuple(functions)] += int(time)
    same(found, TIMES)


@reader("pprof")
def pprof(path):
    """Decodes the few messages of profile.proto by their field numbers."""

    def fields(data):
        place = 0

        def varint():
            nonlocal place
            value = shift = 0
            while True:
                byte = data[place]
                place += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        while place < len(data):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
            else:
                assert key & 7 == 2
                length = varint()
                place += length
                yield key >> 3, data[place - length : place]

    def numbers(data):
        values, value, shift = [], 0, 0
        for byte in data:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                values.append(value)
                value = shift = 0
        return values

    profile = list(fields(gzip.decompress(path.read_bytes())))
    of = lambda number: [value for field, value in profile if field == number]
    texts = [text.decode() for text in of(6)]
    counters = [[counter["name"], counter["unit"]] for counter in COUNTERS]
    kinds = [[texts[name] for _, name in fields(kind)] for kind in of(1)]
    assert kinds == [["calls", "count"], ["time", "nanoseconds"], *counters], kinds
    functions = {f[1]: texts[f[2]] for f in map(dict, map(fields, of(5)))}
    lines = {location[1]: dict(fields(location[4]))[1] for location in map(dict, map(fields, of(4)))}
    counts, times, readings = Counter(), Counter(), Counter()
    for sample in map(dict, map(fields, of(2))):
        stack = tuple(functions[lines[location]] for location in reversed(numbers(sample[1])))
        calls, time, *counted = numbers(sample[2])
        counts[stack] += calls
        times[stack] += time
        for counter, count in zip(COUNTERS, counted, strict=True):
            readings[stack, counter["name"]] += count
    same(counts, COUNTS)
    same(+times, TIMES)
    same(+readings, +READINGS)


@reader("firefox")
def firefox(path):
    profile = json.loads(gzip.decompress(path.read_bytes()))
    found = Counter()
    for thread in profile["threads"]:
        texts, stacks, paths = thread["stringArray"], thread["stackTable"], []
        for frame, prefix in zip(stacks["frame"], stacks["prefix"], strict=True):
            name = texts[thread["funcTable"]["name"][thread["frameTable"]["func"][frame]]]
            paths.append((*(paths[prefix] if prefix is not None else ()), name))
        samples = thread["samples"]
        assert samples["time"] == sorted(samples["time"])
        for stack, weight in zip(samples["stack"], samples["weight"], strict=True):
            if stack is not None:
                found[paths[stack]] += round(weight * 1_000_000)
    same(+found, TIMES)


@reader("callgrind")
def callgrind(path):
    output = subprocess.run(["callgrind_annotate", "--threshold=100", path], capture_output=True, text=True, check=True)
    found = {}
    for line in output.stdout.splitlines():
        if match := re.match(r"\s*([\d,]+) .*PROGRAM TOTALS", line):
            assert int(match[1].replace(",", "")) == sum(TIMES.values()), line
        elif match := re.match(r"\s*([\d,]+) \(.*?\)\s+\?\?\?:(.*) \[", line):
            found[match[2]] = int(match[1].replace(",", ""))
    expected = Counter()
    for functions, time in TIMES.items():
        expected[functions[-1]] += time
    same(found, expected)


@reader("cubex")
def cubex(path):
    from pycubexr import CubexParser

    counts, times, readings = Counter(), Counter(), Counter()
    with CubexParser(path) as cube:
        metrics = {metric.name: cube.get_metric_values(metric) for metric in cube.all_metrics()}
        assert set(metrics) == {"visits", "time", "tracing", *(counter["name"] for counter in COUNTERS)}, metrics
        assert len(cube.get_locations()) == len({call["location"] for call in CALLS})
        stack = [(cube.get_root_cnodes()[0], ())]
        while stack:
            node, path = stack.pop()
            stack += [(callee, (*path, cube.get_region(callee).name)) for callee in node.get_children()]
            counts[path] += int(metrics["visits"].value(node))
            times[path] += int(metrics["time"].value(node))
            for counter in COUNTERS:
                readings[path, counter["name"]] += int(metrics[counter["name"]].value(node))
    same(+counts, COUNTS)
    same(+times, TIMES)
    same(+readings, +READINGS)


def number(label):
    """The number in front of a label."""
    return int(label.split()[0].replace(",", ""))


def main():
    for name, read in READERS.items():
        try:
            read(EXPORTS / name)
        except (FileNotFoundError, ModuleNotFoundError) as missing:
            print(f"skipped: no reader of {name}: {missing}")
        except Exception as error:
            raise SystemExit(f"{name}: {error!r}") from error
    unread = {path.name for path in EXPORTS.iterdir()} - set(READERS)
    assert unread <= {"event-flow-code"}, unread


main()
