# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace, or several as one: DuckDB reads the files, and the views of rtrace join them."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import duckdb

from ._frames import compact, converted

#: Rows of a part of a trace.
PART = 100_000


class NotATrace(ValueError):
    """The directory contains no trace, or one that the installed rtrace does not know."""


@dataclass(frozen=True)
class Recording:
    """One of the recordings that make up a trace."""

    directory: Path
    #: The contents of its trace.json.
    about: dict

    @property
    def header(self):
        return self.about["header"]

    @property
    def summary(self):
        """What was known when it ended; None while it runs, or if rtrace was killed."""
        return self.about.get("summary")


class Trace:
    """A trace directory, or several that are read as one. No call is read before it is asked for."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self._views = self.duckdb()
        members = self._views.sql("SELECT directory FROM traces ORDER BY trace").fetchall()
        self.traces = [Recording(Path(of), json.loads(Path(of, "trace.json").read_text())) for (of,) in members]

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
        calls = self._calls(columns, functions, begin_s, end_s, values)
        return converted(compact(calls.to_arrow_table()), to)

    def batches(self, columns=None, functions=None, begin_s=None, end_s=None, to="arrow"):
        """The same in parts, of at most some 100,000 calls each, for traces that do not fit into memory."""
        import pyarrow

        for part in self._calls(columns, functions, begin_s, end_s, False).to_arrow_reader(PART):
            if len(part):
                yield converted(compact(pyarrow.Table.from_batches([part])), to)

    def functions(self, to="arrow"):
        """The functions that were probed."""
        return self._rows("functions", to)

    def libraries(self, to="arrow"):
        """The files that contain the functions."""
        return self._rows("libraries", to)

    def threads(self, to="arrow"):
        """The traced threads."""
        return self._rows("threads", to)

    def processes(self, to="arrow"):
        """The traced processes."""
        return self._rows("processes", to)

    def call_sites(self, to="arrow"):
        """The places in code that made calls."""
        return self._rows("call_sites", to)

    def paths(self, to="arrow"):
        """Sums over the calls of each call path of a thread: of aggregated calls, and of all others once a recording
        has ended. Each takes as long to read as there are paths, however many calls there were."""
        return self._rows("paths", to)

    def metrics(self, to="arrow"):
        """What was measured beside time."""
        return self._rows("metrics", to)

    def value_columns(self, to="arrow"):
        """Which arguments and results the calls of each function have."""
        return self._rows("value_columns", to)

    def events(self, to="arrow"):
        """What happened during the recordings; `detail` is JSON."""
        return self._rows("events", to)

    def samples(self, to="arrow"):
        """Values of processes and of the machine, in `unit`."""
        return self._rows("samples", to)

    def sql(self, rtrace=None):
        """The SQL views of the trace, as `rtrace info --sql` prints them.

        rtrace: the program; $RTRACE, or `rtrace`, if None.
        """
        program = rtrace or os.environ.get("RTRACE", "rtrace")
        done = subprocess.run([program, "info", "--sql", str(self.directory)], capture_output=True, text=True)
        if done.returncode != 0:
            raise NotATrace(done.stderr.strip())
        return done.stdout

    def duckdb(self, rtrace=None):
        """A DuckDB connection in which the views of the trace are defined: `calls`, `functions` and others."""
        connection = duckdb.connect()
        connection.execute(self.sql(rtrace))
        return connection

    def _rows(self, view, to):
        return converted(self._views.sql(f"SELECT * FROM {view}").to_arrow_table(), to)

    def _calls(self, columns, functions, begin_s, end_s, values):
        chosen, parameters = ["true"], []
        if functions is not None:
            patterns = [functions] if isinstance(functions, str) else list(functions)
            chosen.append(" OR ".join(["function = ? OR function GLOB ?"] * len(patterns)) or "false")
            parameters += [pattern for pattern in patterns for _ in range(2)]
        for bound, seconds in [(">=", begin_s), ("<", end_s)]:
            if seconds is not None:
                chosen.append(f"since_start_ns {bound} ?")
                parameters.append(round(seconds * 1e9))
        shown = "*" if columns is None else ", ".join(_quoted(name) for name in columns)
        source = self._with_values() if values else "calls"
        where = " AND ".join(f"({condition})" for condition in chosen)
        return self._views.sql(f"SELECT {shown} FROM {source} WHERE {where}", params=parameters)

    def _with_values(self):
        """All calls with arguments and results: what a function does not have is null."""
        is_stored = "starts_with(view_name, '_values_') AND NOT internal"
        views = self._views.sql(f"SELECT view_name FROM duckdb_views() WHERE {is_stored}").fetchall()
        if not views:
            return "calls"
        stored = " UNION ALL BY NAME ".join(f"SELECT * FROM {_quoted(view)}" for (view,) in views)
        return f"(SELECT * FROM calls LEFT JOIN ({stored}) USING (trace, location, call))"


def _quoted(name):
    return '"' + name.replace('"', '""') + '"'
