//! Calls over time: a lane for each thread, with a line for each depth of nesting.
//!
//! A cell stands for a span of time in which there may be thousands of calls. It shows the function
//! that takes most of it; what is less than half covered is drawn as high as it is covered. A call
//! over several cells bears its function's name.

use std::collections::BTreeMap;

use crossterm::event::KeyCode::{self, Char, Left, Right};
use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::{Location, LocationId, RegionId, units};

use crate::app::{App, Outside};
use crate::canvas::Canvas;
use crate::colours::Colours;
use crate::key::{Binding, Keys, also, find, key};
use crate::list::Rows;
use crate::panel::{self, Act, Panel, PanelSubject};
use crate::state::State;
use crate::state::function::Slow;
use crate::state::lanes::{Bar, Forgotten};
use crate::state::thread::Thread;
use crate::text::{fit_name, short_ns, time, width};
use crate::view::{axis, legend, threads};

/// Cells for the names of threads, where there are as many as four times that, and elsewhere.
const NAMES: u16 = 18;
const FEW_NAMES: u16 = 8;

/// The shortest bar that bears a name, in cells.
const NAMED: usize = 7;

/// Lines that a lane has at the least, if it needs them.
const LEAST_LINES: usize = 2;

/// A lower view says nothing of what it leaves out.
const LEAST_FOR_NOTES: u16 = 6;

/// Lines above a call that was opened.
const ABOVE: usize = 3;

/// Cells of the name of a call that was opened.
const MARKED_NAME: usize = 40;

/// The view. Its list is that of the threads.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Lines of the chosen thread that are not shown, as they are above the others.
    skipped: usize,
}

const KEYS: &[Binding<Act<Timeline>>] = &[
    key(&[Left, Char('h')], "Left/Right", "earlier, later; also h and l", "pan", |_, app, state| {
        app.window.pan(-1, state.now.0);
        Outside::Continue
    }),
    also(&[Right, Char('l')], |_, app, state| {
        app.window.pan(1, state.now.0);
        Outside::Continue
    }),
    key(&[Char('+'), Char('=')], "+/-", "zoom in, zoom out", "zoom", |_, app, _| {
        app.window.zoom(app.window.length / 2);
        Outside::Continue
    }),
    also(&[Char('-')], |_, app, _| {
        app.window.zoom(app.window.length.saturating_mul(2));
        Outside::Continue
    }),
    key(&[Char('J')], "J/K", "deeper calls, outer calls of the thread", "depth", |timeline, _, _| {
        timeline.skipped += 1;
        Outside::Continue
    }),
    also(&[Char('K')], |timeline, _, _| {
        timeline.skipped = timeline.skipped.saturating_sub(1);
        Outside::Continue
    }),
    key(&[Char('f')], "f", "follow the present", "follow", |_, app, _| {
        app.window.end = None;
        Outside::Continue
    }),
];

impl Panel for Timeline {
    fn title(&self) -> &'static str {
        "timeline"
    }

    fn keys(&self) -> Vec<&'static Keys> {
        panel::keys(KEYS)
    }

    fn press(&mut self, code: KeyCode, app: &mut App, state: &State) -> Option<Outside> {
        find(KEYS, code).map(|act| act(self, app, state))
    }

    fn arrange(&mut self, app: &mut App, state: &State) {
        threads::arrange(app, state);
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        self.draw_lanes(canvas, area, app, state);
    }

    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn Rows {
        &mut app.threads
    }

    fn chosen_function(&self, app: &App, state: &State) -> Option<RegionId> {
        app.call.map(|call| call.region).or_else(|| threads::chosen_function(app, state))
    }

    fn shows(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Call)
    }

    fn open(&mut self, app: &mut App, state: &State) {
        let Some(call) = app.call else { return };
        app.threads.want(call.location);
        app.window.show(call.start.0, call.duration, state.now.0);
        self.skipped = (call.depth as usize).saturating_sub(ABOVE);
    }

    fn close(&mut self, app: &mut App, _state: &State) -> bool {
        // The way back to the list that the call is from, if it is from there.
        app.call.take().is_some() && app.trail.is_empty()
    }

    fn moved(&mut self, _app: &mut App) {
        self.skipped = 0;
    }
}

/// Of a cell that is not filled: what it shows, and how much of it is covered.
#[derive(Clone, Copy, Debug, Default)]
struct CellPart {
    covered: f64,
    /// The function that covers most, and how much that is.
    most: Option<(RegionId, f64)>,
}

