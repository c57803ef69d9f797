//! Calls summed up by something larger than a function: library, process, thread or rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ratatui::layout::Rect;
use rtrace_model::{LibraryId, LocationId, Totals, words};

use crate::app::App;
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::colours::Colours;
use crate::list::List;
use crate::state::State;
use crate::state::paths::Paths;
use crate::state::thread::Thread;
use crate::text::count;
use crate::view::{TIME, no_calls, threads};

words! {
    /// What the rows of the first view stand for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    GroupBy {
        /// See [`crate::view::functions`].
        #[default]
        Function = "function",
        /// A library with its functions.
        Library = "library",
        /// A process with its threads.
        Process = "process",
        /// A thread.
        Thread = "thread",
        /// A rank of a parallel job with its threads.
        Rank = "rank",
    }
}

impl GroupBy {
    /// What comes after it; ranks where there are any.
    pub fn next(self, app: &App) -> GroupBy {
        let known: Vec<GroupBy> =
            GroupBy::ALL.into_iter().filter(|&by| by != GroupBy::Rank || !app.ranks.is_empty()).collect();
        let place = known.iter().position(|&by| by == self).map_or(0, |place| place + 1);
        known[place % known.len()]
    }

    /// What the rows are made of.
    fn parts(self) -> &'static str {
        if self == GroupBy::Library { "functions" } else { "threads" }
    }
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKey {
    /// A library.
    Library(LibraryId),
    /// A process.
    Process(u32),
    /// A thread.
    Thread(LocationId),
    /// A rank.
    Rank(u32),
    /// Threads of which no rank is known, or that have ended and are kept as sums only.
    Others,
}

/// The rows with their sums.
#[derive(Debug, Default)]
pub struct GroupView {
    /// The rows, those that take most time first.
    pub rows: List<GroupKey>,
    sums: BTreeMap<GroupKey, GroupSums>,
}

#[derive(Debug, Default)]
struct GroupSums {
    calls: u64,
    exclusive: u64,
    /// The same without tracing.
    own: u64,
    parts: u64,
    name: String,
}

impl GroupView {
    /// Sums up anew; those pass the filter whose names do.
    pub fn arrange(&mut self, by: GroupBy, app: &App, state: &State) {
        self.sums = if by == GroupBy::Library { of_libraries(state) } else { of_threads(by, app, state) };
        let wanted = app.filter.to_lowercase();
        let mut rows: Vec<(GroupKey, &GroupSums)> = self.sums.iter().map(|(&key, sums)| (key, sums)).collect();
        rows.retain(|(_, sums)| sums.calls > 0 && App::passes(&wanted, &[&sums.name]));
        rows.sort_by_key(|(key, sums)| (Reverse(sums.own), Reverse(sums.calls), *key));
        self.rows.set(rows.into_iter().map(|(key, _)| key).collect());
    }

    /// Draws the table.
    pub fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, by: GroupBy, app: &App, state: &State) {
        let columns = [
            TableColumn::number("calls", 10, 44),
            TableColumn::time("exclusive", TIME, 0),
            TableColumn::number("share %", 13, 50),
            TableColumn::number(by.parts(), 9, 84),
            TableColumn::rest(by.name()),
        ];
        let colours = Colours::of(state, app.theme);
        let GroupView { rows, sums } = self;
        let all: u64 = sums.values().fold(0, |all, sums| all.saturating_add(sums.own));
        let row = |key: GroupKey| {
            let Some(sums) = sums.get(&key) else { return Vec::new() };
            let style = match key {
                GroupKey::Library(library) => colours.library(library),
                _ => app.theme.accent(),
            };
            vec![
                count(sums.calls).into(),
                Cell::time(Some(sums.exclusive)),
                Cell::share(Some(sums.own as f64 / all.max(1) as f64), 0.0).styled(style),
                count(sums.parts).into(),
                Cell::name(sums.name.as_str()),
            ]
        };
        canvas.table(TableFrame::plain(area, &columns), rows, row);
        if rows.rows().is_empty() {
            canvas.put_empty(area, app.why_empty(no_calls(app, state)));
        }
    }

    /// Prepares what the row chosen leads to; whether that is the functions of a library.
    pub fn descend(&self, app: &mut App, state: &State) -> bool {
        match self.rows.key() {
            Some(GroupKey::Library(library)) => {
                app.filter = state.library(library).to_owned();
                return true;
            }
            Some(GroupKey::Process(pid)) => app.filter = pid.to_string(),
            Some(GroupKey::Rank(rank)) => {
                let of_rank = state.threads().find(|thread| app.ranks.get(&thread.location.id) == Some(&rank));
                app.filter = of_rank.map_or_else(String::new, |thread| thread.location.pid.to_string());
            }
            Some(GroupKey::Thread(thread)) => {
                app.filter.clear();
                app.threads.want(thread);
                threads::arrange(app, state);
            }
            Some(GroupKey::Others) | None => {}
        }
        false
    }
}

