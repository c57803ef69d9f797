//! What the user has done to the view: which, filter, order, choice, range. Knows keys, no screen.

use std::collections::{BTreeSet, HashMap};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use rtrace_model::{LocationId, RegionId};

use crate::key::{self, Action, View};
use crate::list::List;
use crate::live::{Range, Stored};
use crate::state::State;
use crate::state::paths::PathIndex;
use crate::theme::Theme;
use crate::view::{events, functions, plan, threads, tree};

const LONGEST_FILTER: usize = 64;
const WHEEL: isize = 3;

/// The shortest part of a stored trace, in nanoseconds.
const SHORTEST_RANGE: u64 = 1_000;

/// What is to be done outside the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nothing but to draw again.
    Continue,
    /// The user wants to leave.
    Quit,
    /// Stand still, or go on.
    Pause,
    /// Write this moment to files.
    Export,
    /// The user wants to see other functions than before.
    Mute,
    /// Look at another part of a stored trace.
    Look(Range),
}

/// The state of the view.
#[derive(Debug)]
pub struct App {
    /// What is traced, for people; not escaped.
    pub target: String,
    /// What things look like.
    pub theme: Theme,
    /// The view shown.
    pub view: View,
    /// Functions, and the index of the column they are sorted by.
    pub functions: List<RegionId>,
    /// See [`crate::view::functions::COLUMNS`]; counters come after these.
    pub order: usize,
    /// Whether the order is turned around.
    pub reversed: bool,
    /// Call paths that are shown.
    pub tree: List<PathIndex>,
    /// The sums of all paths of the tree, as last arranged.
    pub sums: tree::Sums,
    /// The thread whose tree is shown; absent for all.
    pub tree_of: Option<LocationId>,
    /// Nodes that the user has folded or unfolded.
    pub unfolded: HashMap<PathIndex, bool>,
    /// Threads.
    pub threads: List<LocationId>,
    /// What is probed and what is not.
    pub plan: List<plan::Row>,
    /// Events, by their place in the log.
    pub events: List<usize>,
    /// The function of the detail view.
    pub focus: Option<RegionId>,
    /// The timeline's part of the time.
    pub window: Window,
    /// Text that names must contain.
    pub filter: String,
    /// Whether the user is typing it.
    pub typing: bool,
    /// Functions that are hidden.
    pub muted: BTreeSet<RegionId>,
    /// Whether the help is shown.
    pub help: bool,
    /// Whether the view stands still.
    pub paused: bool,
    /// What was done last, for people.
    pub message: Option<String>,
    /// Size of the recording in bytes.
    pub size: Option<u64>,
    /// What is said of a stored recording.
    pub stored: Option<Stored>,
    /// What of the screen the mouse can click on.
    pub targets: Targets,
}

/// A part of the time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its length.
    pub length: u64,
    /// Its end; absent where it is the present.
    pub end: Option<u64>,
}

impl Window {
    const SHORTEST: u64 = 1_000;
    const LONGEST: u64 = 3_600_000_000_000;

    /// Its end, if now is `now`.
    pub fn end(&self, now: u64) -> u64 {
        self.end.unwrap_or(now)
    }

    fn pan(&mut self, eighths: i64, now: u64) {
        let end = self.end(now).saturating_add_signed(eighths * (self.length / 8).cast_signed());
        self.end = (end < now).then_some(end);
    }

    /// Keeps the middle in its place, or the present at the end.
    fn zoom(&mut self, length: u64) {
        let length = length.clamp(Window::SHORTEST, Window::LONGEST);
        if let Some(end) = &mut self.end {
            *end = (*end - (self.length / 2).min(*end)) + length / 2;
        }
        self.length = length;
    }
}

/// What of the screen the mouse can click on.
#[derive(Debug, Default)]
pub struct Targets {
    /// Tabs.
    pub tabs: Vec<(View, Rect)>,
    /// Titles of columns of the functions.
    pub titles: Vec<(usize, Rect)>,
    /// Rows of the list of the view.
    pub rows: Rect,
}

impl App {
    /// A view of `target`, before anything is known.
    pub fn new(target: &str, theme: Theme) -> App {
        App {
            target: target.to_owned(),
            theme,
            view: View::Functions,
            functions: List::default(),
            order: functions::FIRST_ORDER,
            reversed: false,
            tree: List::default(),
            sums: tree::Sums::default(),
            tree_of: None,
            unfolded: HashMap::new(),
            threads: List::default(),
            plan: List::default(),
            events: List::default(),
            focus: None,
            window: Window { length: 1_000_000_000, end: None },
            filter: String::new(),
            typing: false,
            muted: BTreeSet::new(),
            help: false,
            paused: false,
            message: None,
            size: None,
            stored: None,
            targets: Targets::default(),
        }
    }

