# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace, or several as one: the files of each, joined, with a column that tells them apart."""

import json
import os
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from . import _join
from ._frames import converted

#: The version of the directory that this package reads.
SCHEMA = 2

#: Columns of `calls/` that every trace has, or that a newer one has.
STORED = {
    "location": pa.int32(),
    "call": pa.int64(),
    "parent": pa.int64(),
    "depth": pa.int32(),
    "start_ns": pa.int64(),
    "duration_ns": pa.int64(),
    "child_ns": pa.int64(),
    "ending": pa.dictionary(pa.int8(), pa.string()),
    "call_site": pa.int32(),
    "region": pa.int32(),
}


class NotATrace(ValueError):
    """The directory contains no trace, or one that this package does not know."""


@dataclass(frozen=True)
class Recording:
    """One of the recordings that make up a trace."""

    #: Its place among them.
    trace: int
    directory: Path
    #: The contents of its trace.json.
    about: dict
    #: Nanoseconds from its clock to the one that all share.
    shift_ns: int = 0

    @property
    def header(self):
        return self.about["header"]

    @property
    def summary(self):
        """What was known when it ended; None while it runs, or if rtrace was killed."""
        return self.about.get("summary")

    @property
    def rank(self):
        """Its rank in a parallel job, or None."""
        return (self.header.get("rank") or {}).get("rank")

    def table(self, name):
        """A file of definitions as it is, or None if there is none."""
        path = self.directory / f"{name}.parquet"
        return pq.ParquetFile(path).read() if path.is_file() else None

    def dataset(self, name):
        """The segments in a folder, or None if there are none."""
        segments = [str(path) for path in sorted((self.directory / name).glob("[!.]*.parquet"))]
        return ds.dataset(segments) if segments else None


