//! One function: its figures, its durations over time, and the lists that lead on: who calls it, what it calls, its
//! slowest calls.

mod durations;
mod values;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use crossterm::event::KeyCode::{self, Char, Left, Right};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use rtrace_model::{LocationId, RegionId, Totals};

use crate::app::{App, Outside};
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::colours::Colours;
use crate::key::{Binding, Keys, also, find, key};
use crate::list::{List, Rows};
use crate::panel::{self, Act, Panel, PanelSubject};
use crate::state::State;
use crate::state::counters::Figure;
use crate::state::function::{Function, Slow};
use crate::state::paths::{Label, ROOT};
use crate::text::{count, counted, fit_name, grouped, share, short_ns, time, width};
use crate::view::{counters, functions, tree};

/// Facts on a line, at most, and cells between two of them.
const MOST_FACTS: usize = 4;
const GAP: usize = 3;

/// A lower view has only facts; one that is lower than the second has one list.
const LISTS_FROM: u16 = 9;
const ALL_LISTS_FROM: u16 = 7;

/// Lines of the list of slowest calls with its title.
const SLOWEST: u16 = 9;

/// The lists, in the order in which keys go through them.
const CALLERS: usize = 0;
const CALLEES: usize = 1;
const SLOW: usize = 2;
const TITLES: [&str; 3] = ["callers", "callees", "slowest calls"];

/// What is said in place of an empty list.
const NONE: &str = "none is traced";

/// The view.
#[derive(Debug, Default)]
pub struct Detail {
    /// The list that keys move through.
    part: usize,
    callers: Neighbours,
    callees: Neighbours,
    slowest: List<(LocationId, u64)>,
    /// The functions from which others were opened here, the first one first.
    trail: Vec<RegionId>,
}

/// Functions on the other side of calls, with the sums of these.
#[derive(Debug, Default)]
struct Neighbours {
    rows: List<Label>,
    sums: HashMap<Label, Totals>,
}

const KEYS: &[Binding<Act<Detail>>] = &[
    key(
        &[Right, Char('l')],
        "Right/Left",
        "callees, slowest calls, callers; also l and h",
        "list",
        |detail, app, state| detail.turn(app, state, 1),
    ),
    also(&[Left, Char('h')], |detail, app, state| detail.turn(app, state, TITLES.len() - 1)),
    key(&[Char('n')], "n/p", "next function, previous function of view 1", "next", |detail, app, state| {
        detail.step(app, state, 1)
    }),
    also(&[Char('p')], |detail, app, state| detail.step(app, state, -1)),
];

impl Detail {
    fn turn(&mut self, app: &mut App, state: &State, by: usize) -> Outside {
        self.part = (self.part + by) % TITLES.len();
        self.arrange(app, state);
        Outside::Continue
    }

    fn step(&mut self, app: &mut App, state: &State, rows: isize) -> Outside {
        app.functions.step(rows);
        app.focus = app.functions.key();
        self.trail.clear();
        self.arrange(app, state);
        Outside::Continue
    }

    fn neighbours(&self) -> &Neighbours {
        if self.part == CALLERS { &self.callers } else { &self.callees }
    }

