# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Arrow tables as those of other libraries. What is null stays null, and no number is rounded."""

import pyarrow as pa


def converted(table, to):
    """The table as "arrow", "pandas" or "polars"."""
    if to == "arrow":
        return table
    if to == "pandas":
        return _pandas(table)
    if to == "polars":
        import polars

        return polars.from_arrow(table)
    raise ValueError(f"`{to}` is not known; there are arrow, pandas and polars")


def _pandas(table):
    import pandas

    # A float has no room for a large whole number, so columns with nulls are of a type that has.
    nullable = {pa.int32(): pandas.Int32Dtype(), pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    frame = {}
    for field, column in zip(table.schema, table.columns):
        kind = nullable.get(field.type) if column.null_count else None
        always = field.name == "duration_ns" or field.name == "exclusive_ns"
        kind = nullable[pa.int64()] if always else kind
        frame[field.name] = column.to_pandas(types_mapper={field.type: kind}.get if kind is not None else None)
    return pandas.DataFrame(frame)
