//! One line that says which colour is which library, and how the time is shared among them.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::LibraryId;

use crate::canvas::Canvas;
use crate::colours::Colours;
use crate::state::State;
use crate::text::{fit, share, width};

/// A view that is lower needs its lines for itself.
const LEAST_HEIGHT: u16 = 12;

/// Cells of a library's name, at most.
const NAME: usize = 24;

/// Draws it on the last line of a view, if that is high enough; returns the area above. `marks`: what parts of bars and
/// marks stand for.
pub fn draw_below(
    canvas: &mut Canvas<'_>,
    area: Rect,
    state: &State,
    colours: &Colours,
    marks: &[(&str, &str)],
) -> Rect {
    let times = times(state);
    if area.height < LEAST_HEIGHT || times.is_empty() {
        return area;
    }
    let above = Rect { height: area.height - 1, ..area };
    let theme = canvas.theme;
    let (mut x, y) = (area.x, above.bottom());
    for (glyph, what) in marks {
        x += canvas.put(x, y, area.right().saturating_sub(x), &format!("{glyph} {what}"), theme.dim()) + 2;
    }
    let whole: u64 = times.iter().map(|&(_, time)| time).sum();
    for (place, &(library, time)) in times.iter().enumerate() {
        let name = fit(state.library(library), NAME, theme.glyphs).into_owned();
        let text = format!("{name} {} %", share(time as f64 / whole.max(1) as f64));
        let left = times.len() - place;
        let swatch = if theme.has_colours() { format!("{0}{0} ", theme.glyphs.shades[3]) } else { String::new() };
        let more = if left > 1 { format!("and {left} more libraries") } else { String::new() };
        let room = usize::from(area.right().saturating_sub(x));
        let reserved = if left > 1 { width(&more) + 2 } else { 0 };
        if width(&swatch) + width(&text) + reserved > room {
            let rest = if place == 0 { text } else { more };
            canvas.put(x, y, area.right().saturating_sub(x), &rest, theme.dim());
            break;
        }
        let pieces = [(Cow::from(swatch), colours.library(library)), (Cow::from(text), Style::new())];
        x = canvas.put_all(Rect { x, y, width: area.right().saturating_sub(x), height: 1 }, pieces) + 2;
    }
    above
}

/// The libraries whose functions were called, with the work in them, the most first.
fn times(state: &State) -> Vec<(LibraryId, u64)> {
    let mut times: BTreeMap<LibraryId, u64> = BTreeMap::new();
    for function in state.functions().filter(|function| function.calls > 0) {
        let time = times.entry(function.library).or_default();
        *time = time.saturating_add(function.work());
    }
    let mut times: Vec<(LibraryId, u64)> = times.into_iter().collect();
    times.sort_by_key(|&(_, time)| Reverse(time));
    times
}
