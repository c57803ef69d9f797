# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The SQL views of recordings, made of views.sql as `rtrace info --sql` makes them."""

import re
from pathlib import Path

TEXT = (Path(__file__).parent / "views.sql").read_text()


def of(recordings, begin_ns):
    """The statements that make the views of these recordings as one trace."""

    def filled(place):
        if place[1] == "traces":
            return ",\n".join(_row(recording) for recording in recordings)
        if place[1] == "begin":
            return str(begin_ns)
        parts = (rows(recording, place[1]) for recording in recordings)
        return "".join(f"\n  UNION ALL BY NAME {part}" for part in parts if part)

    return re.sub(r"\{([^}]*)\}", filled, TEXT)


def rows(recording, place):
    """What selects the rows of a file, or of the segments in a folder; None if there are none."""
    path = recording.directory.resolve() / place
    is_there = path.is_file() if path.suffix == ".parquet" else any(path.glob("[!.]*.parquet"))
    files = re.sub(r"[*?\[]", r"[\g<0>]", str(path)) + ("" if path.suffix == ".parquet" else "/*.parquet")
    select = f"SELECT {recording.trace}::INTEGER AS trace, * FROM read_parquet({text(files)}, union_by_name = true)"
    return select if is_there else None


def text(value):
    """A text in quotes."""
    return "'" + str(value).replace("'", "''") + "'"


def name(value):
    """A name in quotes."""
    return '"' + value.replace('"', '""') + '"'


def _row(recording):
    begin, host = recording.header["begin"], text(recording.header["host"])
    rank = "NULL" if recording.rank is None else recording.rank
    command = ", ".join(map(text, recording.header.get("command", [])))
    directory = text(recording.directory.resolve())
    clocks = f"{begin['monotonic']}, {begin['realtime_ns']}, {recording.shift_ns}"
    return f"  ({recording.trace}, {directory}, {rank}, {host}, [{command}]::VARCHAR[], {clocks})"
