//! One function: its durations over time, its callers and callees, its slowest calls.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use rtrace_model::{RegionId, format_ns};

use crate::app::App;
use crate::canvas::{Align, Canvas};
use crate::list;
use crate::panel::{Panel, Subject};
use crate::state::counters::Figure;
use crate::state::function::Function;
use crate::state::history::{CLASSES, SLOTS, Slot};
use crate::state::paths::{Figures, Label, ROOT};
use crate::state::{Span, State};
use crate::text::{count, counted, grouped, percent, short_ns};
use crate::view::{counters, functions, tree};

/// The least cells for a fact, of which four stand on a line where there is room.
const FACT: u16 = 18;

/// Cells for the labels of durations.
const LABELS: u16 = 8;

/// Cells for the distribution beside the picture, with its counts.
const SUMS: u16 = 24;

/// Width from which the three lists stand beside each other.
const WIDE: u16 = 110;

/// What is said in place of an empty list.
const NONE: &str = "none is traced";

/// Values, each with what it is the value of.
type Rows = Vec<(String, String)>;

/// The view. It goes through the list of functions in its order.
#[derive(Debug)]
pub struct Detail;

impl Panel for Detail {
    fn title(&self) -> &'static str {
        "detail"
    }

    fn arrange(&mut self, _app: &mut App, _state: &State) {}

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        draw(canvas, area, app, state);
    }

    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn list::Rows {
        &mut app.functions
    }

    fn shows(&self) -> Option<Subject> {
        Some(Subject::Function)
    }

    fn enter(&mut self, app: &mut App, chosen: Option<RegionId>) {
        app.focus = chosen.or(app.focus).or(app.functions.key());
        if let Some(region) = app.focus {
            app.functions.choose_key(region);
        }
    }

    fn moved(&mut self, app: &mut App) {
        app.focus = app.functions.key();
    }
}

/// Draws what is known of the function in focus.
fn draw(canvas: &mut Canvas<'_>, area: Rect, app: &App, state: &State) {
    let Some(function) = app.focus.and_then(|region| state.function(region)) else {
        canvas.put(area.x, area.y, area.width, "no function is selected: Enter opens one", canvas.theme.dim());
        return;
    };
    let lists = if area.height < 9 { 0 } else { (area.height.saturating_sub(5) / 3).clamp(3, 12) };
    let (counted, _) = counters::fitting(state, area.width);
    let lines = 2 + u16::try_from(counted.len().div_ceil(4)).unwrap_or(0);
    let [name, facts, picture, _, below] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines),
        Constraint::Fill(1),
        Constraint::Length(lists.min(1)),
        Constraint::Length(lists),
    ])
    .areas(area);
    draw_name(canvas, name, function, state);
    draw_facts(canvas, facts, function, state, counted);
    if !picture.is_empty() {
        draw_durations(canvas, picture, function, state, app.origin(state));
    }
    if !below.is_empty() {
        draw_lists(canvas, below, function, state, app.origin(state));
    }
}

fn draw_name(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State) {
    let theme = canvas.theme;
    let untimed = match function.unseen {
        0 => String::new(),
        untimed => format!("  {} not timed", counted(untimed, "call")),
    };
    let from = format!("  {}  exit: {}{untimed}", state.library(function.library), function.exit.name());
    canvas.put_all(
        area,
        [(Cow::from(&*function.name), theme.title().patch(theme.accent())), (Cow::from(from), theme.dim())],
    );
}

fn draw_facts(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State, counted: &[Figure]) {
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_ns);
    let rate = state.rate(function.calls, &function.history);
    let mut facts: Vec<(&str, String)> = vec![
        ("calls", grouped(function.calls)),
        ("calls/s", grouped(rate.round() as u64)),
        ("inclusive", known(function.time(function.inclusive))),
        ("exclusive", known(function.time(function.exclusive))),
        ("mean", known(function.mean())),
        ("p50", functions::percentile(function, function.p50())),
        ("p99", functions::percentile(function, function.p99())),
        ("max", known(function.max())),
    ];
    let value = |figure: &Figure| figure.of(function.exclusive, &function.counts).to_string();
    facts.extend(counted.iter().map(|figure| (figure.title.as_str(), value(figure))));
    let across = (area.width / FACT).clamp(1, 4);
    let cells = (area.width / across).min(30);
    for (line, y) in facts.chunks(usize::from(across)).zip(area.y..area.bottom()) {
        for ((title, value), column) in line.iter().zip(0..) {
            let x = area.x + column * cells;
            let room = if column + 1 == across { area.right() - x } else { cells.saturating_sub(1) };
            let taken = canvas.put(x, y, room, &format!("{title} "), canvas.theme.dim());
            canvas.put(x + taken, y, room - taken, value, canvas.theme.title());
        }
    }
}

