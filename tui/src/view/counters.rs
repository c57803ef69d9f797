//! Columns for what is counted on every call: the same in all tables, where there is room for them.

use rtrace_model::Count;

use crate::canvas::{Cell, GAP, TableColumn};
use crate::state::State;
use crate::state::counters::{Figure, Value};

/// The columns of text that tables have without counters, before these take some.
const WITHOUT: u16 = 68;

/// The least cells of a column.
const LEAST: usize = 10;

/// Cells of a unit behind a title.
const UNIT: usize = 3;

/// As many figures as there is room for in a table of that width, and the width that they leave.
pub fn fitting(state: &State, width: u16) -> (&[Figure], u16) {
    let figures = state.counters.figures();
    let mut left = width;
    let shown = figures.iter().take_while(|figure| {
        let taken = cells(figure) + GAP;
        let fits = left.saturating_sub(taken) >= WITHOUT;
        left -= if fits { taken } else { 0 };
        fits
    });
    let shown = shown.count();
    (&figures[..shown], left)
}

/// The column of a figure.
pub fn column(figure: &Figure) -> TableColumn<'_> {
    let column = if figure.is_time() { TableColumn::time } else { TableColumn::number };
    column(&figure.title, cells(figure), 0)
}

/// The text of that column for calls with that time without traced callees and these counts.
pub fn text(figure: &Figure, exclusive: u64, counts: &[Count]) -> Cell<'static> {
    match figure.of(exclusive, counts) {
        Value::Time(ns) => Cell::time(Some(ns)),
        value => value.to_string().into(),
    }
}

/// Those of the title, with room for the mark of the order and for a unit.
fn cells(figure: &Figure) -> u16 {
    let unit = if figure.is_time() { UNIT } else { 0 };
    u16::try_from((crate::text::width(&figure.title) + unit).max(LEAST - 1) + 1).unwrap_or(u16::MAX)
}
