//! Calls over time: a lane for each thread, with a line for each depth of nesting.
//!
//! A cell stands for a span of time in which there may be thousands of calls. It shows the function
//! that takes most of it; what is less than half covered is drawn as high as it is covered. A call
//! over several cells bears its function's name.

use crossterm::event::KeyCode::{self, Char, Left, Right};
use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::{LocationId, RegionId, format_ns};

use crate::app::{App, Flow};
use crate::canvas::{Align, Canvas};
use crate::key::{Binding, Keys, also, find, key};
use crate::list::Rows;
use crate::panel::{self, Act, Panel};
use crate::state::lanes::Bar;
use crate::state::thread::Thread;
use crate::state::{Span, State};
use crate::text::{fit, short_ns, width};
use crate::view::threads;

/// Cells for the names of threads, where there are as many as four times that, and elsewhere.
const NAMES: u16 = 18;
const FEW_NAMES: u16 = 8;

/// The shortest bar that bears a name, in cells.
const NAMED: usize = 7;

/// Cells between two marks of time.
const MARKS: u16 = 16;

/// Lines of a lane, at the most.
const DEEPEST: usize = 16;

/// The view. Its list is that of the threads.
#[derive(Debug)]
pub struct Timeline;

const KEYS: &[Binding<Act<Timeline>>] = &[
    key(&[Left, Char('h')], "Left/Right", "earlier, later; also h and l", "pan", |_, app, state| {
        app.window.pan(-1, state.now.0);
        Flow::Continue
    }),
    also(&[Right, Char('l')], |_, app, state| {
        app.window.pan(1, state.now.0);
        Flow::Continue
    }),
    key(&[Char('+'), Char('=')], "+/-", "zoom in, zoom out", "zoom", |_, app, _| {
        app.window.zoom(app.window.length / 2);
        Flow::Continue
    }),
    also(&[Char('-')], |_, app, _| {
        app.window.zoom(app.window.length.saturating_mul(2));
        Flow::Continue
    }),
    key(&[Char('f')], "f", "follow the present", "follow", |_, app, _| {
        app.window.end = None;
        Flow::Continue
    }),
];

impl Panel for Timeline {
    fn title(&self) -> &'static str {
        "timeline"
    }

    fn keys(&self) -> Vec<&'static Keys> {
        panel::keys(KEYS)
    }

    fn press(&mut self, code: KeyCode, app: &mut App, state: &State) -> Option<Flow> {
        find(KEYS, code).map(|act| act(self, app, state))
    }

    fn arrange(&mut self, app: &mut App, state: &State) {
        threads::arrange(app, state);
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        draw(canvas, area, app, state);
    }

    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn Rows {
        &mut app.threads
    }

    fn chosen_function(&self, app: &App, state: &State) -> Option<RegionId> {
        threads::chosen_function(app, state)
    }
}

/// Of a cell that is not filled: what it shows, and how much of it is covered.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    covered: f64,
    /// The function that covers most, and how much that is.
    most: Option<(RegionId, f64)>,
}

