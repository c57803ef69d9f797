#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sums up the calls of all ranks of a job by function, with an engine that runs on one node or on many.

    python3 examples/many_ranks.py duckdb|dask|spark job.rtrace

Prints CSV: function, calls, timed calls, exclusive time in nanoseconds. These are the figures of `rtrace report`.
"""

import sys
from pathlib import Path


def duckdb(ranks):
    import duckdb

    return duckdb.sql(f"""
        WITH calls AS (SELECT *, parse_dirpath(parse_dirpath(filename)) AS rank
                       FROM read_parquet({[f"{rank}/calls/*.parquet" for rank in ranks]}, filename = true)),
             regions AS (SELECT *, parse_dirpath(filename) AS rank
                         FROM read_parquet({[f"{rank}/regions.parquet" for rank in ranks]}, filename = true))
        SELECT name, count(*), count(duration_ns), sum(duration_ns - child_ns)
        FROM calls JOIN regions USING (rank, region) GROUP BY name
    """).fetchall()


def dask(ranks):
    import dask.dataframe as dd
    import pandas as pd

    def read(rank):
        columns = ["region", "duration_ns", "child_ns"]
        calls = pd.read_parquet(f"{rank}/calls", columns=columns, dtype_backend="pyarrow")
        names = pd.read_parquet(f"{rank}/regions.parquet", columns=["region", "name"], dtype_backend="pyarrow")
        calls = calls.merge(names, on="region")
        # A region is numbered by its rank alone, so names leave here.
        return calls.assign(exclusive_ns=calls.duration_ns - calls.child_ns)[["name", "duration_ns", "exclusive_ns"]]

    calls = dd.from_map(read, ranks)
    sums = calls.groupby("name").agg({"exclusive_ns": ["size", "sum"], "duration_ns": "count"}).compute()
    sums = sums[[("exclusive_ns", "size"), ("duration_ns", "count"), ("exclusive_ns", "sum")]]
    return list(sums.itertuples(name=None))


def spark(ranks):
    from pyspark.sql import SparkSession, functions as F

    session = SparkSession.builder.getOrCreate()
    rank_of = F.regexp_extract(F.input_file_name(), r"([^/]+)/(?:calls/)?[^/]+\.parquet$", 1).alias("rank")
    calls = session.read.parquet(*(f"{rank}/calls" for rank in ranks)).select(rank_of, "region", "duration_ns", "child_ns")
    regions = session.read.parquet(*(f"{rank}/regions.parquet" for rank in ranks)).select(rank_of, "region", "name")
    exclusive = F.sum(F.col("duration_ns") - F.col("child_ns"))
    sums = calls.join(regions, ["rank", "region"]).groupBy("name").agg(F.count("*"), F.count("duration_ns"), exclusive)
    return [tuple(row) for row in sums.collect()]


engine, job = sys.argv[1:]
ranks = sorted(str(file.parent) for file in Path(job).absolute().glob("*/trace.json"))
print("function,calls,timed,exclusive_ns")
for name, calls, timed, exclusive in sorted({"duckdb": duckdb, "dask": dask, "spark": spark}[engine](ranks)):
    print(name, calls, timed, exclusive, sep=",")
