# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Joins of the files of one recording, as views of `rtrace info --sql` have them."""

from bisect import bisect_right

import pyarrow as pa
import pyarrow.compute as pc

#: The columns of calls in front of what was counted.
OF_CALLS = [
    "trace",
    "rank",
    "location",
    "call",
    "parent",
    "depth",
    "function",
    "library",
    "waits_for",
    "pid",
    "tid",
    "thread",
    "process",
    "since_start_ns",
    "start_ns",
    "duration_ns",
    "child_ns",
    "exclusive_ns",
    "ending",
    "called_at",
    "call_site",
    "region",
    "context",
]


def told_apart(of, table):
    """The table with a column for the recording in front, and one for its rank."""
    count = len(table)
    rank = pa.array([of.rank] * count, pa.int32())
    if "rank" in table.column_names:
        # Processes know theirs.
        rank = pc.coalesce(table["rank"].cast(pa.int32()), rank)
        table = table.drop_columns(["rank"])
    table = table.add_column(0, "trace", pa.array([of.trace] * count, pa.int32()))
    return table.add_column(1, "rank", rank)


def stored(of, name):
    return of.table(name)


def segments(of, name):
    dataset = of.dataset(name)
    return None if dataset is None else dataset.to_table()


def libraries(of):
    table = of.table("libraries")
    if table is None:
        return None
    paths = table["path"].to_pylist()
    names = table["name"] if "name" in table.column_names else [_last(path) for path in paths]
    return pa.table(
        {"library_id": table["library"], "library": names, "path": table["path"], "build_id": table["build_id"]}
    )


def functions(of):
    table = of.table("regions")
    if table is None:
        return None
    of_files = libraries(of)
    names = _lookup(table["library"], of_files["library_id"], of_files["library"])
    waits = table["waits_for"] if "waits_for" in table.column_names else pa.nulls(len(table), pa.string())
    columns = {"region": table["region"], "function": table["name"], "library": names, "waits_for": waits}
    columns.update({name: table[name] for name in ["exit", "symbols", "file_offset", "size"]})
    return pa.table(columns)


def processes(of):
    table = of.table("processes")
    if table is None:
        return None
    if "name" in table.column_names:
        names = table["name"]
        table = table.drop_columns(["name"])
    else:
        names = pa.array([_last(path) for path in table["executable"].to_pylist()], pa.string())
    return table.add_column(1, "process", names)


def threads(of):
    table = of.table("locations")
    if table is None:
        return None
    by_pid = {}
    programs = processes(of)
    if programs is not None:
        for row in programs.sort_by([("start_ns", "ascending")]).to_pylist():
            by_pid.setdefault(row["pid"], ([], []))
            by_pid[row["pid"]][0].append(row["start_ns"])
            by_pid[row["pid"]][1].append((row["process"], row.get("rank")))

    def process(pid, start):
        # The last of that ID that started before the thread, or else the first.
        starts, programs = by_pid.get(pid, ([], []))
        return programs[max(bisect_right(starts, start) - 1, 0)] if programs else (None, None)

    found = [process(pid, start) for pid, start in zip(table["pid"].to_pylist(), table["start_ns"].to_pylist())]
    columns = {"location": table["location"], "pid": table["pid"], "tid": table["tid"], "thread": table["name"]}
    columns["process"] = pa.array([name for name, _ in found], pa.string())
    columns["rank"] = pa.array([rank for _, rank in found], pa.int32())
    columns.update({name: table[name] for name in ["start_ns", "end_ns", "calls_entered"]})
    return pa.table(columns)


def call_sites(of):
    table = of.table("call_sites")
    if table is None:
        return None
    line = pc.binary_join_element_wise(table["source_file"], table["source_line"].cast(pa.string()), ":")
    known = [line, table["function"]]
    if "nearest" in table.column_names:
        known.append(pc.binary_join_element_wise("near", table["nearest"], " "))
    return table.append_column("called_at", pc.coalesce(*known, table["file"]))


def paths(of):
    table = of.table("profile")
    table = of.table("folded") if table is None or not len(table) else table
    if table is None:
        return None
    joined = _joined(table, "region", functions(of), ["function", "library", "waits_for"])
    joined = _joined(joined, "location", threads(of), ["pid", "tid", "thread", "process", "rank"])
    order = ["location", "path", "parent", "function", "library", "waits_for", "pid", "tid", "thread", "process", "calls"]
    return joined.select(["rank", *order, "timed", "inclusive_ns", "exclusive_ns", "min_ns", "max_ns", "region"])


def value_columns(of):
    table = of.table("values")
    return None if table is None else _joined(table, "region", functions(of), ["function"])


