//! What the user has done to the view: order, filter, place, pause. Knows keys, no screen.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::column::{COLUMNS, FIRST_ORDER, Row};
use crate::rates::Rates;
use crate::snapshot::Snapshot;

const LONGEST_FILTER: usize = 64;
const PAGE: usize = 10;

/// The keys shown at the foot of the screen, with what they do.
pub const KEYS: [(&str, &str); 5] =
    [("q", "quit"), ("arrows", "move"), ("s", "sort"), ("space", "pause"), ("/", "filter")];

/// Whether to go on after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Draw again.
    Continue,
    /// The user wants to leave.
    Quit,
}

/// The state of the view.
#[derive(Debug)]
pub struct App {
    target: String,
    snapshot: Snapshot,
    elapsed: Duration,
    rates: Rates,
    /// Indices into the snapshot's functions: those that pass the filter, in order.
    rows: Vec<usize>,
    /// Index of the column that gives the order.
    order: usize,
    filter: String,
    typing: bool,
    paused: bool,
    selected: usize,
}

impl App {
    /// A view of `target`, before anything is known.
    pub fn new(target: &str) -> App {
        App {
            target: target.to_owned(),
            snapshot: Snapshot::default(),
            elapsed: Duration::ZERO,
            rates: Rates::default(),
            rows: Vec::new(),
            order: FIRST_ORDER,
            filter: String::new(),
            typing: false,
            paused: false,
            selected: 0,
        }
    }

    /// Whether the view stands still; the recording does not.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Shows a newer state, `elapsed` after the begin.
    pub fn update(&mut self, snapshot: Snapshot, elapsed: Duration) {
        self.rates.update(&snapshot, elapsed);
        self.snapshot = snapshot;
        self.elapsed = elapsed;
        self.arrange();
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Flow::Quit } else { Flow::Continue };
        }
        if self.typing {
            self.type_filter(key.code);
            return Flow::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('s') => {
                self.order = (self.order + 1) % COLUMNS.len();
                self.arrange();
            }
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(PAGE)),
            KeyCode::PageDown => self.select(self.selected + PAGE),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            _ => {}
        }
        Flow::Continue
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.set_filter(String::new());
            }
            KeyCode::Backspace => {
                let mut filter = std::mem::take(&mut self.filter);
                filter.pop();
                self.set_filter(filter);
            }
            KeyCode::Char(c) if self.filter.chars().count() < LONGEST_FILTER => {
                let filter = format!("{}{c}", self.filter);
                self.set_filter(filter);
            }
            _ => {}
        }
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.arrange();
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
    }

    /// Filters and sorts anew; rows of equal rank stay in the order of their ids.
    fn arrange(&mut self) {
        let App { snapshot, rates, rows, filter, .. } = self;
        let wanted = filter.to_lowercase();
        let matches = |name: &str| name.to_lowercase().contains(&wanted);
        let functions = &snapshot.functions;
        rows.clear();
        rows.extend((0..functions.len()).filter(|&index| {
            wanted.is_empty() || matches(&functions[index].name) || matches(&functions[index].library)
        }));
        let row = |index: usize| Row { function: &functions[index], rate: rates.of(functions[index].region) };
        rows.sort_by(|&a, &b| (COLUMNS[self.order].order)(row(a), row(b)));
        self.select(self.selected);
    }

    /// What is traced, not escaped.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The state shown.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Time from the begin to the state shown.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Calls per second of the whole recording.
    pub fn rate(&self) -> f64 {
        self.rates.total()
    }

    /// The functions that pass the filter, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        self.rows.iter().map(|&index| {
            let function = &self.snapshot.functions[index];
            Row { function, rate: self.rates.of(function.region) }
        })
    }

    /// Index of the column that gives the order.
    pub fn order(&self) -> usize {
        self.order
    }

    /// The row chosen.
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// The text that functions are filtered by.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Whether the user is typing the filter.
    pub fn typing(&self) -> bool {
        self.typing
    }
}