class Trace:
    """A trace directory, or several that are read as one. Nothing is read before it is asked for."""

    def __init__(self, directory):
        directory = Path(directory)
        members = [directory]
        if not (directory / "trace.json").is_file():
            members = sorted(path.parent for path in directory.glob("*/trace.json")) if directory.is_dir() else []
        if not members:
            raise NotATrace(f"`{directory}` is not a trace directory: it contains no trace.json")
        self.directory = directory
        self.traces = _recordings(members)
        #: When the first recording started, on the clock that all share.
        self.begin_ns = min(of.header["begin"]["monotonic"] + of.shift_ns for of in self.traces)

    def __repr__(self):
        return f"rtrace.open({str(self.directory)!r})"

    def is_complete(self):
        """Whether all recordings have ended, and no call was lost."""
        summaries = [of.summary for of in self.traces]
        return all(summary and not summary["losses"] and not summary["blind_windows"] for summary in summaries)

    def calls(self, columns=None, functions=None, begin_s=None, end_s=None, values=False, to="arrow"):
        """All calls that have a record, each joined with what it refers to.

        columns: names of columns, in this order; all if None.
        functions: a name, a pattern such as `fftw_*`, or several of them.
        begin_s, end_s: only calls that start in this window, in seconds since the recording started.
        values: whether to add the arguments and results that were recorded with --args.
        to: "arrow", "pandas" or "polars".
        """
        parts = list(self._batches(columns, functions, begin_s, end_s, values))
        return converted(pa.concat_tables(parts, promote_options="permissive").unify_dictionaries(), to)

    def batches(self, columns=None, functions=None, begin_s=None, end_s=None, to="arrow"):
        """The same in parts, of at most some 100,000 calls each, for traces that do not fit into memory."""
        for part in self._batches(columns, functions, begin_s, end_s, False):
            if len(part):
                yield converted(part, to)

    def functions(self, to="arrow"):
        """The functions that were probed."""
        return self._definitions(_join.functions, to)

    def libraries(self, to="arrow"):
        """The files that contain the functions."""
        return self._definitions(_join.libraries, to)

    def threads(self, to="arrow"):
        """The traced threads."""
        return self._definitions(_join.threads, to)

    def processes(self, to="arrow"):
        """The traced processes."""
        return self._definitions(_join.processes, to)

    def call_sites(self, to="arrow"):
        """The places in code that made calls."""
        return self._definitions(_join.call_sites, to)

    def paths(self, to="arrow"):
        """Sums over the calls of each call path of a thread: of aggregated calls, and of all others once a recording
        has ended. Each takes as long to read as there are paths, however many calls there were."""
        return self._definitions(_join.paths, to)

    def metrics(self, to="arrow"):
        """What was measured beside time."""
        return self._definitions(lambda of: _join.stored(of, "metrics"), to)

    def value_columns(self, to="arrow"):
        """Which arguments and results the calls of each function have."""
        return self._definitions(_join.value_columns, to)

    def events(self, to="arrow"):
        """What happened during the recordings; `detail` is JSON."""
        return self._definitions(lambda of: _join.segments(of, "events"), to)

    def samples(self, to="arrow"):
        """Values of processes and of the machine, in `unit`."""
        return self._definitions(lambda of: _join.samples(of, self.begin_ns), to)

    def sql(self, rtrace=None):
        """The SQL views of the trace, as `rtrace info --sql` prints them.

        rtrace: the program; $RTRACE, or `rtrace`, if None.
        """
        program = rtrace or os.environ.get("RTRACE", "rtrace")
        command = [program, "info", "--sql", str(self.directory)]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout

    def duckdb(self, rtrace=None):
        """A DuckDB connection in which the views of the trace are defined: `calls`, `functions` and others."""
        import duckdb

        connection = duckdb.connect()
        connection.execute(self.sql(rtrace))
        return connection

    def _definitions(self, of_recording, to):
        tables = [(of, of_recording(of)) for of in self.traces]
        tables = [_join.told_apart(of, table) for of, table in tables if table is not None]
        if not tables:
            return converted(pa.table({"trace": pa.array([], pa.int32())}), to)
        return converted(pa.concat_tables(tables, promote_options="permissive"), to)

    def _batches(self, columns, functions, begin_s, end_s, values):
        """At least one table, all with the same columns."""
        empty = True
        for of in self.traces:
            regions = _chosen(of, functions)
            joined = _join.Calls(of, self.begin_ns, columns if not values else None)
            dataset = of.dataset("calls")
            parts = [] if dataset is None else self._scan(of, dataset, joined.stored, regions, begin_s, end_s)
            parts = map(joined.table, parts)
            if values:
                # One join with the values is quicker than one per part.
                parts = list(parts)
                parts = [_join.with_values(of, pa.concat_tables(parts), regions)] if parts else []
            for part in parts:
                empty = False
                yield part.select(columns) if columns else part
        if empty:
            datasets = (of.dataset("calls") for of in self.traces)
            stored = next((dataset.schema for dataset in datasets if dataset is not None), pa.schema(STORED))
            yield _join.Calls(self.traces[0], self.begin_ns, columns).table(_normal(stored.empty_table()))

    def _scan(self, of, dataset, stored, regions, begin_s, end_s):
        """The stored calls in parts; row groups without a call that is asked for are not read."""
        shift = self.begin_ns - of.shift_ns
        wanted = []
        if regions is not None:
            wanted.append(ds.field("region").isin(pa.array(regions, pa.int32())))
        if begin_s is not None:
            wanted.append(ds.field("start_ns") >= shift + round(begin_s * 1e9))
        if end_s is not None:
            wanted.append(ds.field("start_ns") < shift + round(end_s * 1e9))
        condition = None
        for part in wanted:
            condition = part if condition is None else condition & part
        columns = [name for name in dataset.schema.names if stored is None or name in stored]
        for batch in dataset.scanner(columns=columns, filter=condition).to_batches():
            if len(batch):
                yield _normal(pa.Table.from_batches([batch]))


def _chosen(of, functions):
    """The IDs of the functions that are asked for; None if all are."""
    if functions is None:
        return None
    patterns = [functions] if isinstance(functions, str) else list(functions)
    regions = of.table("regions")
    if regions is None:
        return []
    names = zip(regions["region"].to_pylist(), regions["name"].to_pylist())
    return [region for region, name in names if any(name == wanted or fnmatchcase(name, wanted) for wanted in patterns)]


def _normal(calls):
    """The stored columns; null where an older rtrace wrote none."""
    for name, kind in STORED.items():
        if name not in calls.column_names:
            calls = calls.append_column(name, pa.nulls(len(calls), kind))
    return calls


def _recordings(members):
    traces = []
    for place, directory in enumerate(members):
        about = json.loads((directory / "trace.json").read_text())
        if about.get("schema") != SCHEMA:
            raise NotATrace(f"`{directory}` has version {about.get('schema')}; version {SCHEMA} is known")
        traces.append(Recording(place, directory, about))
    # Traces of one boot share a clock; between machines the wall clocks decide.
    booted = {}
    for of in traces:
        begin = of.header["begin"]
        booted.setdefault(of.header.get("boot_id") or of.trace, max(begin["realtime_ns"] - begin["monotonic"], 0))
    first = min(booted.values())
    shift = lambda of: booted[of.header.get("boot_id") or of.trace] - first
    return [Recording(of.trace, of.directory, of.about, shift(of)) for of in traces]