    /// Takes in what is said of a stored recording: the timeline shows the part that is looked at.
    pub fn set_stored(&mut self, stored: Option<Stored>) {
        let part = |stored: &Option<Stored>| stored.as_ref().map(|stored| stored.wanted);
        if part(&stored) != part(&self.stored)
            && let Some(range) = part(&stored)
        {
            self.window = Window { length: range.length().max(1), end: None };
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

    /// Filters and sorts the rows of the view anew.
    pub fn arrange(&mut self, state: &State) {
        match self.view {
            View::Functions => functions::arrange(self, state),
            View::Tree => tree::arrange(self, state),
            View::Threads | View::Timeline => threads::arrange(self, state),
            View::Detail => {}
            View::Plan => plan::arrange(self, state),
            View::Events => events::arrange(self, state),
        }
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: KeyEvent, state: &State) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Continue;
        }
        self.message = None;
        let is_text = !key.modifiers.contains(KeyModifiers::CONTROL);
        if self.typing && is_text && self.type_filter(key.code, state) {
            return Flow::Continue;
        }
        match key::action(key, self.view, self.stored.is_some()) {
            Some(action) => self.act(action, state),
            None => Flow::Continue,
        }
    }

    /// Does what a click or a turn of the wheel asks for.
    pub fn point(&mut self, mouse: MouseEvent, state: &State) -> Flow {
        let at = Position { x: mouse.column, y: mouse.row };
        match mouse.kind {
            MouseEventKind::ScrollDown => self.act(Action::Step(WHEEL), state),
            MouseEventKind::ScrollUp => self.act(Action::Step(-WHEEL), state),
            MouseEventKind::Down(MouseButton::Left) => self.click(at, state),
            _ => Flow::Continue,
        }
    }

    fn click(&mut self, at: Position, state: &State) -> Flow {
        if let Some(&(view, _)) = self.targets.tabs.iter().find(|(_, tab)| tab.contains(at)) {
            return self.act(Action::Show(view), state);
        }
        if let Some(&(column, _)) = self.targets.titles.iter().find(|(_, title)| title.contains(at)) {
            self.reversed = column == self.order && !self.reversed;
            self.order = column;
            self.arrange(state);
        } else if self.targets.rows.contains(at) {
            let line = usize::from(at.y - self.targets.rows.y);
            let again = self.rows(|list| list.at_line(line).is_some_and(|place| place == list.place()));
            if again {
                return self.act(Action::Enter, state);
            }
            self.rows(|list| {
                if let Some(place) = list.at_line(line) {
                    list.choose(place);
                }
            });
        }
        Flow::Continue
    }

