//! A report as a table for people, as CSV and as JSON.
//!
//! Names come from traced programs and are escaped in every form.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row};
use rtrace_model::{csv_field, escape, format_ns};

use super::Report;
use super::table::{Column, Shown, Table, Value};

/// Characters of the longest bar.
const BAR: f64 = 40.0;

/// Writes columns for people, between a title and notes; names are cut where a line would be
/// longer than `width`.
pub(super) fn table(report: &Report, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", report.title)?;
    let shown: Vec<usize> = (0..report.table.columns.len()).filter(|&column| is_shown(&report.table, column)).collect();
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.set_header(shown.iter().map(|&column| escape(report.table.columns[column].title).into_owned()));
    for row in &report.table.rows {
        let mut line = Row::from(shown.iter().map(|&column| readable(&row[column])).collect::<Vec<_>>());
        line.max_height(1);
        table.add_row(line);
    }
    for (place, &column) in shown.iter().enumerate() {
        let is_name = is_name(&report.table, column);
        let Some(place) = table.column_mut(place) else { continue };
        place.set_padding((0, 2));
        if !is_name {
            place.set_cell_alignment(CellAlignment::Right);
            place.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    if !report.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &report.notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn is_shown(table: &Table, column: usize) -> bool {
    match table.columns[column].shown {
        Shown::Always => true,
        Shown::IfNotZero => table.rows.iter().any(|row| !row[column].is_zero()),
        Shown::Never => false,
    }
}

fn is_name(table: &Table, column: usize) -> bool {
    table.rows.iter().any(|row| matches!(row[column], Value::Name(_) | Value::Nested(..) | Value::Bar(_)))
}

fn readable(value: &Value) -> String {
    match value {
        Value::Name(name) => escape(name).into_owned(),
        Value::Nested(depth, name) => format!("{}{}", "  ".repeat(*depth), escape(name)),
        Value::Count(count) => count.to_string(),
        Value::Time(time) => format_ns(*time),
        Value::AtMost(bound) => format!("<={}", format_ns(*bound)),
        Value::Share(share) => format!("{:.1} %", share * 100.0),
        Value::Bar(part) => "#".repeat((part * BAR).round() as usize),
        Value::Change(part) => format!("{:+.1} %", part * 100.0),
        Value::Ratio(ratio) => format!("{ratio:.3}"),
        Value::Absent => "-".to_owned(),
    }
}

/// Writes comma-separated values as RFC 4180 has them, a line of names first.
pub(super) fn csv(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let columns = table.columns.iter().filter(|column| column.is_data);
    let names: Vec<String> = columns.map(|column| csv_field(column.key)).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in &table.rows {
        let fields: Vec<String> = data(table, row).map(|(_, value)| field(value)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

/// What of a row goes to scripts.
fn data<'a>(table: &'a Table, row: &'a [Value]) -> impl Iterator<Item = (&'a Column, &'a Value)> {
    table.columns.iter().zip(row).filter(|(column, _)| column.is_data)
}

fn field(value: &Value) -> String {
    match value {
        Value::Name(name) | Value::Nested(_, name) => csv_field(name),
        Value::Count(number) | Value::Time(number) | Value::AtMost(number) => number.to_string(),
        Value::Share(part) | Value::Bar(part) | Value::Change(part) | Value::Ratio(part) => format!("{part:.6}"),
        Value::Absent => String::new(),
    }
}

/// Writes one object: `title`, `rows` and `notes`.
pub(super) fn json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"title\":{},\"rows\":[", text(&report.title))?;
    for (number, row) in report.table.rows.iter().enumerate() {
        let separator = if number == 0 { "" } else { "," };
        let member = |(column, value): (&Column, &Value)| format!("{}:{}", text(&escape(column.key)), literal(value));
        let members: Vec<String> = data(&report.table, row).map(member).collect();
        write!(out, "{separator}\n{{{}}}", members.join(","))?;
    }
    let notes: Vec<String> = report.notes.iter().map(|note| text(note)).collect();
    writeln!(out, "\n],\"notes\":[{}]}}", notes.join(","))
}

fn literal(value: &Value) -> String {
    match value {
        Value::Name(name) | Value::Nested(_, name) => text(&escape(name)),
        Value::Count(number) | Value::Time(number) | Value::AtMost(number) => number.to_string(),
        Value::Share(part) | Value::Bar(part) | Value::Change(part) | Value::Ratio(part) => format!("{part:.6}"),
        Value::Absent => "null".to_owned(),
    }
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn report() -> Report {
        let name = Value::Name("std::map<int, \"\u{1b}[31m\">::at(int const&) const, and more of it".into());
        Report {
            title: "title".into(),
            table: Table {
                columns: vec![Column::new("calls", "calls"), Column::new("max_ns", "max"), Column::new("name", "name")],
                rows: vec![
                    vec![Value::Count(7), Value::Time(1_500), name],
                    vec![Value::Count(1_234_567), Value::Absent, Value::Nested(2, "f".into())],
                ],
                left_out: 0,
            },
            notes: vec!["a \"note\"".into()],
        }
    }

    fn rendered(render: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        render(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_narrow_terminal_cuts_names_and_no_numbers() {
        assert_eq!(
            rendered(|out| table(&report(), Some(40), out)),
            "\
title

  calls       max  name
      7  1.500 us  std::map<int,…
1234567         -      f

a \"note\"
"
        );
    }

    #[test]
    fn csv_quotes_and_escapes_names() {
        assert_eq!(
            rendered(|out| csv(&report().table, out)),
            "\
calls,max_ns,name
7,1500,\"std::map<int, \"\"\\x1b[31m\"\">::at(int const&) const, and more of it\"
1234567,,f
"
        );
    }

    #[test]
    fn csv_has_no_formulas_and_keeps_numbers() {
        let columns = ["-1+2", "change"].map(|name| Column::new(name, name)).into();
        let rows = vec![vec![Value::Name("@SUM(1,2)".into()), Value::Change(-0.5)]];
        let table = Table { columns, rows, left_out: 0 };
        assert_eq!(rendered(|out| csv(&table, out)), "'-1+2,change\n\"'@SUM(1,2)\",-0.500000\n");
    }

    #[test]
    fn json_is_valid_and_escapes_names() {
        let value: serde_json::Value = serde_json::from_str(&rendered(|out| json(&report(), out))).unwrap();
        assert_eq!(value["rows"][0]["name"], "std::map<int, \"\\x1b[31m\">::at(int const&) const, and more of it");
        assert_eq!(value["rows"][1]["max_ns"], serde_json::Value::Null);
        assert_eq!(value["notes"][0], "a \"note\"");
    }
}
