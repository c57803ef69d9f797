//! The calls of the last minute, or of the part of a stored trace, as a graph over the width of the screen.

use ratatui::layout::Rect;

use crate::canvas::{Align, Canvas};
use crate::state::history::SLOTS;
use crate::state::{Span, State};
use crate::text::grouped;

/// Cells for what stands beside it.
const LABEL: u16 = 17;

/// Whether there is anything to draw: aggregated calls of a stored trace have no times.
pub fn is_known(state: &State) -> bool {
    state.span == Span::Live || state.history.slots().next().is_some()
}

/// Draws it, as high as the area.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    if area.height == 0 || area.width < 2 * LABEL {
        return;
    }
    let graph = Rect { x: area.x + LABEL + 1, width: area.width - LABEL - 1, ..area };
    let rates = rates(state, usize::from(graph.width));
    let peak = rates.iter().copied().fold(0.0, f64::max);
    let theme = canvas.theme;
    let labels = match (area.height, state.span) {
        (1, _) => vec![format!("peak {}/s", grouped(peak.round() as u64))],
        (_, Span::Live) => vec![format!("peak {}/s", grouped(peak.round() as u64)), "last minute".to_owned()],
        (_, Span::Range { .. }) => vec![format!("peak {}/s", grouped(peak.round() as u64)), "calls/s".to_owned()],
    };
    for (label, y) in labels.iter().zip(area.y..area.bottom()) {
        canvas.put_aligned(Rect { y, width: LABEL, height: 1, ..area }, label, theme.dim(), Align::Right);
    }
    let lines = usize::from(graph.height);
    for (&rate, x) in rates.iter().zip(graph.x..graph.right()) {
        if rate <= 0.0 {
            continue;
        }
        let eighths = ((rate / peak * 8.0 * lines as f64).round() as usize).max(1);
        for (line, y) in (graph.y..graph.bottom()).rev().enumerate() {
            let filled = eighths.saturating_sub(8 * line).min(8);
            if filled > 0 {
                canvas.put(x, y, 1, theme.glyphs.rising[filled - 1], theme.accent());
            }
        }
    }
}

/// Calls per second by cell, up to the last slot of time that is over.
fn rates(state: &State, cells: usize) -> Vec<f64> {
    // Of the slots that are kept, the present one is not over.
    let is_over = state.span != Span::Live || state.summary.is_some();
    let (end, shown) = if is_over { (state.end_slot(), SLOTS) } else { (state.end_slot() - 1, SLOTS - 1) };
    let seconds = state.slot_length() as f64 / 1e9;
    let mut calls = vec![0; shown as usize];
    for slot in state.history.slots().filter(|slot| slot.number + shown >= end && slot.number < end) {
        calls[(slot.number + shown - end) as usize] = slot.calls;
    }
    // A cell is a part of a slot, or the mean of some.
    let place = |cell: usize| cell * calls.len() / cells;
    let rate = |cell: usize| {
        let slots = &calls[place(cell)..place(cell + 1).max(place(cell) + 1)];
        slots.iter().sum::<u64>() as f64 / slots.len() as f64 / seconds
    };
    (0..cells).map(rate).collect()
}

#[cfg(test)]
mod tests {
    use rtrace_model::{Summary, Timestamp};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_slot_is_wider_than_a_cell_or_narrower() {
        let mut state = State::new(Span::Live, false);
        state.now = Timestamp(100 * SECOND + 1);
        for (number, calls) in [(41, 30), (99, 60), (100, 1_000)] {
            state.history.add_calls(number, calls);
        }
        let ends = |rates: &[f64]| (rates.len(), rates[0], rates[rates.len() - 1], rates.iter().sum::<f64>());
        assert_eq!(ends(&rates(&state, 59)), (59, 30.0, 60.0, 90.0), "the present second is not over");
        assert_eq!(ends(&rates(&state, 118)), (118, 30.0, 60.0, 180.0), "slots have two cells");
        state.finish(&Summary::default());
        assert_eq!(ends(&rates(&state, 30)), (30, 15.0, 530.0, 545.0), "the mean of two slots");
        assert_eq!(rates(&state, 0), [0.0; 0]);
    }
}
