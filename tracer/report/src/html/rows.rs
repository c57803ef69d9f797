//! Tables of reports as JSON for the page: the same columns, the same values.

use std::collections::HashSet;

use rtrace_model::{RegionId, escape};
use serde_json::{Value as Json, json};

use super::names::PageNames;
use crate::table::{Datum, Shown, Table};

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
pub(super) fn functions(table: &Table, names: &mut PageNames<'_>) -> Json {
    let is_figure = |&place: &usize| {
        let key = table.columns[place].key;
        !OF_FUNCTION.contains(&key) && !APART.iter().any(|end| key.ends_with(end))
    };
    let columns: Vec<usize> = (0..table.columns.len()).filter(is_figure).collect();
    let row = |row: &Vec<Datum>| {
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
pub(super) fn region(table: &Table, row: &[Datum]) -> Option<RegionId> {
    region_of(&row[column(table, "region")?])
}

/// The function that a value names by its id.
pub(super) fn region_of(value: &Datum) -> Option<RegionId> {
    match value {
        Datum::Count(id) | Datum::Id(id) => u32::try_from(*id).ok().map(RegionId),
        _ => None,
    }
}

/// Of each function with known operations and bytes its number, 10⁹ operations per second, and operations per byte.
pub(super) fn roofline(table: &Table, names: &mut PageNames<'_>) -> Vec<Json> {
    let places = ["gigaflops_per_second", "flops_per_byte"].map(|key| column(table, key));
    let [Some(speed), Some(intensity)] = places else { return Vec::new() };
    let known = table.rows.iter().filter_map(|row| match (&row[speed], &row[intensity]) {
        (Datum::Ratio(speed), Datum::Ratio(intensity)) => Some((row, *speed, *intensity)),
        _ => None,
    });
    known.map(|(row, speed, intensity)| json!([name(table, row, names), speed, intensity])).collect()
}

/// The functions of all rows.
pub(super) fn regions(table: &Table) -> HashSet<RegionId> {
    table.rows.iter().filter_map(|row| region(table, row)).collect()
}

/// The number on the page of a row's function.
pub(super) fn name(table: &Table, row: &[Datum], names: &mut PageNames<'_>) -> usize {
    let name = match column(table, "function").map(|place| &row[place]) {
        Some(Datum::Name(name) | Datum::Nested(_, name)) => name,
        _ => "",
    };
    names.place(region(table, row), name)
}

/// A number, a text, null where it is not known, or a list of one number, which is the lower bound of a count or the upper bound
/// of a time.
pub(super) fn value(value: &Datum) -> Json {
    match value {
        Datum::Name(name) | Datum::Nested(_, name) => json!(escape(name)),
        Datum::Count(number) | Datum::Id(number) => json!(number),
        Datum::Time(time) | Datum::Traced(time) | Datum::Bound(time) => json!(time),
        Datum::AtLeast(bound) | Datum::AtMost(bound) => json!([bound]),
        Datum::Share(part) | Datum::Bar(part) | Datum::Change(part) | Datum::Ratio(part) | Datum::Rate(part) => {
            json!((part * 1e9).round() / 1e9)
        }
        Datum::Verdict { text, .. } => json!(text),
        // The page has no rows of values.
        Datum::Absent | Datum::Recorded(_) => Json::Null,
    }
}

fn kind(value: &Datum) -> Option<&'static str> {
    match value {
        Datum::Name(_) | Datum::Nested(..) | Datum::Verdict { .. } => Some("name"),
        Datum::Count(_) | Datum::AtLeast(_) | Datum::Id(_) => Some("count"),
        Datum::Time(_) | Datum::Traced(_) | Datum::Bound(_) | Datum::AtMost(_) => Some("time"),
        Datum::Share(_) | Datum::Bar(_) | Datum::Change(_) => Some("share"),
        Datum::Ratio(_) | Datum::Rate(_) => Some("ratio"),
        Datum::Absent | Datum::Recorded(_) => None,
    }
}
