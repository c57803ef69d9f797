//! The durations of a function's calls over time: a line for each class, the long ones above, and their sums.

use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::canvas::{Align, Canvas};
use crate::state::function::Function;
use crate::state::history::{CLASSES, SLOTS, Slot};
use crate::state::{Span, State};
use crate::text::{count, short_ns};

/// Cells for the labels of durations.
const LABELS: u16 = 8;

/// Cells for the distribution beside the picture, with its counts.
const SUMS: u16 = 24;

/// The lines that a picture has at most: a title, the classes, the times.
pub fn height(function: &Function, state: &State) -> u16 {
    let sums = sums(function, state);
    let used = || (0..CLASSES).filter(|&class| sums[class] > 0);
    let classes = used().next_back().zip(used().next()).map_or(0, |(last, first)| last - first + 1);
    u16::try_from(classes).unwrap_or(0) + 2
}

/// Whether it is known when calls were: of aggregated calls that are stored it is not.
fn has_times(function: &Function, state: &State) -> bool {
    state.span == Span::Live || !function.has_bounds()
}

fn sums(function: &Function, state: &State) -> [u64; CLASSES] {
    if has_times(function, state) { in_sight(function, state.end_slot()) } else { function.durations() }
}

/// Draws it.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State, origin: u64) {
    let end = state.end_slot();
    let sums = sums(function, state);
    let used = || (0..CLASSES).filter(|&class| sums[class] > 0);
    let (Some(shortest), Some(longest)) = (used().next(), used().next_back()) else {
        canvas.put(
            area.x,
            area.y,
            area.width,
            "no call with a known duration has ended in the last minute",
            canvas.theme.dim(),
        );
        return;
    };
    if area.height < 3 {
        return;
    }
    let sums_width = if area.width >= 70 { SUMS } else { 0 };
    let picture = Rect {
        x: area.x + LABELS,
        y: area.y + 1,
        width: area.width.saturating_sub(LABELS + sums_width),
        height: area.height - 2,
    };
    let title = match (state.span, function.has_bounds()) {
        (Span::Live, false) => "durations in the last minute",
        (Span::Live, true) => "durations in the last minute, known to a power of two",
        (Span::Range { .. }, false) => "durations over the range",
        (Span::Range { .. }, true) => "durations, known to a power of two; aggregated calls have no start times",
    };
    canvas.put(area.x, area.y, area.width, title, canvas.theme.title());
    let lines = usize::from(picture.height);
    let per_line = (longest - shortest + 1).div_ceil(lines.max(1));
    let most = sums.iter().copied().max().unwrap_or(1).max(1);
    for (line, y) in (0..(longest - shortest + 1).div_ceil(per_line)).rev().zip(picture.y..picture.bottom()) {
        let classes = shortest + line * per_line..(shortest + (line + 1) * per_line).min(CLASSES);
        let label = format!("{} ", short_ns(floor(classes.start)));
        canvas.put_aligned(Rect { x: area.x, y, width: LABELS, height: 1 }, &label, canvas.theme.dim(), Align::Right);
        let cells = columns(function.history.slots(), classes.clone(), end, picture.width);
        draw_cells(canvas, Rect { y, height: 1, ..picture }, &cells);
        if sums_width > 0 {
            let sum: u64 = sums[classes].iter().sum();
            let x = picture.right() + 1;
            let gauge = canvas.theme.gauge(sum as f64 / most as f64, usize::from(sums_width - 12));
            canvas.put_aligned(Rect { x, y, width: 9, height: 1 }, &count(sum), Style::new(), Align::Right);
            canvas.put(x + 10, y, sums_width - 11, &gauge, canvas.theme.accent());
        }
    }
    if !has_times(function, state) {
        return;
    }
    let shown = u16::try_from((longest - shortest + 1).div_ceil(per_line)).unwrap_or(picture.height);
    draw_times(canvas, Rect { y: picture.y + shown, height: 1, ..picture }, state, origin);
}

/// Calls by class of durations, of the slots before `end`.
fn in_sight(function: &Function, end: u64) -> [u64; CLASSES] {
    let mut sums = [0; CLASSES];
    for slot in function.history.slots().filter(|slot| slot.number + SLOTS >= end) {
        for (sum, &calls) in sums.iter_mut().zip(&slot.classes) {
            *sum += u64::from(calls);
        }
    }
    sums
}

/// The least duration of a class, in nanoseconds.
fn floor(class: usize) -> u64 {
    let decade = 10_u64.pow(u32::try_from(class / 2).unwrap_or(0));
    if class.is_multiple_of(2) { decade } else { (decade as f64 * 10_f64.sqrt()) as u64 }
}

/// Calls of some classes, by cell; the last one ends with the slot before `end`.
fn columns<'a>(
    slots: impl Iterator<Item = &'a Slot>,
    classes: std::ops::Range<usize>,
    end: u64,
    width: u16,
) -> Vec<u64> {
    let mut cells = vec![0; usize::from(width)];
    for slot in slots.filter(|slot| slot.number + SLOTS >= end) {
        let calls: u64 = slot.classes[classes.clone()].iter().map(|&calls| u64::from(calls)).sum();
        // A slot may be wider than a cell, or narrower.
        let place = |number: u64| ((number + SLOTS - end) * u64::from(width) / SLOTS) as usize;
        let (first, last) = (place(slot.number), place(slot.number + 1).min(cells.len()));
        for cell in &mut cells[first.min(last)..last.max(first + 1).min(usize::from(width))] {
            *cell += calls;
        }
    }
    cells
}

/// More calls make a cell denser, on a logarithmic scale.
fn draw_cells(canvas: &mut Canvas<'_>, area: Rect, cells: &[u64]) {
    for (&calls, x) in cells.iter().zip(area.x..area.right()) {
        if calls > 0 {
            let share = ((calls as f64).log10() / 6.0).clamp(0.0, 0.999);
            let theme = canvas.theme;
            canvas.put(x, area.y, 1, theme.glyphs.shades[(share * 4.0) as usize], theme.heat(share));
        }
    }
}

fn draw_times(canvas: &mut Canvas<'_>, area: Rect, state: &State, origin: u64) {
    let (dim, length, begin) = (canvas.theme.dim(), state.slot_length(), state.begin.0 - origin.min(state.begin.0));
    let ago = match state.span {
        Span::Live => ("-1 min".to_owned(), "-30 s".to_owned(), "now".to_owned()),
        Span::Range { .. } => {
            let at = |slots: u64| short_ns(begin + slots * length);
            (at(0), at(SLOTS / 2), at(SLOTS))
        }
    };
    canvas.put(area.x, area.y, area.width, &ago.0, dim);
    canvas.put(area.x + area.width / 2, area.y, area.width / 2, &ago.1, dim);
    canvas.put_aligned(area, &ago.2, dim, Align::Right);
}
