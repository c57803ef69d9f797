//! Text in columns: for people, and comma-separated for programs.

use std::io::{self, Write};

use rtrace_model::{csv_field, names};
use serde_json::Value;

/// Cells between two columns.
const GAP: usize = 2;
/// What is cut keeps so many cells, however narrow the terminal.
const LEAST: usize = 10;

/// Rows of text, the first of which are headings.
pub struct TextColumns {
    rows: Vec<Vec<String>>,
    /// The column that is cut where there is no room.
    cut: usize,
    is_right: fn(usize) -> bool,
}

impl TextColumns {
    /// Columns of which this one is cut, and these have their cells on the right.
    pub fn new<'a>(
        headings: impl IntoIterator<Item = &'a str>,
        cut: usize,
        is_right: fn(usize) -> bool,
    ) -> TextColumns {
        TextColumns { rows: vec![headings.into_iter().map(str::to_owned).collect()], cut, is_right }
    }

    /// Adds a row of escaped text.
    pub fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The rows, a line each; as wide as they are, or as the terminal.
    pub fn text(&self, terminal: Option<u16>) -> String {
        let width_of = |place: usize| {
            self.rows.iter().filter_map(|row| row.get(place)).map(|cell| names::width(cell)).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.rows[0].len()).map(width_of).collect();
        if let Some(terminal) = terminal {
            let whole = widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
            let excess = whole.saturating_sub(usize::from(terminal));
            let cut = &mut widths[self.cut];
            *cut = (*cut).min(cut.saturating_sub(excess).max(LEAST));
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (place, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let cell = names::fit(cell, width);
                let padding = " ".repeat(width.saturating_sub(names::width(&cell)));
                let (before, behind) =
                    if (self.is_right)(place) { (padding, String::new()) } else { (String::new(), padding) };
                line += &format!("{before}{cell}{behind}{:GAP$}", "");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// An empty field.
pub static NOTHING: Value = Value::Null;

/// The elements of a list of JSON.
pub fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Writes a line of comma-separated values, of what stands in JSON. Fractions have four digits.
pub fn csv_line(fields: &[&Value], out: &mut dyn Write) -> io::Result<()> {
    let field = |field: &&Value| match field {
        Value::Null => String::new(),
        Value::String(text) => csv_field(text),
        Value::Number(number) if number.is_f64() => format!("{:.4}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    };
    writeln!(out, "{}", fields.iter().map(field).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells_and_one_is_cut() {
        let mut columns = TextColumns::new(["NAME", "CALLS"], 0, |place| place == 1);
        columns.add(["a_function_of_a_library".to_owned(), "1".to_owned()]);
        columns.add(["漢字".to_owned(), String::new()]);
        let wide = "NAME                     CALLS\na_function_of_a_library      1\n漢字\n";
        assert_eq!(columns.text(None), wide);
        assert_eq!(columns.text(Some(30)), wide);
        let narrow = columns.text(Some(20));
        assert!(narrow.lines().all(|line| names::width(line) <= 20) && narrow.contains('…'), "{narrow}");
        assert_eq!(columns.text(Some(1)), columns.text(Some(17)), "something of a name stays");
    }
}