    fn call<'a>(&self, app: &App, state: &'a State) -> Option<&'a Slow> {
        let key = self.slowest.key()?;
        state.function(app.focus?)?.slowest().iter().find(|slow| key_of(slow) == key)
    }

    /// Draws what is known of the function in focus.
    fn draw_all(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        let Some(function) = app.focus.and_then(|region| state.function(region)) else {
            canvas.put(area.x, area.y, area.width, "no function is selected: Enter opens one", canvas.theme.dim());
            return;
        };
        let (counted, _) = counters::fitting(state, area.width);
        let facts = facts(function, state, counted);
        let widths = widths(&facts, usize::from(area.width));
        let lines = u16::try_from(facts.len().div_ceil(widths.len())).unwrap_or(u16::MAX);
        let left = area.height.saturating_sub(1 + lines);
        // The picture has a line for each class of durations; the lists have what it leaves.
        let recorded = state.values.of(function.region);
        let of_values = values::height(recorded).min(left / 3);
        let left = left - of_values;
        let picture = if area.height < LISTS_FROM { left } else { durations::height(function, state).min(left / 2) };
        let [name, above, of_values, picture, below] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(lines),
            Constraint::Length(of_values),
            Constraint::Length(picture),
            Constraint::Fill(1),
        ])
        .areas(area);
        draw_name(canvas, name, function, state);
        draw_facts(canvas, above, &facts, &widths);
        values::draw(canvas, of_values, recorded);
        if !picture.is_empty() {
            durations::draw(canvas, picture, function, state, app.origin(state));
        }
        if area.height >= LISTS_FROM {
            self.draw_lists(canvas, below, app, (function, state));
        }
    }

    fn draw_lists(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &App, of: (&Function, &State)) {
        if area.height < ALL_LISTS_FROM {
            self.draw_list(canvas, area, app, of, self.part);
            return;
        }
        let wanted = u16::try_from(self.slowest.rows().len() + 1).unwrap_or(u16::MAX).max(2);
        let [above, below] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(wanted.min(SLOWEST).min(area.height / 2))])
                .areas(area);
        let [left, right] = Layout::horizontal([Constraint::Ratio(1, 2); 2]).spacing(2).areas(above);
        for (part, place) in [left, right, below].into_iter().enumerate() {
            self.draw_list(canvas, place, app, of, part);
        }
    }

    fn draw_list(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &App, of: (&Function, &State), part: usize) {
        let is_active = part == self.part;
        match part {
            SLOW => draw_slowest(canvas, area, &mut self.slowest, of, app.origin(of.1), is_active),
            CALLERS => self.callers.draw(canvas, area, of.1, TITLES[part], is_active),
            _ => self.callees.draw(canvas, area, of.1, TITLES[part], is_active),
        }
    }
}

impl Panel for Detail {
    fn title(&self) -> &'static str {
        "detail"
    }

    fn keys(&self) -> Vec<&'static Keys> {
        panel::keys(KEYS)
    }

    fn press(&mut self, code: KeyCode, app: &mut App, state: &State) -> Option<Outside> {
        find(KEYS, code).map(|act| act(self, app, state))
    }

    fn arrange(&mut self, app: &mut App, state: &State) {
        let Some(function) = app.focus.and_then(|region| state.function(region)) else { return };
        let (callers, callees) = neighbours(function, state);
        self.callers.set(callers);
        self.callees.set(callees);
        self.slowest.set(function.slowest().iter().map(key_of).collect());
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        self.draw_all(canvas, area, app, state);
    }

    fn rows<'a>(&'a mut self, _app: &'a mut App) -> &'a mut dyn Rows {
        match self.part {
            CALLERS => &mut self.callers.rows,
            CALLEES => &mut self.callees.rows,
            _ => &mut self.slowest,
        }
    }

    fn chosen_function(&self, app: &App, _state: &State) -> Option<RegionId> {
        app.focus
    }

    fn opens(&self) -> Option<PanelSubject> {
        (self.part == SLOW && self.slowest.key().is_some()).then_some(PanelSubject::Call)
    }

    fn shows(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Function)
    }

    /// A caller or callee takes the place of the function.
    fn descend(&mut self, app: &mut App, state: &State) -> bool {
        if self.part == SLOW {
            app.call = self.call(app, state).copied();
            return false;
        }
        let (Some(Label::Region(region)), Some(focus)) = (self.neighbours().rows.key(), app.focus) else {
            return false;
        };
        self.trail.push(focus);
        self.show(app, region);
        true
    }

    fn close(&mut self, app: &mut App, _state: &State) -> bool {
        let before = self.trail.pop();
        if let Some(region) = before {
            self.show(app, region);
        }
        before.is_some()
    }

    fn open(&mut self, _app: &mut App, _state: &State) {
        self.trail.clear();
        self.part = CALLERS;
    }

    fn enter(&mut self, app: &mut App, chosen: Option<RegionId>) {
        if let Some(region) = chosen.or(app.focus).or(app.functions.key()) {
            if app.focus != Some(region) {
                self.trail.clear();
            }
            self.show(app, region);
        }
    }
}

impl Detail {
    fn show(&mut self, app: &mut App, region: RegionId) {
        if app.focus != Some(region) {
            self.callers.rows = List::default();
            self.callees.rows = List::default();
            self.slowest = List::default();
        }
        app.focus = Some(region);
        app.functions.choose_key(region);
    }
}

