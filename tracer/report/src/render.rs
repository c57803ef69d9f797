//! A report for programs, as CSV and as JSON. Names come from traced programs and are escaped in both.

use std::io::{self, Write};

use rtrace_model::{csv_field, escape};

use super::Report;
use super::table::{Column, Datum, RecordedValue, Table};

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
fn data<'a>(table: &'a Table, row: &'a [Datum]) -> impl Iterator<Item = (&'a Column, &'a Datum)> {
    table.columns.iter().zip(row).filter(|(column, _)| column.is_data)
}

fn field(value: &Datum) -> String {
    match value {
        Datum::Name(text) | Datum::Nested(_, text) | Datum::Verdict { text, .. } => csv_field(text),
        // Not the empty field of a text that is not known.
        Datum::Recorded(RecordedValue::Text(text)) if text.is_empty() => "\"\"".to_owned(),
        Datum::Recorded(RecordedValue::Text(text)) => csv_field(text),
        _ => number(value).unwrap_or_default(),
    }
}

/// A figure as digits; absent where it is not known.
fn number(value: &Datum) -> Option<String> {
    match value {
        Datum::Count(number) | Datum::AtLeast(number) | Datum::Id(number) => Some(number.to_string()),
        Datum::Time(time) | Datum::Traced(time) | Datum::AtMost(time) | Datum::Bound(time) => Some(time.to_string()),
        Datum::Share(part) | Datum::Bar(part) | Datum::Change(part) => Some(format!("{part:.6}")),
        Datum::Ratio(ratio) | Datum::Rate(ratio) => Some(format!("{ratio:.6}")),
        Datum::Recorded(RecordedValue::Integer(number)) => Some(number.to_string()),
        Datum::Recorded(RecordedValue::Address(number)) => Some(number.to_string()),
        Datum::Recorded(RecordedValue::Float(bits)) => Some(format!("{:?}", f64::from_bits(*bits))),
        Datum::Name(_)
        | Datum::Nested(..)
        | Datum::Verdict { .. }
        | Datum::Absent
        | Datum::Recorded(RecordedValue::Text(_)) => None,
    }
}

/// Writes one object: what was recorded, `rows_left_out`, `rows` and `notes`.
pub(super) fn json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{")?;
    for (name, about) in &report.about {
        write!(out, "{}:{},", text(name), serde_json::to_string(about)?)?;
    }
    if let Some(is_per_second) = report.is_per_second {
        write!(out, "\"per_second\":{is_per_second},")?;
    }
    if let Some(efficiency) = &report.efficiency {
        write!(out, "\"efficiency\":{},", serde_json::to_string(efficiency)?)?;
    }
    write!(out, "\"rows_left_out\":{},\"rows\":[", report.table.left_out)?;
    for (number, row) in report.table.rows.iter().enumerate() {
        let separator = if number == 0 { "" } else { "," };
        let member = |(column, value): (&Column, &Datum)| format!("{}:{}", text(&escape(column.key)), literal(value));
        let members: Vec<String> = data(&report.table, row).map(member).collect();
        write!(out, "{separator}\n{{{}}}", members.join(","))?;
    }
    let notes: Vec<String> = report.notes.iter().map(|note| text(&note.text)).collect();
    writeln!(out, "\n],\"notes\":[{}]}}", notes.join(","))
}

fn literal(value: &Datum) -> String {
    match value {
        Datum::Name(name) | Datum::Nested(_, name) | Datum::Verdict { text: name, .. } => text(&escape(name)),
        Datum::Recorded(RecordedValue::Text(content)) => text(&escape(content)),
        // Numbers that JSON does not have.
        Datum::Recorded(RecordedValue::Float(bits)) if !f64::from_bits(*bits).is_finite() => {
            text(&f64::from_bits(*bits).to_string())
        }
        _ => number(value).unwrap_or_else(|| "null".to_owned()),
    }
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::people::Note;

    fn report() -> Report {
        let name = Datum::Name("std::map<int, \"\u{1b}[31m\">::at(int const&) const, and more of it".into());
        Report {
            table: Table {
                columns: vec![
                    Column::new("calls", "calls"),
                    Column::new("max_ns", "max"),
                    Column::name("name", "name"),
                ],
                rows: vec![
                    vec![Datum::Count(7), Datum::Time(1_500), name],
                    vec![Datum::Count(1_234_567), Datum::Absent, Datum::Nested(2, "f".into())],
                ],
                ..Table::default()
            },
            notes: vec![Note::plain("a \"note\"")],
            ..Report::default()
        }
    }

    fn rendered(render: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        render(&mut out).unwrap();
        String::from_utf8(out).unwrap()
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
        let rows = vec![vec![Datum::Name("@SUM(1,2)".into()), Datum::Change(-0.5)]];
        let table = Table { columns, rows, ..Table::default() };
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
