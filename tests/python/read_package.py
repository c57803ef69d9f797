# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads traces with the Python package and with the SQL views, and compares both with each other and with counts.

usage: read_package.py DIRECTORY FUNCTION=CALLS...

Needs the package on PYTHONPATH, and rtrace as $RTRACE.
"""

import sys
import warnings
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.parquet

import rtrace

warnings.simplefilter("error")

TABLES = ["functions", "libraries", "threads", "processes", "call_sites", "paths", "metrics", "value_columns", "events", "samples"]


def rows(table):
    """What does not depend on the order of rows and on types of columns."""
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


def same_tables(trace, views):
    of_views = views.sql("select * exclude (caller, caller_library) from calls_with_caller").to_arrow_table()
    calls = trace.calls()
    assert calls.column_names == of_views.column_names, (calls.column_names, of_views.column_names)
    assert rows(calls) == rows(of_views)
    assert rows(calls) == sum((rows(part) for part in trace.batches()), Counter())
    for name in TABLES:
        mine = getattr(trace, name)()
        theirs = views.sql(f"select * from {name}").to_arrow_table()
        shared = [column for column in theirs.column_names if column in mine.column_names]
        assert len(mine) == len(theirs) and {"trace"} < set(shared) or not len(theirs), name
        if len(theirs):
            assert rows(mine.select(shared)) == rows(theirs.select(shared)), name


def frames_agree(trace, expected):
    columns = ["function", "duration_ns", "ending", "start_ns"]
    pandas, polars = trace.calls(columns, to="pandas"), trace.calls(columns, to="polars")
    assert list(pandas.columns) == polars.columns == columns
    assert pandas["function"].value_counts().to_dict() == expected
    assert dict(polars["function"].cast(str).value_counts().iter_rows()) == expected
    untimed = (pandas["ending"] == "unseen").sum()
    assert pandas["duration_ns"].isna().sum() == polars["duration_ns"].null_count() == untimed
    assert pandas["duration_ns"].dtype == "Int64"
    assert pandas["duration_ns"].sum() == (polars["duration_ns"].sum() or 0)


def selections(trace, expected):
    calls = trace.calls()
    name, count = next(iter(expected.items()))
    assert len(trace.calls(functions=name)) == count == len(trace.calls(functions=[name[:-1] + "?"]))
    assert len(trace.calls(functions="no such function")) == 0
    assert trace.calls(functions="no such function").column_names == calls.column_names
    starts = sorted(calls["since_start_ns"].to_pylist())
    assert all(start >= 0 for start in starts)
    middle = starts[len(starts) // 2]
    before, after = len(trace.calls(end_s=middle / 1e9)), len(trace.calls(begin_s=middle / 1e9))
    assert before == sum(start < middle for start in starts) and before + after == len(starts)


def values_agree(trace, views):
    functions = [name for (name,) in views.sql("select view_name from duckdb_views() where view_name like 'values\\_%' escape '\\'").fetchall()]
    of_calls = set(trace.calls().column_names)
    for view in functions:
        theirs = views.sql(f'select * from "{view}"').to_arrow_table()
        mine = trace.calls(functions=view.removeprefix("values_"), values=True)
        shared = [column for column in theirs.column_names if column in mine.column_names]
        assert set(shared) - of_calls, f"{view} has no values"
        assert rows(mine.select(shared)) == rows(theirs.select(shared)), view
    return len(functions)


def recordings_of_any_kind(directory):
    """Several recordings, one without columns that came later, and one without a call, under a name that is a pattern."""
    folder = directory.parent / "it's [a] *job?"
    for name in ["rank-0", "rank-1"]:
        (folder / name).mkdir(parents=True)
        for path in directory.rglob("*"):
            target = folder / name / path.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                target.write_bytes(path.read_bytes())
    for path in (folder / "rank-1" / "calls").iterdir():
        if not path.name.startswith("."):
            calls = pyarrow.parquet.ParquetFile(path).read().drop_columns(["call_site"])
            pyarrow.parquet.write_table(calls, path, compression="zstd")
    regions = folder / "rank-1" / "regions.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.ParquetFile(regions).read().drop_columns(["waits_for"]), regions, compression="zstd")
    both = rtrace.open(folder)
    same_tables(both, both.duckdb())
    assert len(both.calls()) == 2 * len(rtrace.open(directory).calls())
    for path in folder.glob("*/calls/*"):
        path.unlink()
    same_tables(both, both.duckdb())
    assert len(both.calls()) == 0 and len(both.calls(["function"], to="pandas")) == 0


def main():
    directory = Path(sys.argv[1])
    expected = {name: int(calls) for name, calls in (argument.rsplit("=", 1) for argument in sys.argv[2:])}
    trace = rtrace.open(directory)
    views = trace.duckdb()
    counted = views.sql("select function, count(*) from calls group by function").fetchall()
    assert dict(counted) == expected, f"{counted} instead of {expected}"
    assert dict(views.sql("select function, sum(calls)::BIGINT from paths group by function").fetchall()) == expected
    same_tables(trace, views)
    frames_agree(trace, expected)
    selections(trace, expected)
    print(values_agree(trace, views))
    recordings_of_any_kind(directory)
    try:
        rtrace.open(directory.parent / "nothing")
    except rtrace.NotATrace as error:
        assert "nothing" in str(error)
    else:
        raise AssertionError("a directory without a trace was opened")


main()