impl CellPart {
    fn add(&mut self, region: RegionId, cells: f64) {
        self.covered += cells;
        match &mut self.most {
            Some((known, much)) if *known == region => *much += cells,
            Some((_, much)) if *much >= cells => {}
            most => *most = Some((region, cells)),
        }
    }
}

/// From times to cells.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: u64,
    to: u64,
    cells: u16,
}

impl Scale {
    fn cell(&self, time: u64) -> f64 {
        let since = time.clamp(self.from, self.to) - self.from;
        since as f64 / (self.to - self.from).max(1) as f64 * f64::from(self.cells)
    }
}

impl Timeline {
    /// Draws the axis, as many lanes as fit, and what is left out.
    fn draw_lanes(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        let to = app.window.end(state.now.0);
        let from = to.saturating_sub(app.window.length);
        let names = if area.width >= 4 * NAMES { NAMES } else { FEW_NAMES.min(area.width) };
        let scale = Scale { from, to, cells: area.width.saturating_sub(names) };
        let picture = TimelinePicture { scale, colours: &Colours::of(state, app.theme) };
        let axis = Rect { x: area.x + names, width: scale.cells, height: 1.min(area.height), ..area };
        axis::draw(canvas, axis, app, state, (from, to));
        let label = short_ns(app.window.length);
        let label = if axis::follows(app, state) { format!("last {label}") } else { label };
        canvas.put(area.x, area.y, names.saturating_sub(1), &label, canvas.theme.title());
        if app.threads.rows().is_empty() {
            canvas.put_empty(area, app.why_empty(threads::NONE));
            return;
        }

        let area = legend::draw_below(canvas, area, state, picture.colours, &[]);
        let noted = u16::from(area.height >= LEAST_FOR_NOTES);
        let height = area.height.saturating_sub(1 + noted);
        let mut depths = BTreeMap::new();
        let mut least = |id: LocationId| {
            let depth = |id| state.thread(id).map_or(1, |thread| depth(thread, state, scale));
            (*depths.entry(id).or_insert_with(|| depth(id))).min(LEAST_LINES) + 1
        };
        // As many lanes as have their least lines; the chosen one is among them.
        let mut most = usize::from(height).div_ceil(2).max(1);
        let mut shown = app.threads.on_screen(most);
        while most > 1 && shown.iter().map(|&(_, id)| least(id)).sum::<usize>() > usize::from(height) + 1 {
            most = (most - 1).min(shown.len());
            shown = app.threads.on_screen(most);
        }
        let chosen = app.threads.place();
        let lanes: Vec<(usize, &Thread)> =
            shown.iter().filter_map(|&(place, id)| Some((place, state.thread(id)?))).collect();
        let needed: Vec<usize> =
            lanes.iter().map(|(_, thread)| depths.get(&thread.location.id).copied().unwrap_or(1)).collect();
        let chosen_lane = lanes.iter().position(|&(place, _)| place == chosen);
        let lines = heights(&needed, chosen_lane, usize::from(height));
        self.skipped = chosen_lane.map_or(0, |lane| self.skipped.min(needed[lane].saturating_sub(lines[lane])));
        let mut y = area.y + 1;
        for (((place, thread), &lines), &needed) in lanes.iter().zip(&lines).zip(&needed) {
            let skipped = if *place == chosen { self.skipped } else { 0 };
            let lane = Rect { y, height: u16::try_from(lines).unwrap_or(u16::MAX), ..area };
            let name = Rect { width: names.saturating_sub(1), ..lane };
            let rank = app.ranks.get(&thread.location.id).copied();
            draw_name(canvas, name, (thread, rank), *place == chosen, (skipped, needed));
            for (line, y) in (skipped..).zip(lane.y..lane.bottom()) {
                let place = Rect { x: area.x + names, y, width: scale.cells, height: 1 };
                picture.draw_line(canvas, place, (thread, state), line as u32);
                let marked = app.call.filter(|call| call.location == thread.location.id && call.depth as usize == line);
                if let Some(call) = marked {
                    picture.mark(canvas, place, state, &call);
                }
            }
            y = lane.bottom() + 1;
        }
        if noted > 0 {
            let cut = needed.iter().zip(&lines).any(|(needed, lines)| needed > lines);
            let threads = (lanes.first().map_or(0, |lane| lane.0 + 1), lanes.last().map_or(0, |lane| lane.0 + 1));
            let note = note(app, state, scale, &lanes, (cut, threads));
            canvas.put(area.x, area.bottom() - 1, area.width, &note, canvas.theme.dim());
        }
    }
}

