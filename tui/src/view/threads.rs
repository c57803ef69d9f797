//! Threads, and what each is in right now.

use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::{Location, LocationId, RegionId};

use crate::app::App;
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::list::Rows;
use crate::panel::{Panel, PanelSubject};
use crate::state::State;
use crate::state::thread::Thread;
use crate::text::{count, counted, short_ns};
use crate::theme::Theme;

const COLUMNS: [TableColumn; 7] = [
    TableColumn::number("tid", 7, 0),
    TableColumn::number("pid", 7, 110),
    TableColumn::words("thread", 15, 60),
    TableColumn::number("calls", 10, 46),
    TableColumn::number("in calls %", 13, 40),
    TableColumn::number("for", 7, 0),
    TableColumn::rest("in right now"),
];

/// What is said where there is no thread.
pub const NONE: &str = "no thread has called a traced function yet";

/// The view. Its list is shared with the timeline.
#[derive(Debug)]
pub struct ThreadView;

impl Panel for ThreadView {
    fn title(&self) -> &'static str {
        "threads"
    }

    fn arrange(&mut self, app: &mut App, state: &State) {
        arrange(app, state);
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        draw(canvas, area, app, state);
    }

    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn Rows {
        &mut app.threads
    }

    fn chosen_function(&self, app: &App, state: &State) -> Option<RegionId> {
        chosen_function(app, state)
    }

    fn opens(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Thread)
    }

    fn shows(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Process)
    }
}

/// The innermost function that the thread chosen is in.
pub fn chosen_function(app: &App, state: &State) -> Option<RegionId> {
    state.thread(app.threads.key()?)?.at_snapshot().last().map(|call| call.region)
}

/// Lists the threads by rank, process and thread id.
pub fn arrange(app: &mut App, state: &State) {
    let wanted = app.filter.to_lowercase();
    let passes = |thread: &&Thread| {
        let running = thread.at_snapshot().iter().filter_map(|call| state.function(call.region)).map(|of| &*of.name);
        let names: Vec<&str> = running.chain([thread.location.name.as_str()]).collect();
        App::passes(&wanted, &names)
            || [thread.location.tid, thread.location.pid].iter().any(|id| id.to_string() == wanted)
    };
    let mut rows: Vec<&Thread> = state.threads().filter(passes).collect();
    rows.sort_by_key(|thread| {
        let Location { id, pid, tid, end, .. } = &thread.location;
        (end.is_some(), app.ranks.get(id), *pid, *tid)
    });
    app.threads.set(rows.into_iter().map(|thread| thread.location.id).collect());
}

fn draw(canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
    let theme = app.theme;
    let row = |id: LocationId| {
        let Some(thread) = state.thread(id) else { return Vec::new() };
        let (traced, lived) = busy(thread, state);
        let share = traced as f64 / lived.max(1) as f64;
        let (since, within, style) = match (thread.at_snapshot().last(), thread.location.end) {
            (_, Some(_)) => (String::new(), "ended".to_owned(), theme.dim()),
            (None, None) => (String::new(), "no traced call".to_owned(), theme.dim()),
            (Some(call), None) => (
                call.duration.map_or_else(String::new, short_ns),
                chain(thread, state, theme.glyphs.within),
                Style::new(),
            ),
        };
        vec![
            thread.location.tid.to_string().into(),
            thread.location.pid.to_string().into(),
            thread.location.name.as_str().into(),
            count(thread.calls).into(),
            Cell::share(Some(share), 0.0).styled(theme.heat(share)),
            Cell::from(since).styled(theme.title()),
            Cell::from(within).styled(style),
        ]
    };
    let below = app
        .threads
        .key()
        .and_then(|id| state.thread(id))
        .map_or_else(String::new, |thread| in_full(thread, state, theme));
    let area = canvas.put_below(area, &below);
    canvas.table(TableFrame::plain(area, &COLUMNS), &mut app.threads, row);
    if app.threads.rows().is_empty() {
        canvas.put_empty(area, app.why_empty(NONE));
    }
}

/// A thread, and all calls that it is in.
fn in_full(thread: &Thread, state: &State, theme: Theme) -> String {
    let Location { pid, tid, name, .. } = &thread.location;
    let within = chain(thread, state, theme.glyphs.within);
    let doing = match (&thread.location.end, within.is_empty()) {
        (Some(_), _) => "ended".to_owned(),
        (None, true) => "in no traced call".to_owned(),
        (None, false) => format!("in {within}"),
    };
    format!("thread {tid} {name} of process {pid}, {}: {doing}", counted(thread.calls, "call"))
}

/// Nanoseconds in traced calls, and nanoseconds that were looked at.
fn busy(thread: &Thread, state: &State) -> (u64, u64) {
    let until = thread.location.end.unwrap_or(state.now).min(state.now);
    let lived = until.since(thread.location.start.max(state.begin));
    let running = thread.running().filter(|call| call.parent == 0).map(|call| state.now.since(call.start));
    ((thread.traced + running.sum::<u64>()).min(lived), lived)
}

/// The innermost call first: it is what the thread does.
fn chain(thread: &Thread, state: &State, within: &str) -> String {
    let names = thread
        .at_snapshot()
        .iter()
        .rev()
        .map(|call| state.function(call.region).map_or("[unknown]", |function| &function.alone));
    names.collect::<Vec<_>>().join(&format!(" {within} "))
}
