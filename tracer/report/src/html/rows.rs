//! Tables of reports as JSON for the page: the same columns, the same values.

use std::collections::HashSet;

use rtrace_model::{RegionId, escape};
use serde_json::{Value as Json, json};

use super::names::Names;
use crate::table::{Shown, Table, Value};

/// Columns that a function's number on the page stands for.
const OF_FUNCTION: [&str; 4] = ["region", "file_offset", "library", "function"];

/// Columns that the page has apart, of fewer functions.
const APART: [&str; 3] = ["_corrected_ns", "_error_ns", "_tracing"];

/// All rows of a table: `columns`, `rows`, and how many rows were `left_out`.
pub(super) fn table(table: &Table) -> Json {
    let columns: Vec<usize> = (0..table.columns.len()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(value).collect());
    told(table, &columns, rows.collect())
}

/// The same of functions: the first value of each row is the function's number.
pub(super) fn functions(table: &Table, names: &mut Names<'_>) -> Json {
    let is_figure = |&place: &usize| {
        let key = table.columns[place].key;
        !OF_FUNCTION.contains(&key) && !APART.iter().any(|end| key.ends_with(end))
    };
    let columns: Vec<usize> = (0..table.columns.len()).filter(is_figure).collect();
    let row = |row: &Vec<Value>| {
        let name = [json!(name(table, row, names))];
        name.into_iter().chain(columns.iter().map(|&place| value(&row[place]))).collect()
    };
    told(table, &columns, table.rows.iter().map(row).collect())
}

fn told(table: &Table, columns: &[usize], rows: Vec<Vec<Json>>) -> Json {
    let column = |&place: &usize| {
        let column = &table.columns[place];
        let is_shown = match column.shown {
            Shown::Always => true,
            Shown::IfNotZero => table.rows.iter().any(|row| !row[place].is_zero()),
            Shown::Never => false,
        };
        let kind = table.rows.iter().find_map(|row| kind(&row[place])).unwrap_or("count");
        json!({ "key": column.key, "title": column.title, "kind": kind, "shown": is_shown })
    };
    let columns: Vec<Json> = columns.iter().map(column).collect();
    json!({ "columns": columns, "rows": rows, "left_out": table.left_out })
}

/// The place of a column.
pub(super) fn column(table: &Table, key: &str) -> Option<usize> {
    table.columns.iter().position(|column| column.key == key)
}

/// The function of a row.
pub(super) fn region(table: &Table, row: &[Value]) -> Option<RegionId> {
    region_of(&row[column(table, "region")?])
}

/// The function that a value names by its id.
pub(super) fn region_of(value: &Value) -> Option<RegionId> {
    match value {
        Value::Count(id) | Value::Id(id) => u32::try_from(*id).ok().map(RegionId),
        _ => None,
    }
}

/// The functions of all rows.
pub(super) fn regions(table: &Table) -> HashSet<RegionId> {
    table.rows.iter().filter_map(|row| region(table, row)).collect()
}

/// The number on the page of a row's function.
pub(super) fn name(table: &Table, row: &[Value], names: &mut Names<'_>) -> usize {
    let name = match column(table, "function").map(|place| &row[place]) {
        Some(Value::Name(name) | Value::Nested(_, name)) => name,
        _ => "",
    };
    names.place(region(table, row), name)
}

/// A number, a text, null where it is not known, or a list of one number, which is an upper bound.
pub(super) fn value(value: &Value) -> Json {
    match value {
        Value::Name(name) | Value::Nested(_, name) => json!(escape(name)),
        Value::Count(number) | Value::Id(number) => json!(number),
        Value::Time(time) | Value::Traced(time) | Value::Bound(time) => json!(time),
        Value::AtMost(bound) => json!([bound]),
        Value::Share(part) | Value::Bar(part) | Value::Change(part) | Value::Ratio(part) | Value::Rate(part) => {
            json!((part * 1e9).round() / 1e9)
        }
        Value::Verdict { text, .. } => json!(text),
        // The page has no rows of values.
        Value::Absent | Value::Recorded(_) => Json::Null,
    }
}

fn kind(value: &Value) -> Option<&'static str> {
    match value {
        Value::Name(_) | Value::Nested(..) | Value::Verdict { .. } => Some("name"),
        Value::Count(_) | Value::Id(_) => Some("count"),
        Value::Time(_) | Value::Traced(_) | Value::Bound(_) | Value::AtMost(_) => Some("time"),
        Value::Share(_) | Value::Bar(_) | Value::Change(_) => Some("share"),
        Value::Ratio(_) | Value::Rate(_) => Some("ratio"),
        Value::Absent | Value::Recorded(_) => None,
    }
}
