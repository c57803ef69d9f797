//! The columns of the functions table: title, width, text and order of each in one entry.

use std::borrow::Cow;
use std::cmp::Ordering;

use rtrace_model::{escape, format_ns};

use crate::snapshot::Function;

/// A region with what is known of it at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The region and its sums.
    pub function: &'a Function,
    /// Calls per second.
    pub rate: f64,
}

/// How a column takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Right-aligned in so many cells.
    Number(u16),
    /// Left-aligned in all cells that the others leave, in proportion.
    Text(u16),
}

/// One column.
#[derive(Debug)]
pub struct Column {
    /// Its title, and the name of the order by it.
    pub title: &'static str,
    /// Its width.
    pub width: Width,
    /// The columns that a terminal must have for this one to be shown.
    pub from: u16,
    /// Its text for a row, escaped.
    pub text: for<'a> fn(Row<'a>) -> Cow<'a, str>,
    /// Its order: largest numbers first, names from A to Z.
    pub order: fn(Row<'_>, Row<'_>) -> Ordering,
}

/// All columns from left to right.
pub const COLUMNS: [Column; 8] = [
    Column {
        title: "calls",
        width: Width::Number(8),
        from: 0,
        text: |row| count(row.function.totals.calls).into(),
        order: |a, b| b.function.totals.calls.cmp(&a.function.totals.calls),
    },
    Column {
        title: "calls/s",
        width: Width::Number(8),
        from: 0,
        text: |row| count(row.rate.round() as u64).into(),
        order: |a, b| b.rate.total_cmp(&a.rate),
    },
    Column {
        title: "inclusive",
        width: Width::Number(10),
        from: 0,
        text: |row| timed(row, row.function.totals.inclusive),
        order: |a, b| b.function.totals.inclusive.cmp(&a.function.totals.inclusive),
    },
    Column {
        title: "exclusive",
        width: Width::Number(10),
        from: 0,
        text: |row| timed(row, row.function.totals.exclusive),
        order: |a, b| b.function.totals.exclusive.cmp(&a.function.totals.exclusive),
    },
    Column {
        title: "mean",
        width: Width::Number(10),
        from: 0,
        text: |row| timed(row, row.function.totals.mean().unwrap_or(0)),
        order: |a, b| b.function.totals.mean().cmp(&a.function.totals.mean()),
    },
    Column {
        title: "max",
        width: Width::Number(10),
        from: 96,
        text: |row| timed(row, row.function.totals.max),
        order: |a, b| b.function.totals.max.cmp(&a.function.totals.max),
    },
    Column {
        title: "function",
        width: Width::Text(3),
        from: 0,
        text: |row| escape(&row.function.name),
        order: |a, b| a.function.name.cmp(&b.function.name),
    },
    Column {
        title: "library",
        width: Width::Text(1),
        from: 110,
        text: |row| escape(&row.function.library),
        order: |a, b| a.function.library.cmp(&b.function.library),
    },
];

/// Index of the column by which the table is sorted at first.
pub const FIRST_ORDER: usize = 3;

/// A time, where one was measured.
fn timed(row: Row<'_>, ns: u64) -> Cow<'static, str> {
    if row.function.totals.timed == 0 { "-".into() } else { format_ns(ns).into() }
}

/// A number in at most eight cells: exact while it fits.
pub fn count(number: u64) -> String {
    match number {
        0..100_000_000 => number.to_string(),
        100_000_000..100_000_000_000 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.1}G", number as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_they_fit() {
        assert_eq!(count(0), "0");
        assert_eq!(count(99_999_999), "99999999");
        assert_eq!(count(100_000_000), "100.0M");
        assert_eq!(count(1_234_567_890_123), "1234.6G");
    }

    #[test]
    fn the_first_order_is_by_exclusive_time() {
        assert_eq!(COLUMNS[FIRST_ORDER].title, "exclusive");
    }

    #[test]
    fn a_narrow_terminal_leaves_a_fair_width_to_names() {
        let numbers: u16 = COLUMNS
            .iter()
            .filter(|column| column.from <= 80)
            .map(|column| if let Width::Number(cells) = column.width { cells + 1 } else { 0 })
            .sum();
        assert!(80 - numbers >= 28, "{numbers}");
    }
}