    fn act(&mut self, action: Action, state: &State) -> Flow {
        match action {
            Action::Quit => return Flow::Quit,
            Action::Help => self.help = !self.help,
            Action::Next => self.show(self.view.further(1), state),
            Action::Previous => self.show(self.view.further(View::ALL.len() - 1), state),
            Action::Show(view) => self.show(view, state),
            Action::Step(rows) => self.choose(|list| list.step(rows)),
            Action::Page(pages) => self.choose(|list| list.step(pages * list.page())),
            Action::First => self.choose(|list| list.choose(0)),
            Action::Last => self.choose(|list| list.choose(usize::MAX)),
            Action::Left if self.view == View::Timeline => self.window.pan(-1, state.now.0),
            Action::Right if self.view == View::Timeline => self.window.pan(1, state.now.0),
            Action::Left => tree::fold(self, state),
            Action::Right => tree::unfold(self, state),
            Action::Enter => self.enter(state),
            Action::Back => self.back(state),
            Action::Filter => self.typing = true,
            Action::Sort => {
                self.order = self.next_order(state);
                self.reversed = false;
                self.arrange(state);
            }
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.arrange(state);
            }
            Action::Pause => return Flow::Pause,
            Action::Mute => return self.mute(state),
            Action::Unmute => {
                self.muted.clear();
                self.arrange(state);
                return Flow::Mute;
            }
            Action::Export => return Flow::Export,
            Action::OneThread => tree::switch_thread(self, state),
            Action::ZoomIn => self.window.zoom(self.window.length / 2),
            Action::ZoomOut => self.window.zoom(self.window.length.saturating_mul(2)),
            Action::Follow => self.window.end = None,
            Action::Earlier | Action::Later | Action::Narrower | Action::Wider | Action::Whole => {
                return self.other_range(action, state);
            }
        }
        Flow::Continue
    }

    /// The order by the next of the columns on the screen, or of all where nothing is drawn yet.
    fn next_order(&self, state: &State) -> usize {
        let drawn: Vec<usize> = self.targets.titles.iter().map(|&(order, _)| order).collect();
        match (drawn.iter().position(|&order| order == self.order), drawn.first()) {
            (Some(place), _) => drawn[(place + 1) % drawn.len()],
            (None, Some(&first)) => first,
            (None, None) => (self.order + 1) % functions::orders(state),
        }
    }

    fn show(&mut self, view: View, state: &State) {
        if view == View::Detail {
            self.focus = self.chosen_function(state).or(self.focus).or(self.functions.key());
            if let Some(region) = self.focus {
                self.functions.choose_key(region);
            }
        }
        self.view = view;
        self.help = false;
        self.arrange(state);
    }

    /// The function that the row chosen is about.
    fn chosen_function(&self, state: &State) -> Option<RegionId> {
        match self.view {
            View::Functions => self.functions.key(),
            View::Tree => tree::chosen_function(self, state),
            View::Threads | View::Timeline => {
                state.thread(self.threads.key()?)?.at_snapshot().last().map(|call| call.region)
            }
            View::Plan => match self.plan.key()? {
                plan::Row::Probed(region) => Some(region),
                plan::Row::Refused(_) => None,
            },
            View::Detail | View::Events => None,
        }
    }

    fn enter(&mut self, state: &State) {
        match self.view {
            View::Threads => {
                self.tree_of = self.threads.key();
                self.unfolded.clear();
                self.show(View::Tree, state);
            }
            View::Functions | View::Tree | View::Plan => self.show(View::Detail, state),
            View::Timeline | View::Detail | View::Events => {}
        }
    }

    fn back(&mut self, state: &State) {
        if self.help {
            self.help = false;
        } else if !self.filter.is_empty() {
            self.set_filter(String::new(), state);
        } else if self.view == View::Tree && self.tree_of.is_some() {
            tree::switch_thread(self, state);
        } else {
            self.show(View::Functions, state);
        }
    }

    fn mute(&mut self, state: &State) -> Flow {
        let Some(region) = self.functions.key() else { return Flow::Continue };
        self.muted.insert(region);
        self.arrange(state);
        Flow::Mute
    }

    /// Lets the choice move; the detail view goes through the functions in their order.
    fn choose(&mut self, with: impl FnOnce(&mut dyn Rows)) {
        self.rows(with);
        if self.view == View::Detail {
            self.focus = self.functions.key();
        }
    }

    /// The list of the view.
    fn rows<T>(&mut self, with: impl FnOnce(&mut dyn Rows) -> T) -> T {
        match self.view {
            View::Functions | View::Detail => with(&mut self.functions),
            View::Tree => with(&mut self.tree),
            View::Threads | View::Timeline => with(&mut self.threads),
            View::Plan => with(&mut self.plan),
            View::Events => with(&mut self.events),
        }
    }

    fn other_range(&mut self, action: Action, state: &State) -> Flow {
        if state.is_folded {
            self.message = Some("calls are folded, so not known by time: this is the whole recording".to_owned());
            return Flow::Continue;
        }
        let Some(Stored { whole, wanted, .. }) = self.stored else { return Flow::Continue };
        let length = wanted.length();
        let (from, length) = match action {
            Action::Earlier => (wanted.from.0.saturating_sub(length / 2), length),
            Action::Later => (wanted.from.0.saturating_add(length / 2), length),
            Action::Narrower => (wanted.from.0 + length / 4, (length / 2).max(SHORTEST_RANGE)),
            Action::Wider => (wanted.from.0.saturating_sub(length / 2), length.saturating_mul(2)),
            _ => (whole.from.0, whole.length()),
        };
        Flow::Look(part(whole, from, length))
    }

    /// Takes a key into the filter; whether it was for the filter.
    fn type_filter(&mut self, code: KeyCode, state: &State) -> bool {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.set_filter(String::new(), state);
            }
            KeyCode::Backspace => {
                let mut filter = std::mem::take(&mut self.filter);
                filter.pop();
                self.set_filter(filter, state);
            }
            KeyCode::Char(c) if self.filter.chars().count() < LONGEST_FILTER => {
                let filter = format!("{}{c}", self.filter);
                self.set_filter(filter, state);
            }
            KeyCode::Char(_) => {}
            _ => return false,
        }
        true
    }

    fn set_filter(&mut self, filter: String, state: &State) {
        self.filter = filter;
        self.arrange(state);
    }
}

/// A part of a range, inside of it.
fn part(whole: Range, from: u64, length: u64) -> Range {
    let length = length.min(whole.length());
    let from = from.clamp(whole.from.0, whole.to.0 - length);
    Range { from: rtrace_model::Timestamp(from), to: rtrace_model::Timestamp(from + length) }
}

/// What all lists can do, whatever their keys are.
trait Rows {
    fn step(&mut self, rows: isize);
    fn choose(&mut self, place: usize);
    fn place(&self) -> usize;
    fn page(&self) -> isize;
    fn at_line(&self, line: usize) -> Option<usize>;
}

impl<K: Copy + PartialEq> Rows for List<K> {
    fn step(&mut self, rows: isize) {
        List::step(self, rows);
    }

    fn choose(&mut self, place: usize) {
        List::choose(self, place);
    }

    fn place(&self) -> usize {
        List::place(self)
    }

    fn page(&self) -> isize {
        List::page(self)
    }

    fn at_line(&self, line: usize) -> Option<usize> {
        List::at_line(self, line)
    }
}