impl Neighbours {
    /// The most time first.
    fn set(&mut self, sums: HashMap<Label, Totals>) {
        let mut rows: Vec<(Label, Totals)> =
            sums.iter().filter(|(_, sums)| sums.calls > 0).map(|(&l, &s)| (l, s)).collect();
        rows.sort_by_key(|(label, sums)| (Reverse(sums.inclusive), Reverse(sums.calls), order_of(*label)));
        self.rows.set(rows.into_iter().map(|(label, _)| label).collect());
        self.sums = sums;
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, state: &State, title: &str, is_active: bool) {
        let all: u64 = self.sums.values().map(|sums| sums.inclusive).sum();
        let columns = [
            TableColumn::time("inclusive", 12, 0),
            TableColumn::number("share %", 13, 70),
            TableColumn::number("calls", 9, 44),
            TableColumn::rest(""),
        ];
        let colours = Colours::of(state, canvas.theme);
        let Neighbours { rows, sums } = self;
        let row = |label: Label| {
            let Some(sums) = sums.get(&label) else { return Vec::new() };
            let time = sums.time(sums.inclusive);
            let style = if let Label::Region(region) = label { colours.function(state, region) } else { Style::new() };
            vec![
                Cell::time(time),
                Cell::share(time.map(|time| time as f64 / all.max(1) as f64), 0.0).styled(style),
                count(sums.calls).into(),
                Cell::name(tree::name(state, label)),
            ]
        };
        let table = TableFrame { is_active, ..TableFrame::plain(area, &columns) };
        let places = canvas.table(table, rows, row);
        put_title(canvas, area, &places, columns.len() - 1, title, is_active);
        if rows.rows().is_empty() && area.height > 1 {
            canvas.put(area.x, area.y + 1, area.width, NONE, canvas.theme.dim());
        }
    }
}

/// The title of a list, above its last column.
fn put_title(
    canvas: &mut Canvas<'_>,
    area: Rect,
    places: &[(usize, Rect)],
    column: usize,
    title: &str,
    is_active: bool,
) {
    let place = places.iter().find(|(index, _)| *index == column).map_or(area, |&(_, place)| place);
    let style = canvas.theme.title();
    let style = if is_active { style.patch(canvas.theme.accent()) } else { style };
    canvas.put(place.x, place.y, place.width, title, style);
}

fn draw_slowest(
    canvas: &mut Canvas<'_>,
    area: Rect,
    rows: &mut List<(LocationId, u64)>,
    (function, state): (&Function, &State),
    origin: u64,
    is_active: bool,
) {
    let columns = [
        TableColumn::time("took", 12, 0),
        TableColumn::number("own %", 6, 40),
        TableColumn::number("at", 9, 0),
        TableColumn::rest(""),
    ];
    let row = |key: (LocationId, u64)| {
        let Some(slow) = function.slowest().iter().find(|slow| key_of(slow) == key) else { return Vec::new() };
        let thread = state.thread(slow.location).map(|thread| &thread.location);
        let own = (slow.duration - slow.child.min(slow.duration)) as f64 / slow.duration.max(1) as f64;
        vec![
            Cell::time(Some(slow.duration)),
            share(own).into(),
            short_ns(slow.start.0.saturating_sub(origin)).into(),
            match (state.values.call(function.region, key), thread) {
                (Some(code), _) => code.into(),
                (None, Some(of)) => format!("thread {} {}", of.tid, of.name).into(),
                (None, None) => "thread ?".into(),
            },
        ]
    };
    let table = TableFrame { is_active, ..TableFrame::plain(area, &columns) };
    let places = canvas.table(table, rows, row);
    put_title(canvas, area, &places, columns.len() - 1, TITLES[SLOW], is_active);
    if rows.rows().is_empty() && area.height > 1 {
        let why = match (state.is_folded, state.awaits_calls) {
            (true, true) => "still being read",
            (true, false) => "aggregated: no single calls recorded",
            (false, _) => NONE,
        };
        canvas.put(area.x, area.y + 1, area.width, why, canvas.theme.dim());
    }
}

