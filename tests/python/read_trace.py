# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads a trace with pyarrow, DuckDB and Polars and compares the calls of each function.

usage: read_trace.py DIRECTORY FUNCTION=CALLS...
"""

import sys
from pathlib import Path

import duckdb
import polars
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

COLUMNS = ["location", "call", "parent", "region", "depth", "start_ns", "duration_ns", "child_ns", "ending"]


def with_pyarrow(trace: Path) -> dict[str, int]:
    calls = pyarrow.dataset.dataset(trace / "calls").to_table()
    missing = set(COLUMNS) - set(calls.column_names)
    assert not missing, f"columns missing: {missing}"
    assert all(calls.column(name).null_count == 0 for name in COLUMNS if name != "duration_ns")
    untimed = pyarrow.compute.equal(calls.column("ending").cast("string"), "unseen")
    assert pyarrow.compute.is_null(calls.column("duration_ns")).equals(untimed), "calls without a duration are `unseen`"
    regions = pyarrow.parquet.read_table(trace / "regions.parquet")
    joined = calls.select(["region"]).join(regions.select(["region", "name"]), "region")
    counted = joined.group_by("name").aggregate([("region", "count")])
    return dict(zip(counted["name"].to_pylist(), counted["region_count"].to_pylist()))


def with_duckdb(trace: Path) -> dict[str, int]:
    query = f"""
        select name, count(*)
        from '{trace}/calls/*.parquet' join '{trace}/regions.parquet' using (region)
        group by name
    """
    return dict(duckdb.sql(query).fetchall())


def with_polars(trace: Path) -> dict[str, int]:
    calls = polars.scan_parquet(trace / "calls" / "*.parquet")
    regions = polars.scan_parquet(trace / "regions.parquet")
    counted = calls.join(regions, on="region").group_by("name").len().collect()
    return dict(counted.select("name", "len").iter_rows())


def main() -> None:
    trace = Path(sys.argv[1])
    expected = {name: int(calls) for name, calls in (argument.rsplit("=", 1) for argument in sys.argv[2:])}
    assert expected, "nothing to compare with"
    for read in (with_pyarrow, with_duckdb, with_polars):
        found = read(trace)
        assert found == expected, f"{read.__name__}: {found} instead of {expected}"


main()
