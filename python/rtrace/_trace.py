# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace, or several as one: queries of its SQL views."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from . import _views
from ._frames import converted

#: The version of the directory that this package reads.
SCHEMA = 2

#: The texts of calls: few, each of very many calls.
REPEATED = ["function", "library", "waits_for", "thread", "process", "ending", "called_at"]

#: Calls of a batch.
BATCH = 100_000


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
        reader = self._read(columns, functions, begin_s, end_s, values)
        parts = [_encoded(batch) for batch in reader]
        table = pa.concat_tables(parts) if parts else _encoded(pa.RecordBatch.from_pylist([], reader.schema))
        return converted(table.unify_dictionaries(), to)

    def batches(self, columns=None, functions=None, begin_s=None, end_s=None, to="arrow"):
        """The same in parts, of some 100,000 calls each, for traces that do not fit into memory."""
        for batch in self._read(columns, functions, begin_s, end_s, False):
            if len(batch):
                yield converted(_encoded(batch), to)

    def functions(self, to="arrow"):
        """The functions that were probed."""
        return self._table("functions", to)

    def libraries(self, to="arrow"):
        """The files that contain the functions."""
        return self._table("libraries", to)

    def threads(self, to="arrow"):
        """The traced threads."""
        return self._table("threads", to)

    def processes(self, to="arrow"):
        """The traced processes."""
        return self._table("processes", to)

    def call_sites(self, to="arrow"):
        """The places in code that made calls."""
        return self._table("call_sites", to)

    def paths(self, to="arrow"):
        """Sums over the calls of each call path of a thread: of aggregated calls, and of all others once a recording
        has ended. Each takes as long to read as there are paths, however many calls there were."""
        return self._table("paths", to)

    def metrics(self, to="arrow"):
        """What was measured beside time."""
        return self._table("metrics", to)

    def value_columns(self, to="arrow"):
        """Which arguments and results the calls of each function have."""
        with_names = "(FROM value_columns LEFT JOIN (SELECT trace, region, function FROM functions) USING (trace, region))"
        return self._table(with_names, to)

    def events(self, to="arrow"):
        """What happened during the recordings; `detail` is JSON."""
        return self._table("events", to)

    def samples(self, to="arrow"):
        """Values of processes and of the machine, in `unit`."""
        return self._table("samples", to)

    def sql(self, rtrace=None):
        """The SQL views of the trace, as `rtrace info --sql` prints them.

        rtrace: the program; $RTRACE, or `rtrace`, if None.
        """
        program = rtrace or os.environ.get("RTRACE", "rtrace")
        command = [program, "info", "--sql", str(self.directory)]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout

    def duckdb(self, rtrace=None):
        """A DuckDB connection in which all views of the trace are defined, also those of the values of each function."""
        connection = duckdb.connect()
        connection.execute(self.sql(rtrace))
        return connection

    def _views(self):
        connection = duckdb.connect()
        connection.execute(_views.of(self.traces, self.begin_ns))
        return connection

    def _table(self, view, to):
        """The rows of a view, with the rank of the recording where it has none of its own."""
        views = self._views()
        rows = f"SELECT * FROM {view}"
        if "rank" not in views.sql(rows).columns:
            rows = f"SELECT v.trace, t.rank, v.* EXCLUDE (trace) FROM {view} AS v JOIN traces AS t USING (trace)"
        return converted(views.sql(rows).to_arrow_table(), to)

    def _read(self, columns, functions, begin_s, end_s, values):
        """Reads the calls that are asked for."""
        views, wanted, parameters = self._views(), ["true"], []
        regions = "true"
        if functions is not None:
            patterns = [functions] if isinstance(functions, str) else list(functions)
            regions = " OR ".join(["function = ? OR function GLOB ?"] * len(patterns)) or "false"
            parameters = [pattern for pattern in patterns for _ in range(2)]
            wanted.append(f"({regions})")
        if begin_s is not None:
            wanted.append(f"since_start_ns >= {round(begin_s * 1e9)}")
        if end_s is not None:
            wanted.append(f"since_start_ns < {round(end_s * 1e9)}")
        calls = f"(FROM calls WHERE {' AND '.join(wanted)})"
        if values:
            chosen = views.execute(f"SELECT trace, region FROM functions WHERE {regions}", parameters).fetchall()
            calls = self._with_values(views, calls, set(chosen))
        shown = ", ".join(map(_views.name, columns)) if columns else "*"
        return views.sql(f"SELECT {shown} FROM {calls}", params=parameters).to_arrow_reader(BATCH)

    def _with_values(self, views, calls, regions):
        """The calls with the arguments and results of these functions: what a function does not have is null."""
        parts = []
        for of in self.traces:
            for folder in sorted((of.directory / "values").glob("*/")):
                if (of.trace, int(folder.name.rpartition(".")[2])) in regions:
                    parts.append(_views.rows(of, f"values/{folder.name}"))
        if not any(parts):
            return calls
        rows = "\n  UNION ALL BY NAME ".join(filter(None, parts))
        taken = {column.lower() for column in views.sql("FROM calls").columns}
        shown = ["c.*"]
        for column in views.sql(rows).columns:
            free = column
            while free.lower() in taken:
                free += "_"
            if column not in ("trace", "location", "call"):
                shown.append(f"v.{_views.name(column)} AS {_views.name(free)}")
        return f"(SELECT {', '.join(shown)} FROM {calls} AS c LEFT JOIN ({rows}) AS v USING (trace, location, call))"


def _encoded(batch):
    """A batch as a table whose texts are dictionaries, where they repeat."""
    table = pa.Table.from_batches([batch])
    for place, column in enumerate(table.column_names):
        if column in REPEATED and not pa.types.is_dictionary(table.schema.field(place).type):
            table = table.set_column(place, column, table[column].dictionary_encode())
    return table


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
