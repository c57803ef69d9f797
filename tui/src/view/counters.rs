//! Columns for what is counted on every call: the same in all tables, where there is room for them.

use rtrace_model::Count;

use crate::canvas::{Cell, Column, GAP};
use crate::state::State;
use crate::state::counters::Figure;

/// The columns of text that tables have without counters, before these take some.
const WITHOUT: u16 = 78;

/// The least cells of a column.
const LEAST: usize = 10;

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
pub fn column(figure: &Figure) -> Column<'_> {
    Column::number(&figure.title, cells(figure), 0)
}

/// The text of that column for calls with that time without traced callees and these counts.
pub fn text(figure: &Figure, exclusive: u64, counts: &[Count]) -> Cell<'static> {
    figure.of(exclusive, counts).to_string().into()
}

/// One more than the title has, for the mark of the order.
fn cells(figure: &Figure) -> u16 {
    u16::try_from(crate::text::width(&figure.title).max(LEAST - 1) + 1).unwrap_or(u16::MAX)
}