/// What stands beside a lane: the thread with its rank, and which of its lines are shown if not all are.
fn draw_name(
    canvas: &mut Canvas<'_>,
    area: Rect,
    (thread, rank): (&Thread, Option<u32>),
    is_chosen: bool,
    (skipped, needed): (usize, usize),
) {
    let Location { tid, name, .. } = &thread.location;
    let name = rank.map_or_else(|| format!("{tid} {name}"), |rank| format!("rank {rank} {tid} {name}"));
    let style = if is_chosen { canvas.theme.chosen() } else { Style::new() };
    canvas.put(area.x, area.y, area.width, &name, style);
    let last = skipped + usize::from(area.height);
    if area.height > 1 && (skipped > 0 || last < needed) {
        let lines = format!("{}-{last}/{needed}", skipped + 1);
        let lines = if area.width + 1 >= NAMES { format!("depth {lines}") } else { lines };
        canvas.put(area.x, area.y + 1, area.width, &lines, canvas.theme.dim());
    }
}

/// What the picture leaves out, or the call that it is about.
fn note(
    app: &App,
    state: &State,
    scale: Scale,
    lanes: &[(usize, &Thread)],
    (is_cut, (first, last)): (bool, (usize, usize)),
) -> String {
    let mut notes = Vec::new();
    if let Some(call) = app.call {
        let name = state.function(call.region).map_or("[unknown]", |function| &function.alone);
        let name = state.values.call(call.region, (call.location, call.call)).unwrap_or(name);
        let at = units::round(call.start.0.saturating_sub(app.origin(state)) / 1_000 * 1_000);
        notes.push(format!(
            "marked: {} for {}, from {at}",
            fit_name(name, MARKED_NAME, app.theme.glyphs),
            time(call.duration)
        ));
    }
    match (state.is_folded, state.awaits_calls) {
        (true, true) => notes.push("single calls are still being read".to_owned()),
        (true, false) => {
            notes.push(
                "calls are aggregated: shown are those that are running or were recorded individually".to_owned(),
            );
        }
        (false, _) => {}
    }
    let all = app.threads.rows().len();
    if lanes.len() < all {
        notes.push(format!("threads {first}-{last} of {all}"));
    }
    if is_cut {
        notes.push("J: deeper calls of the selected thread".to_owned());
    }
    let forgotten = lanes.iter().filter_map(|(_, thread)| thread.lanes.forgotten(scale.from));
    // No limit is the highest one.
    let worst = forgotten.max_by_key(|forgotten| (forgotten.shorter_than.unwrap_or(u64::MAX), forgotten.until));
    if let Some(Forgotten { shorter_than, until }) = worst {
        let which = shorter_than.map_or_else(String::new, |limit| format!(" shorter than {}", units::round(limit)));
        let since = axis::name(app, state, until, scale.to);
        notes.push(format!("calls{which}: only since {since}"));
    }
    notes.join("; ")
}

/// Lines of each lane, if they need so many and all together have `height` with a free line between them: what some
/// do not need the others have, and the chosen one first.
fn heights(needed: &[usize], chosen: Option<usize>, height: usize) -> Vec<usize> {
    let mut room = height.saturating_sub(needed.len().saturating_sub(1));
    let mut lines: Vec<usize> = vec![0; needed.len()];
    let mut give = |lane: usize, most: usize| {
        let more = (needed[lane] - lines[lane]).min(most).min(room);
        lines[lane] += more;
        room -= more;
        more > 0
    };
    (0..needed.len()).for_each(|lane| _ = give(lane, LEAST_LINES));
    if let Some(lane) = chosen {
        give(lane, height / 2);
    }
    while (0..needed.len()).filter(|&lane| give(lane, 1)).count() > 0 {}
    lines
}

/// All calls of a thread in a span of time, those that run too.
fn bars(thread: &Thread, state: &State, scale: Scale) -> impl Iterator<Item = Bar> {
    let now = state.now;
    let running = thread.running().map(move |call| Bar::new(call, now.since(call.start)));
    let ended = thread.lanes.within(scale.from, scale.to).copied();
    running.filter(move |bar| bar.start <= scale.to && bar.end() >= scale.from).chain(ended)
}