def samples(of, begin_ns):
    table, metrics = segments(of, "samples"), of.table("metrics")
    if table is None or metrics is None:
        return None
    rows = metrics.select(["metric", "name", "base", "exponent", "unit", "scope", "span"]).to_pylist()
    factor = pa.array([float(row["base"]) ** row["exponent"] for row in rows], pa.float64())
    known = metrics.append_column("factor", factor)
    table = _joined(table, "metric", known, ["name", "factor", "unit", "scope", "span"])
    return pa.table(
        {
            "metric": table["name"],
            "instance": table["instance"],
            "scope": table["scope"],
            "since_start_ns": pc.add(table["time_ns"], of.shift_ns - begin_ns),
            "time_ns": table["time_ns"],
            "value": pc.multiply(table["value"], table["factor"]),
            "unit": table["unit"],
            "span": table["span"],
        }
    )


#: What columns are made of, unless they are stored themselves.
SOURCES = {
    "trace": ["region"],
    "rank": ["location"],
    "function": ["region"],
    "library": ["region"],
    "waits_for": ["region"],
    "pid": ["location"],
    "tid": ["location"],
    "thread": ["location"],
    "process": ["location"],
    "since_start_ns": ["start_ns"],
    "exclusive_ns": ["duration_ns", "child_ns"],
    "called_at": ["call_site"],
}


class Calls:
    """Joins parts of `calls/` with what they refer to."""

    def __init__(self, of, begin_ns, columns):
        self.of, self.since, self.columns = of, of.shift_ns - begin_ns, columns
        self.functions, self.threads, self.sites = functions(of), threads(of), call_sites(of)
        #: The stored columns that are needed; None if all are.
        self.stored = None
        if columns is not None:
            self.stored = {source for name in columns for source in SOURCES.get(name, [name])}

    def table(self, calls):
        """The calls with the columns that are asked for."""
        counted = [name for name in calls.column_names if name not in OF_CALLS]
        if "context" not in calls.column_names:
            calls = calls.append_column("context", pa.nulls(len(calls), pa.int32()))
        calls = self._joined(calls, "region", self.functions, ["function", "library", "waits_for"])
        calls = self._joined(calls, "location", self.threads, ["pid", "tid", "thread", "process", "rank"])
        calls = self._joined(calls, "call_site", self.sites, ["called_at"])
        calls = calls.append_column("since_start_ns", pc.add(calls["start_ns"], self.since))
        calls = calls.append_column("exclusive_ns", pc.subtract(calls["duration_ns"], calls["child_ns"]))
        return told_apart(self.of, calls).select(self.columns or [*OF_CALLS, *counted])

    def _joined(self, calls, key, other, columns):
        return _joined(calls, key, other, [name for name in columns if self.columns is None or name in self.columns])


def with_values(of, calls, regions):
    """The calls with the arguments and results of these functions, or of all: what a function does not have is null."""
    values = _values(of, regions)
    if values is None:
        return calls
    taken = {name.lower() for name in calls.column_names}
    names = [name if name in ("location", "call") else _free(name, taken) for name in values.column_names]
    joined = calls.join(values.rename_columns(names), ["location", "call"], join_type="left outer")
    return joined.sort_by([("location", "ascending"), ("call", "ascending")])


def _values(of, regions):
    tables = []
    for folder in sorted((of.directory / "values").glob("*/")):
        region = folder.name.rpartition(".")[2]
        if regions is not None and region not in {str(region) for region in regions}:
            continue
        dataset = of.dataset(f"values/{folder.name}")
        if dataset is not None:
            tables.append(dataset.to_table())
    if not tables:
        return None
    kinds = {}
    for table in tables:
        for field in table.schema:
            kinds.setdefault(field.name, set()).add(field.type)
    # A name that is a number here and a text there is a text.
    mixed = {name for name, kinds in kinds.items() if len(kinds) > 1 and pa.string() in kinds}

    def uniform(table):
        for place, name in enumerate(table.column_names):
            if name in mixed:
                table = table.set_column(place, name, table[name].cast(pa.string()))
        return table

    return pa.concat_tables([uniform(table) for table in tables], promote_options="permissive")


def _free(name, taken):
    while name.lower() in taken:
        name += "_"
    return name


def _joined(table, key, other, columns):
    """The table with columns of the row of `other` that has the same key; null where there is none."""
    for name in columns:
        if other is None:
            found = pa.nulls(len(table), pa.string())
        else:
            found = _lookup(table[key], other[key], other[name])
        table = table.append_column(name, found)
    return table


def _lookup(keys, known, values):
    """Of each key the value of the same place in `known`; texts as dictionaries, as they repeat."""
    places = pc.index_in(keys, value_set=known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not pa.types.is_string(values.type):
        return pc.take(values, places)
    chunks = places.chunks if isinstance(places, pa.ChunkedArray) else [places]
    dictionary = pc.unique(values).drop_null()
    of_values = pc.index_in(values, value_set=dictionary)
    parts = [pa.DictionaryArray.from_arrays(pc.take(of_values, chunk), dictionary) for chunk in chunks]
    return pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.string()))


def _last(path):
    return path.rsplit("/", 1)[-1]