/// Durations over time: a line for each class, the long ones above, and their sums beside them.
fn draw_durations(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State, origin: u64) {
    // Of folded calls that are stored it is not known when they were.
    let has_times = state.span == Span::Live || !function.has_bounds();
    let end = state.end_slot();
    let sums = if has_times { in_sight(function, end) } else { function.durations() };
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
    if !has_times {
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

/// Who calls it, what it calls, and its slowest calls.
fn draw_lists(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State, origin: u64) {
    let (callers, callees) = neighbours(function, state);
    let areas: Vec<Rect> = if area.width >= WIDE {
        Layout::horizontal([Constraint::Ratio(1, 3); 3]).spacing(3).split(area).to_vec()
    } else {
        Layout::horizontal([Constraint::Ratio(1, 2); 2]).spacing(2).split(area).to_vec()
    };
    let slowest = function.slowest().iter().map(|slow| {
        let tid = state.thread(slow.location).map_or_else(|| "?".to_owned(), |thread| thread.location.tid.to_string());
        let own = percent(slow.duration - slow.child.min(slow.duration), slow.duration);
        let at = short_ns(slow.start.0.saturating_sub(origin));
        (format_ns(slow.duration), format!("at {at}, thread {tid}, {own} own"))
    });
    let no_slowest = match (state.is_folded, state.awaits_calls) {
        (true, true) => "still being read",
        (true, false) => "aggregated: no single calls recorded",
        (false, _) => NONE,
    };
    let lists: [(&str, Rows, &str); 3] =
        [("callers", callers, NONE), ("callees", callees, NONE), ("slowest calls", slowest.collect(), no_slowest)];
    // Where there is not room for all, those that say something.
    let mut shown: Vec<&(&str, Rows, &str)> = lists.iter().collect();
    if area.width < WIDE {
        shown.sort_by_key(|(_, rows, _)| rows.is_empty());
    }
    for ((title, rows, none), place) in shown.into_iter().zip(&areas) {
        draw_list(canvas, *place, title, rows, none);
    }
}

fn draw_list(canvas: &mut Canvas<'_>, area: Rect, title: &str, rows: &[(String, String)], none: &str) {
    const VALUES: u16 = 10;
    canvas.put(area.x, area.y, area.width, title, canvas.theme.title());
    for ((value, name), y) in rows.iter().zip(area.y + 1..area.bottom()) {
        canvas.put_aligned(Rect { y, width: VALUES, height: 1, ..area }, value, Style::new(), Align::Right);
        canvas.put(area.x + VALUES + 2, y, area.width.saturating_sub(VALUES + 2), name, Style::new());
    }
    if rows.is_empty() {
        canvas.put(area.x, area.y + 1, area.width, none, canvas.theme.dim());
    }
}

/// Callers and callees with the inclusive time on those paths, the most first.
fn neighbours(function: &Function, state: &State) -> (Rows, Rows) {
    let (paths, figures) = (state.merged_paths(), state.merged_figures());
    let own = Label::Region(function.region);
    let mut callers: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut callees: BTreeMap<&str, Figures> = BTreeMap::new();
    for (node, &sums) in paths.nodes().iter().zip(&figures).skip(1) {
        let above = paths.node(node.parent).label;
        if node.label == own && node.parent != ROOT {
            callers.entry(tree::name(state, above)).or_default().add(sums);
        }
        if above == own {
            callees.entry(tree::name(state, node.label)).or_default().add(sums);
        }
    }
    let rows = |by: BTreeMap<&str, Figures>| {
        let mut rows: Vec<_> = by.into_iter().filter(|(_, sums)| sums.calls > 0).collect();
        rows.sort_by_key(|(_, sums)| Reverse(sums.inclusive));
        let text = |(name, sums): (&str, Figures)| {
            let time = sums.time(sums.inclusive).map_or_else(|| "-".to_owned(), format_ns);
            (time, format!("{name}  {}", counted(sums.calls, "call")))
        };
        rows.into_iter().map(text).collect()
    };
    (rows(callers), rows(callees))
}
