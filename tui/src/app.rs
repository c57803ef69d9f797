//! What the user has done, as far as it concerns more than one view: which is shown, filter, order, choice, range.
//! Knows no view.

use std::collections::BTreeMap;

use rtrace_model::{LocationId, RegionId};

use crate::list::List;
use crate::live::{Range, Stored};
use crate::state::State;
use crate::state::function::Slow;
use crate::theme::Theme;

/// What is to be done outside the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Nothing but to draw again.
    Continue,
    /// The user wants to leave.
    End(Fate),
    /// Stand still, or go on.
    Pause,
    /// Look at another part of a stored trace.
    Look(Range),
}

/// What becomes of a recording when the user leaves its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends, and what was recorded stays.
    Keep,
    /// It goes on without a view.
    GoOn,
    /// It ends, and what was recorded is deleted.
    Delete,
}

impl Fate {
    /// All that there are.
    pub const ALL: [Fate; 3] = [Fate::Keep, Fate::GoOn, Fate::Delete];
}

/// What all views share.
#[derive(Debug)]
pub struct App {
    /// What is traced, for people; not escaped.
    pub target: String,
    /// What things look like.
    pub theme: Theme,
    /// The view shown: its place among the tabs.
    pub view: usize,
    /// Functions, and the index of the column they are sorted by.
    pub functions: List<RegionId>,
    /// See [`crate::view::functions::COLUMNS`]; counters come after these.
    pub order: usize,
    /// Whether the order is turned around.
    pub reversed: bool,
    /// The thread whose tree is shown; absent for all.
    pub tree_of: Option<LocationId>,
    /// Threads.
    pub threads: List<LocationId>,
    /// The function of the detail view.
    pub focus: Option<RegionId>,
    /// The timeline's part of the time.
    pub window: TimeWindow,
    /// The call that is looked at.
    pub call: Option<Slow>,
    /// The views from which others were opened, the first one first.
    pub trail: Vec<usize>,
    /// Text that names must contain.
    pub filter: String,
    /// Whether the user is typing it.
    pub typing: bool,
    /// Whether the help is shown.
    pub help: bool,
    /// What may become of the recording; one fate needs no question.
    pub fates: Vec<Fate>,
    /// Whether it is being asked what becomes of the recording.
    pub asks: bool,
    /// The ranks of threads of a parallel job.
    pub ranks: BTreeMap<LocationId, u32>,
    /// Whether the view stands still.
    pub paused: bool,
    /// What was done last, for people.
    pub message: Option<String>,
    /// Size of the recording in bytes.
    pub size: Option<u64>,
    /// What is said of a stored recording.
    pub stored: Option<Stored>,
    /// Columns of the functions on the screen.
    pub columns: Vec<usize>,
}

/// A part of the time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Its length.
    pub length: u64,
    /// Its end; absent where it is the present.
    pub end: Option<u64>,
}

impl TimeWindow {
    const SHORTEST: u64 = 1_000;
    const LONGEST: u64 = 3_600_000_000_000;

    /// Its end, if now is `now`.
    pub fn end(&self, now: u64) -> u64 {
        self.end.unwrap_or(now)
    }

    /// Moves by eighths of its length, to the right where positive.
    pub fn pan(&mut self, eighths: i64, now: u64) {
        let end = self.end(now).saturating_add_signed(eighths * (self.length / 8).cast_signed());
        self.end = (end < now).then_some(end);
    }

    /// Shows a span of time with some before and after it.
    pub fn show(&mut self, from: u64, length: u64, now: u64) {
        let margin = (length / 8).max(TimeWindow::SHORTEST / 4);
        self.length = length.saturating_add(2 * margin).clamp(TimeWindow::SHORTEST, TimeWindow::LONGEST);
        let end = from.saturating_add(length).saturating_add(margin);
        self.end = (end < now).then_some(end);
    }

    /// Keeps the middle in its place, or the present at the end.
    pub fn zoom(&mut self, length: u64) {
        let length = length.clamp(TimeWindow::SHORTEST, TimeWindow::LONGEST);
        if let Some(end) = &mut self.end {
            *end = (*end - (self.length / 2).min(*end)) + length / 2;
        }
        self.length = length;
    }
}

impl App {
    /// That of `target` before the user did anything; `order`: the column by which functions are sorted at first.
    pub fn new(target: &str, theme: Theme, order: usize) -> App {
        App {
            target: target.to_owned(),
            theme,
            view: 0,
            functions: List::default(),
            order,
            reversed: false,
            tree_of: None,
            threads: List::default(),
            focus: None,
            window: TimeWindow { length: 1_000_000_000, end: None },
            call: None,
            trail: Vec::new(),
            filter: String::new(),
            typing: false,
            help: false,
            fates: vec![Fate::Keep],
            asks: false,
            ranks: BTreeMap::new(),
            paused: false,
            message: None,
            size: None,
            stored: None,
            columns: Vec::new(),
        }
    }

    /// Takes in what is said of a stored recording: the timeline shows the part that is looked at.
    pub fn set_stored(&mut self, stored: Option<Stored>) {
        let part = |stored: &Option<Stored>| stored.as_ref().map(|stored| stored.wanted);
        if part(&stored) != part(&self.stored)
            && let Some(range) = part(&stored)
        {
            self.window = TimeWindow { length: range.length().max(1), end: None };
        }
        self.stored = stored;
    }

    /// Whether a name passes the filter; `wanted` is the filter in lower case.
    pub fn passes(wanted: &str, names: &[&str]) -> bool {
        wanted.is_empty() || names.iter().any(|name| name.to_lowercase().contains(wanted))
    }

    /// Why a list is empty: for that reason, unless there is a filter.
    pub fn why_empty<'a>(&self, reason: &'a str) -> &'a str {
        if self.filter.is_empty() { reason } else { "nothing passes the filter; Esc clears it" }
    }

    /// The time from which times are told: the begin of the recording.
    pub fn origin(&self, state: &State) -> u64 {
        self.stored.as_ref().map_or(state.begin, |stored| stored.whole.from).0
    }
}
