//! `values.parquet`: which values the calls of each region have, and where they are.

use rtrace_model::ValueColumn;

use super::cell::row;

row!(ValueColumn, "values.parquet", {
    "region": region,
    "position": position,
    "column": name,
    "type": value_type,
    "c_type": c_type,
    "unit": unit,
    "role": role,
    "at_exit": at_exit,
    "source": source,
});