fn key_of(slow: &Slow) -> (LocationId, u64) {
    (slow.location, slow.call)
}

fn draw_name(canvas: &mut Canvas<'_>, area: Rect, function: &Function, state: &State) {
    let theme = canvas.theme;
    let untimed = match function.untimed() {
        0 => String::new(),
        untimed => format!("  {} not timed", counted(untimed, "call")),
    };
    let from = format!("  {}  exit: {}{untimed}", state.library(function.library), function.exit.name());
    // The name has at least two thirds of the line.
    let name = fit_name(
        &function.name,
        usize::from(area.width).saturating_sub(from.len()).max(usize::from(area.width) * 2 / 3),
        theme.glyphs,
    );
    canvas.put_all(area, [(Cow::from(name), theme.title().patch(theme.accent())), (Cow::from(from), theme.dim())]);
}

fn facts<'a>(function: &Function, state: &State, counted: &'a [Figure]) -> Vec<(&'a str, String)> {
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), time);
    let percentile =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{}{}", functions::bound(function), time(ns)));
    let rate = state.rate(function.calls, &function.history);
    let mut facts: Vec<(&str, String)> = vec![
        ("calls", grouped(function.calls)),
        ("calls/s", grouped(rate.round() as u64)),
        ("inclusive", known(function.time(function.inclusive()))),
        ("exclusive", known(function.time(function.exclusive))),
        ("mean", known(function.mean())),
        ("p50", percentile(function.p50())),
        ("p99", percentile(function.p99())),
        ("max", known(function.max)),
    ];
    if function.is_mostly_tracing() {
        facts.push(("without tracing", time(function.own())));
    }
    if let Some(part) = function.off_cpu(&state.counters) {
        facts.push(("off CPU", format!("{} % of exclusive", share(part))));
    }
    let value = |figure: &Figure| figure.of(function.exclusive, &function.counts).to_string();
    facts.extend(counted.iter().map(|figure| (figure.title.as_str(), value(figure))));
    facts
}

/// Cells of each fact of a line, for as many on a line as there is room for.
fn widths(facts: &[(&str, String)], room: usize) -> Vec<usize> {
    let columns = |across: usize| -> Vec<usize> {
        let cells = |(title, value): &(&str, String)| width(title) + width(value) + 1 + GAP;
        (0..across).map(|column| facts.iter().skip(column).step_by(across).map(cells).max().unwrap_or(0)).collect()
    };
    let fits = |widths: &Vec<usize>| widths.iter().sum::<usize>() <= room + GAP;
    (1..=MOST_FACTS).rev().map(columns).find(fits).unwrap_or_else(|| columns(1))
}

fn draw_facts(canvas: &mut Canvas<'_>, area: Rect, facts: &[(&str, String)], widths: &[usize]) {
    for (line, y) in facts.chunks(widths.len()).zip(area.y..area.bottom()) {
        let mut x = area.x;
        for ((title, value), cells) in line.iter().zip(widths) {
            let taken = canvas.put(x, y, area.right().saturating_sub(x), &format!("{title} "), canvas.theme.dim());
            canvas.put(x + taken, y, area.right().saturating_sub(x + taken), value, canvas.theme.title());
            x = x.saturating_add(u16::try_from(*cells).unwrap_or(u16::MAX));
        }
    }
}

/// Callers and callees with the sums of the calls on those paths.
fn neighbours(function: &Function, state: &State) -> (HashMap<Label, Totals>, HashMap<Label, Totals>) {
    let (paths, figures) = (state.merged_paths(), state.merged_figures());
    let own = Label::Region(function.region);
    let (mut callers, mut callees): (HashMap<Label, Totals>, HashMap<Label, Totals>) = Default::default();
    for (node, &sums) in paths.nodes().iter().zip(&figures).skip(1) {
        let above = paths.node(node.parent).label;
        if node.label == own && node.parent != ROOT {
            callers.entry(above).or_default().add(sums);
        }
        if above == own {
            callees.entry(node.label).or_default().add(sums);
        }
    }
    (callers, callees)
}

/// Rows of equal sums stay in their places.
fn order_of(label: Label) -> usize {
    if let Label::Region(region) = label { region.index() } else { usize::MAX }
}