impl Part {
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

/// Draws the axis and as many lanes as fit from the chosen thread on.
fn draw(canvas: &mut Canvas<'_>, mut area: Rect, app: &mut App, state: &State) {
    let to = app.window.end(state.now.0);
    let from = to.saturating_sub(app.window.length);
    let names = if area.width >= 4 * NAMES { NAMES } else { FEW_NAMES.min(area.width) };
    let scale = Scale { from, to, cells: area.width.saturating_sub(names) };
    draw_axis(
        canvas,
        Rect { x: area.x + names, width: scale.cells, height: 1.min(area.height), ..area },
        app,
        state,
        scale,
    );
    let label = format!("last {}", short_ns(app.window.length));
    let label = if follows(app, state) { label } else { short_ns(app.window.length) };
    canvas.put(area.x, area.y, names.saturating_sub(1), &label, canvas.theme.title());

    if state.is_folded && area.height > 2 {
        area.height -= 1;
        let why = match state.awaits_calls {
            true => "single calls are still being read",
            false => "calls are aggregated: shown are those that are running or were recorded individually",
        };
        canvas.put(area.x, area.bottom(), area.width, why, canvas.theme.dim());
    }
    if app.threads.rows().is_empty() {
        canvas.put_empty(area, app.why_empty(threads::NONE));
    }
    let mut y = area.y + 1;
    let height = usize::from(area.height.saturating_sub(1));
    let shown: Vec<(usize, LocationId)> = app.threads.on_screen(height.max(1));
    let lanes = shown.len().clamp(1, height.max(1));
    // Lanes share the height; with many of them, the first lines of each are shown.
    let share = (height / lanes).clamp(2, DEEPEST);
    let chosen = app.threads.place();
    for (place, id) in shown {
        let Some(thread) = state.thread(id) else { continue };
        let left = area.bottom().saturating_sub(y);
        let lines = depth(thread, state, scale).clamp(1, share).min(usize::from(left));
        if lines == 0 {
            break;
        }
        let lines = u16::try_from(lines).unwrap_or(1);
        let name = format!("{} {}", thread.location.tid, thread.location.name);
        let style = if place == chosen { canvas.theme.chosen() } else { Style::new() };
        canvas.put(area.x, y, names.saturating_sub(1), &name, style);
        for line in 0..lines {
            let place = Rect { x: area.x + names, y: y + line, width: scale.cells, height: 1 };
            draw_line(canvas, place, thread, state, scale, u32::from(line));
        }
        y += lines + u16::from(usize::from(lines) < share && lines > 1);
    }
}

/// Whether the present is at the right end.
fn follows(app: &App, state: &State) -> bool {
    app.window.end.is_none() && state.span == Span::Live
}

fn draw_axis(canvas: &mut Canvas<'_>, area: Rect, app: &App, state: &State, scale: Scale) {
    if area.is_empty() {
        return;
    }
    let dim = canvas.theme.dim();
    for mark in 0..(area.width / MARKS).max(1) {
        let x = mark * MARKS;
        let time = scale.from + (scale.to - scale.from) / u64::from(area.width) * u64::from(x);
        let text = if follows(app, state) {
            format!("|-{}", short_ns(scale.to - time))
        } else {
            format!("|{}", format_ns(time.saturating_sub(app.origin(state))))
        };
        canvas.put(area.x + x, area.y, MARKS.min(area.width - x), &text, dim);
    }
    let right = if follows(app, state) && !app.paused { "now" } else { "" };
    canvas.put_aligned(area, right, dim, Align::Right);
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

/// Draws the calls of one depth.
fn draw_line(canvas: &mut Canvas<'_>, area: Rect, thread: &Thread, state: &State, scale: Scale, depth: u32) {
    let mut parts = vec![Part::default(); usize::from(area.width)];
    let mut wide: Vec<(u16, u16, RegionId)> = Vec::new();
    for bar in bars(thread, state, scale).filter(|bar| bar.depth == depth) {
        let (begin, end) = (scale.cell(bar.start), scale.cell(bar.end()));
        let (first, last) = (begin as usize, (end as usize).min(parts.len().saturating_sub(1)));
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
            let theme = canvas.theme;
            let rising = theme.glyphs.rising;
            let eighth = (part.covered * 8.0).ceil().clamp(1.0, 8.0) as usize - 1;
            canvas.put(area.x + cell, area.y, 1, rising[eighth], theme.trace(region));
        }
    }
    for (begin, end, region) in wide {
        draw_bar(canvas, Rect { x: area.x + begin, width: end - begin, ..area }, state, region);
    }
}

/// A call over several cells, with as much of its name as fits.
fn draw_bar(canvas: &mut Canvas<'_>, area: Rect, state: &State, region: RegionId) {
    let theme = canvas.theme;
    let cells = usize::from(area.width);
    let name = state.function(region).map_or("[unknown]", |function| &function.name);
    let name = if cells < NAMED { "" } else { name };
    let label = fit(name, cells.saturating_sub(2), theme.glyphs);
    let free = cells.saturating_sub(2).saturating_sub(width(&label));
    match theme.bar(region) {
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
