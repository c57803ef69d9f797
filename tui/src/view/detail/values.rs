//! The arguments and results of a function: a line for each, with its last and its most frequent values.

use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::value_bounds;

use crate::canvas::Canvas;
use crate::state::values::OfColumn;
use crate::text::{fit, share, width};

/// Cells of a name and of a value, at most, and between two things.
const NAME: usize = 16;
const VALUE: usize = 24;
const GAP: usize = 2;

/// Values that are named.
const FREQUENT: usize = 3;

/// Lines for values with their title; none where there are none.
pub fn height(columns: &[OfColumn]) -> u16 {
    if columns.is_empty() { 0 } else { u16::try_from(columns.len() + 1).unwrap_or(u16::MAX) }
}

/// Draws them; the first ones, if there is no room for all.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, columns: &[OfColumn]) {
    let theme = canvas.theme;
    let named = |of: &OfColumn| {
        if of.column.at_exit && !of.column.is_result() {
            format!(">{}", of.column.name)
        } else {
            of.column.name.clone()
        }
    };
    let rows: Vec<[String; 4]> = columns
        .iter()
        .map(|of| [named(of), of.last(), frequent(of), spread(of, &|calls| theme.curve(calls, 0))])
        .collect();
    let titles = ["value", "last", "most frequent", "distribution"].map(str::to_owned);
    let most = [NAME, VALUE, usize::MAX, usize::MAX];
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&titles]).map(|row| width(&row[column])).max().unwrap_or(0);
        cells.min(most[column])
    });
    let lines = [(&titles, theme.title())].into_iter().chain(rows.iter().map(|row| (row, Style::new())));
    for ((row, style), y) in lines.zip(area.y..area.bottom()) {
        let mut x = area.x;
        for (column, text) in row.iter().enumerate() {
            let room = usize::from(area.right().saturating_sub(x));
            if room == 0 {
                break;
            }
            let cells = widths[column].min(room);
            let style = if column == 0 { style.patch(theme.dim()) } else { style };
            canvas.put(x, y, u16::try_from(cells).unwrap_or(u16::MAX), &fit(text, cells, theme.glyphs), style);
            x = x.saturating_add(u16::try_from(cells + GAP).unwrap_or(u16::MAX));
        }
    }
}

/// The values with most calls and their shares; what is left, and what is not known.
fn frequent(of: &OfColumn) -> String {
    let part = |calls: u64| share(calls as f64 / of.calls().max(1) as f64);
    let mut texts: Vec<String> =
        of.most_frequent(FREQUENT).into_iter().map(|(value, calls)| format!("{value} {} %", part(calls))).collect();
    texts.extend((of.more > 0).then(|| format!("[more] {} %", part(of.more))));
    texts.extend((of.unknown > 0).then(|| format!("- {} %", part(of.unknown))));
    texts.join("  ")
}

/// How integers are spread over powers of two: the first and the last bound, with a curve between them.
fn spread(of: &OfColumn, curve: &dyn Fn(&[u64]) -> String) -> String {
    let Some((first, calls)) = of.steps() else { return String::new() };
    let last = first + i32::try_from(calls.len()).unwrap_or(i32::MAX) - 1;
    format!("{} {} {}", value_bounds(first).0, curve(&calls), value_bounds(last).1 - 1)
}