fn of_libraries(state: &State) -> BTreeMap<GroupKey, GroupSums> {
    let mut groups: BTreeMap<GroupKey, GroupSums> = BTreeMap::new();
    for function in state.functions().filter(|function| function.calls > 0) {
        let group = groups.entry(GroupKey::Library(function.library)).or_default();
        group.calls += function.calls;
        group.exclusive = group.exclusive.saturating_add(function.exclusive);
        group.own = group.own.saturating_add(function.work());
        group.parts += 1;
    }
    for (key, group) in &mut groups {
        if let GroupKey::Library(library) = key {
            state.library(*library).clone_into(&mut group.name);
        }
    }
    groups
}

fn of_threads(by: GroupBy, app: &App, state: &State) -> BTreeMap<GroupKey, GroupSums> {
    let mut groups: BTreeMap<GroupKey, GroupSums> = BTreeMap::new();
    for thread in state.threads() {
        let key = match by {
            GroupBy::Process => GroupKey::Process(thread.location.pid),
            GroupBy::Rank => app.ranks.get(&thread.location.id).map_or(GroupKey::Others, |&rank| GroupKey::Rank(rank)),
            _ => GroupKey::Thread(thread.location.id),
        };
        let group = groups.entry(key).or_default();
        group.calls += thread.calls;
        group.add_time(state, &thread.paths);
        group.parts += 1;
        if group.name.is_empty() {
            group.name = name(key, thread, state);
        }
    }
    let kept = groups.values().fold((0_u64, 0_u64), |(calls, parts), group| (calls + group.calls, parts + group.parts));
    let gone = state.threads_seen().saturating_sub(kept.1);
    if gone > 0 {
        let others = groups.entry(GroupKey::Others).or_default();
        others.calls += state.calls.saturating_sub(kept.0);
        others.add_time(state, state.merged_paths());
        others.parts += gone;
        others.name = "[threads that have ended]".to_owned();
    }
    groups
}

impl GroupSums {
    /// Adds the time of call paths, of calls whose callers are known.
    fn add_time(&mut self, state: &State, paths: &Paths) {
        let figures: Vec<Totals> = paths.nodes().iter().map(|node| node.figures).collect();
        self.exclusive = figures.iter().fold(self.exclusive, |sum, of| sum.saturating_add(of.exclusive));
        self.own = state.own_times(paths, &figures).into_iter().fold(self.own, u64::saturating_add);
    }
}

fn name(key: GroupKey, thread: &Thread, state: &State) -> String {
    let location = &thread.location;
    match key {
        GroupKey::Process(pid) => {
            format!("{pid} {}", Some(state.program(pid)).filter(|it| !it.is_empty()).unwrap_or(&location.name))
        }
        GroupKey::Rank(rank) => format!("rank {rank}, process {} {}", location.pid, state.program(location.pid)),
        GroupKey::Others => "[no rank known]".to_owned(),
        GroupKey::Thread(_) | GroupKey::Library(_) => {
            format!("{} {} of process {}", location.tid, location.name, location.pid)
        }
    }
}
