//! The marks of time above a timeline.

use ratatui::layout::Rect;
use rtrace_model::units;

use crate::app::App;
use crate::canvas::{Align, Canvas};
use crate::state::{Span, State};

/// The least cells between two marks.
const APART: u64 = 14;

/// Steps between marks, of each power of ten.
const STEPS: [u64; 3] = [1, 2, 5];

/// Marks that are closer than this, in nanoseconds, are named by the time since the first one.
const FINE: u64 = 1_000_000;

/// Whether the present is at the right end.
pub fn follows(app: &App, state: &State) -> bool {
    app.window.end.is_none() && state.span == Span::Live
}

/// Draws the marks of a span of time.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, app: &App, state: &State, (from, to): (u64, u64)) {
    if area.is_empty() || from >= to {
        return;
    }
    let dim = canvas.theme.dim();
    let (length, cells) = (to - from, u64::from(area.width));
    let step = step(length, cells);
    let origin = if follows(app, state) { to } else { app.origin(state) };
    // The first mark that is not before the span, as a multiple of the step from where times are counted.
    let first = match from.checked_sub(origin) {
        Some(since) => since.checked_next_multiple_of(step).and_then(|since| origin.checked_add(since)),
        None => Some(origin - (origin - from) / step * step),
    };
    let Some(first) = first else { return };
    for time in std::iter::successors(Some(first), |time| time.checked_add(step)).take_while(|&time| time <= to) {
        let x = ((time - from) as u128 * u128::from(cells) / u128::from(length)) as u16;
        let text = match time - first {
            since if since > 0 && step < FINE && time > origin => format!("|+{}", units::round(since)),
            _ => format!("|{}", name(app, state, time, to)),
        };
        if x < area.width && time != to {
            canvas.put(area.x + x, area.y, area.width - x, &text, dim);
        }
    }
    let right = if follows(app, state) && !app.paused { " now" } else { "" };
    canvas.put_aligned(area, right, dim, Align::Right);
}

/// A time as the axis names it, if that ends at `to`.
pub fn name(app: &App, state: &State, time: u64, to: u64) -> String {
    if follows(app, state) {
        return format!("-{}", units::round(to.saturating_sub(time)));
    }
    units::round(time.saturating_sub(app.origin(state)))
}

/// The time between two marks.
fn step(length: u64, cells: u64) -> u64 {
    let least = (u128::from(length) * u128::from(APART) / u128::from(cells.max(1))).max(1);
    let steps = (0..19).flat_map(|power| STEPS.map(|step| step * 10_u64.pow(power)));
    steps.into_iter().find(|&step| u128::from(step) >= least).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_apart() {
        assert_eq!(step(1_000_000_000, 60), 500_000_000);
        assert_eq!(step(1_000_000_000, 180), 100_000_000);
        assert_eq!(step(1_000, 78), 200);
        assert_eq!(step(1, 78), 1);
        assert!(step(u64::MAX, 1) > u64::MAX / 5);
    }
}