fn depth(thread: &Thread, state: &State, scale: Scale) -> usize {
    bars(thread, state, scale).map(|bar| bar.depth as usize + 1).max().unwrap_or(1)
}

/// How calls come to cells.
struct TimelinePicture<'a> {
    scale: Scale,
    colours: &'a Colours,
}

impl TimelinePicture<'_> {
    /// Draws the calls of one depth.
    fn draw_line(&self, canvas: &mut Canvas<'_>, area: Rect, (thread, state): (&Thread, &State), depth: u32) {
        let scale = self.scale;
        let mut parts = vec![CellPart::default(); usize::from(area.width)];
        let mut wide: Vec<(u16, u16, RegionId)> = Vec::new();
        let Some(last) = parts.len().checked_sub(1) else { return };
        for bar in bars(thread, state, scale).filter(|bar| bar.depth == depth) {
            let (begin, end) = (scale.cell(bar.start), scale.cell(bar.end()));
            let (first, last) = ((begin as usize).min(last), (end as usize).min(last));
            for (cell, part) in parts.iter_mut().enumerate().take(last + 1).skip(first) {
                let covered = end.min(cell as f64 + 1.0) - begin.max(cell as f64);
                part.add(bar.region, covered.max(0.0));
            }
            let full = (begin.round() as u16, (end.round() as u16).min(area.width));
            if full.1 >= full.0 + 2 {
                wide.push((full.0, full.1, bar.region));
            }
        }
        for (cell, part) in (0..).zip(&parts) {
            if let Some((region, _)) = part.most {
                let rising = canvas.theme.glyphs.rising;
                let eighth = (part.covered * 8.0).ceil().clamp(1.0, 8.0) as usize - 1;
                canvas.put(area.x + cell, area.y, 1, rising[eighth], self.colours.part(state, region));
            }
        }
        for (begin, end, region) in wide {
            self.draw_bar(canvas, Rect { x: area.x + begin, width: end - begin, ..area }, state, region);
        }
    }

    /// A call over several cells, with as much of its name as fits.
    fn draw_bar(&self, canvas: &mut Canvas<'_>, area: Rect, state: &State, region: RegionId) {
        let theme = canvas.theme;
        let cells = usize::from(area.width);
        let name = state.function(region).map_or("[unknown]", |function| &function.alone);
        let name = if cells < NAMED { "" } else { name };
        let label = fit_name(name, cells.saturating_sub(2), theme.glyphs);
        let free = cells.saturating_sub(2).saturating_sub(width(&label));
        match self.colours.ground(state, region) {
            Some(style) => {
                let text = format!("{}{label}{:free$} ", theme.glyphs.growing[0], "");
                canvas.buffer.set_stringn(area.x, area.y, text, cells, style);
            }
            None => {
                let text = format!("[{label}{}]", theme.glyphs.line.repeat(free));
                canvas.buffer.set_stringn(area.x, area.y, text, cells, Style::new());
            }
        }
    }

    /// Marks a call, which may not be kept any more.
    fn mark(&self, canvas: &mut Canvas<'_>, area: Rect, state: &State, call: &Slow) {
        let until = call.start.0.saturating_add(call.duration);
        let (begin, end) = (self.scale.cell(call.start.0), self.scale.cell(until));
        let begin = (begin.round() as u16).min(area.width.saturating_sub(1));
        let end = (end.round() as u16).clamp(begin + 1, area.width.max(begin + 1));
        let place = Rect { x: area.x + begin, width: end - begin, ..area };
        if call.start.0 > self.scale.to || until < self.scale.from || area.width == 0 {
            return;
        }
        if place.width > 1 {
            self.draw_bar(canvas, place, state, call.region);
        }
        canvas.buffer.set_style(place, canvas.theme.chosen());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_the_height() {
        assert_eq!(heights(&[40], Some(0), 30), [30]);
        assert_eq!(heights(&[3, 40], Some(0), 30), [3, 26]);
        assert_eq!(heights(&[40, 40], None, 31), [15, 15]);
        assert_eq!(heights(&[40, 40], Some(1), 31), [8, 22]);
        assert_eq!(heights(&[1, 1, 1], None, 30), [1, 1, 1]);
        assert_eq!(heights(&[5, 5], None, 3), [2, 0], "there is no room");
        assert!(heights(&[], None, 3).is_empty());
    }
}
