//! The functions with their figures. A column is one entry: its title, width, text and order.

use std::borrow::Cow;
use std::cmp::Ordering;

use crossterm::event::KeyCode::{self, Char};
use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::RegionId;

use crate::app::{App, Outside};
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::colours::Colours;
use crate::key::{Binding, Keys, also, find, key};
use crate::list::Rows;
use crate::panel::{self, Act, Panel, PanelSubject};
use crate::state::State;
use crate::state::function::Function;
use crate::state::history::SLOTS;
use crate::text::count;
use crate::theme::Theme;
use crate::view::groups::{GroupBy, GroupKey, GroupView};
use crate::view::{TIME, no_calls};
use crate::view::{counters, legend};

/// The view. The list of functions is shared with the view of one function, which goes through it.
#[derive(Debug, Default)]
pub struct Functions {
    by: GroupBy,
    groups: GroupView,
}

const KEYS: &[Binding<Act<Functions>>] = &[
    key(&[Char('s')], "s r", "sort by the next column; reverse the order", "sort", |_, app, state| {
        app.order = next_order(app, state);
        app.reversed = false;
        arrange(app, state);
        Outside::Continue
    }),
    also(&[Char('r')], |_, app, state| {
        app.reversed = !app.reversed;
        arrange(app, state);
        Outside::Continue
    }),
    key(&[Char('b')], "b", "rows by function, library, process, thread or rank", "by", |functions, app, state| {
        functions.by = functions.by.next(app);
        functions.arrange(app, state);
        Outside::Continue
    }),
];

impl Panel for Functions {
    fn title(&self) -> &'static str {
        "functions"
    }

    fn keys(&self) -> Vec<&'static Keys> {
        panel::keys(KEYS)
    }

    fn press(&mut self, code: KeyCode, app: &mut App, state: &State) -> Option<Outside> {
        find(KEYS, code).map(|act| act(self, app, state))
    }

    fn arrange(&mut self, app: &mut App, state: &State) {
        match self.by {
            GroupBy::Function => arrange(app, state),
            by => self.groups.arrange(by, app, state),
        }
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        match self.by {
            GroupBy::Function => draw(canvas, area, app, state),
            by => self.groups.draw(canvas, area, by, app, state),
        }
    }

    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn Rows {
        if self.by == GroupBy::Function { &mut app.functions } else { &mut self.groups.rows }
    }

    fn chosen_function(&self, app: &App, _state: &State) -> Option<RegionId> {
        (self.by == GroupBy::Function).then(|| app.functions.key())?
    }

    fn descend(&mut self, app: &mut App, state: &State) -> bool {
        let is_library = self.by != GroupBy::Function && self.groups.descend(app, state);
        if is_library {
            self.by = GroupBy::Function;
        }
        is_library
    }

    fn opens(&self) -> Option<PanelSubject> {
        match (self.by, self.groups.rows.key()) {
            (GroupBy::Function, _) => Some(PanelSubject::Function),
            (_, Some(GroupKey::Thread(_))) => Some(PanelSubject::Thread),
            (_, Some(GroupKey::Process(_) | GroupKey::Rank(_))) => Some(PanelSubject::Process),
            _ => None,
        }
    }

    fn close(&mut self, app: &mut App, state: &State) -> bool {
        let is_grouped = self.by != GroupBy::Function;
        self.by = GroupBy::Function;
        arrange(app, state);
        is_grouped
    }
}

/// What a column says of a function.
#[derive(Debug)]
pub struct Figure {
    column: TableColumn<'static>,
    text: for<'a> fn(&'a Facts<'a>, &'a Function) -> Cell<'a>,
    /// Largest numbers first, names from A to Z.
    order: fn(&State, &Function, &Function) -> Ordering,
}

/// What the text of a cell may depend on.
#[derive(Debug)]
pub struct Facts<'a> {
    state: &'a State,
    theme: Theme,
    colours: Colours,
    /// Sum of the work of all functions.
    work: u64,
}

impl Facts<'_> {
    fn library(&self, function: &Function) -> Style {
        self.colours.library(function.library)
    }
}

/// Those that take most time first, and those that only wait behind all others.
fn by_work(a: &Function, b: &Function) -> Ordering {
    let waits = |function: &Function| function.waits_for.is_some();
    waits(a).cmp(&waits(b)).then_with(|| b.own().cmp(&a.own()))
}

const CURVE: u16 = 15;

/// All columns from left to right.
pub const COLUMNS: [Figure; 13] = [
    Figure {
        column: TableColumn::number("calls", 10, 0),
        text: |facts, function| match function.without_record.mark() {
            "" => count(function.all_calls()).into(),
            mark => Cell::from(format!("{mark}{}", count(function.all_calls()))).styled(facts.theme.bad()),
        },
        order: |_, a, b| b.all_calls().cmp(&a.all_calls()),
    },
    Figure {
        column: TableColumn::number("calls/s", 9, 64),
        text: |facts, function| count(rate(facts.state, function).round() as u64).into(),
        order: |state, a, b| rate(state, b).total_cmp(&rate(state, a)),
    },
    Figure {
        column: TableColumn::words("calls over time", CURVE, 118),
        text: |facts, function| Cell::from(curve(facts, function)).styled(facts.library(function)),
        order: |state, a, b| rate(state, b).total_cmp(&rate(state, a)),
    },
    Figure {
        column: TableColumn::time("inclusive", TIME, 92),
        text: |_, function| Cell::time(function.time(function.inclusive())),
        order: |_, a, b| b.inclusive().cmp(&a.inclusive()),
    },
    Figure {
        column: TableColumn::time("exclusive", TIME, 38),
        text: |facts, function| {
            let time = function.time(function.exclusive);
            if function.is_mostly_tracing() {
                Cell::marked(time, "!").styled(facts.theme.bad())
            } else {
                Cell::time(time)
            }
        },
        order: |_, a, b| by_work(a, b),
    },
    Figure {
        column: TableColumn::number("share %", 13, 50),
        text: |facts, function| {
            if let Some(wait) = function.waits_for {
                return Cell::from(wait.name()).styled(facts.theme.dim());
            }
            let share = |time: u64| time as f64 / facts.work.max(1) as f64;
            let off_cpu = function.off_cpu(&facts.state.counters).unwrap_or(0.0);
            Cell::share(function.time(function.own()).map(share), off_cpu).styled(facts.library(function))
        },
        order: |_, a, b| by_work(a, b),
    },
    Figure {
        column: TableColumn::number("mean", 10, 132),
        text: |_, function| Cell::duration(function.mean(), ""),
        order: |_, a, b| b.mean().cmp(&a.mean()),
    },
    Figure {
        column: TableColumn::number("p50", 12, 158),
        text: |_, function| percentile(function, function.p50()),
        order: |_, a, b| b.about_p50().cmp(&a.about_p50()),
    },
    Figure {
        column: TableColumn::number("p99", 12, 106),
        text: |_, function| percentile(function, function.p99()),
        order: |_, a, b| b.about_p99().cmp(&a.about_p99()),
    },
    Figure {
        column: TableColumn::number("max", 10, 144),
        text: |_, function| Cell::duration(function.max, ""),
        order: |_, a, b| b.max.cmp(&a.max),
    },
    Figure {
        column: TableColumn::number("lost", 9, 210),
        text: |facts, function| match function.lost {
            0 => "0".into(),
            lost => Cell::from(count(lost)).styled(facts.theme.bad()),
        },
        order: |_, a, b| b.lost.cmp(&a.lost),
    },
    Figure {
        column: TableColumn::rest("function"),
        text: |_, function| Cell::name(&*function.name),
        order: |_, a, b| a.name.cmp(&b.name),
    },
    Figure {
        column: TableColumn::words("library", 20, 182),
        text: |facts, function| facts.state.library(function.library).into(),
        order: |state, a, b| state.library(a.library).cmp(state.library(b.library)),
    },
];

/// Index of the column by which the table is sorted at first.
pub const FIRST_ORDER: usize = 4;

/// Before this column stand those for counters.
const NAME: usize = 11;

/// The order by the next of the columns on the screen, or of all where nothing is drawn yet.
fn next_order(app: &App, state: &State) -> usize {
    let drawn = &app.columns;
    match (drawn.iter().position(|&order| order == app.order), drawn.first()) {
        (Some(place), _) => drawn[(place + 1) % drawn.len()],
        (None, Some(&first)) => first,
        // One for each column, and one for each figure of the counters.
        (None, None) => (app.order + 1) % (COLUMNS.len() + state.counters.figures().len()),
    }
}

/// Filters and sorts anew; of rows of equal rank those with most calls come first.
pub fn arrange(app: &mut App, state: &State) {
    let wanted = app.filter.to_lowercase();
    let shown = |function: &&Function| {
        function.calls > 0 && App::passes(&wanted, &[&function.name, state.library(function.library)])
    };
    let mut rows: Vec<&Function> = state.functions().filter(shown).collect();
    let calls = |a: &Function, b: &Function| b.all_calls().cmp(&a.all_calls());
    let turned = |order: Ordering| if app.reversed { order.reverse() } else { order };
    let figure = app.order.checked_sub(COLUMNS.len()).and_then(|place| state.counters.figures().get(place));
    if let Some(figure) = figure {
        let rank = |function: &Function| figure.of(function.exclusive, &function.counts).rank();
        rows.sort_by(|a, b| turned(rank(b).total_cmp(&rank(a))).then_with(|| calls(a, b)));
    } else {
        let order = COLUMNS.get(app.order).unwrap_or(&COLUMNS[FIRST_ORDER]).order;
        rows.sort_by(|a, b| turned(order(state, a, b)).then_with(|| calls(a, b)));
    }
    app.functions.set(rows.into_iter().map(|function| function.region).collect());
}

fn draw(canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
    let work = state.functions().map(Function::work).fold(0, u64::saturating_add);
    let facts = Facts { state, theme: app.theme, colours: Colours::of(state, app.theme), work };
    let bars = [app.theme.glyphs.shades[3], app.theme.glyphs.shades[1]];
    let has_cpu = state.functions().any(|function| function.off_cpu(&state.counters).is_some());
    let mut marks = if has_cpu { vec![(bars[0], "on CPU"), (bars[1], "off CPU")] } else { Vec::new() };
    marks.extend(state.functions().any(Function::is_mostly_tracing).then_some(("!", "mostly tracing")));
    let area = legend::draw_below(canvas, area, state, &facts.colours, &marks);
    let (counted, left) = counters::fitting(state, area.width);
    let shown = |range: std::ops::Range<usize>| range.filter(|&place| COLUMNS[place].column.from <= left);
    let orders: Vec<usize> = shown(0..NAME)
        .chain((0..counted.len()).map(|place| COLUMNS.len() + place))
        .chain(shown(NAME..COLUMNS.len()))
        .collect();
    let column = |&order: &usize| match order.checked_sub(COLUMNS.len()) {
        Some(place) => counters::column(&counted[place]),
        None => COLUMNS[order].column,
    };
    let columns: Vec<TableColumn<'_>> = orders.iter().map(column).collect();
    let marked = orders.iter().position(|&order| order == app.order);
    let order = marked.map(|place| (place, app.theme.glyphs.orders[usize::from(app.reversed)]));
    let row = |region: RegionId| {
        let Some(function) = state.function(region) else { return Vec::new() };
        let cell = |&order: &usize| match order.checked_sub(COLUMNS.len()) {
            Some(place) => counters::text(&counted[place], function.exclusive, &function.counts),
            None => (COLUMNS[order].text)(&facts, function),
        };
        orders.iter().map(cell).collect()
    };
    let titles = canvas.table(TableFrame { order, ..TableFrame::plain(area, &columns) }, &mut app.functions, row);
    app.columns = titles.into_iter().map(|(place, _)| orders[place]).collect();
    if app.functions.rows().is_empty() {
        canvas.put_empty(area, app.why_empty(no_calls(app, state)));
    }
}

fn rate(state: &State, function: &Function) -> f64 {
    state.rate(function.calls, &function.history)
}

/// A percentile, or a duration that it does not exceed.
fn percentile(function: &Function, ns: Option<u64>) -> Cell<'static> {
    Cell::duration(ns, bound(function))
}

/// What stands before percentiles: where durations are known to a power of two, they are upper bounds.
pub fn bound(function: &Function) -> &'static str {
    if function.has_bounds() { "<=" } else { "" }
}

/// Calls over the last minute, or over the range.
fn curve<'a>(facts: &Facts<'_>, function: &Function) -> Cow<'a, str> {
    let cells = u64::from(CURVE);
    let end = facts.state.end_slot();
    let mut values = [0; CURVE as usize];
    for slot in function.history.slots().filter(|slot| slot.number + SLOTS >= end) {
        let cell = (slot.number + SLOTS - end) * cells / SLOTS;
        values[(cell as usize).min(usize::from(CURVE) - 1)] += slot.calls;
    }
    // A steady rate is half as high, so that what catches the eye is what deviates.
    let mean = values.iter().sum::<u64>() / u64::from(CURVE);
    facts.theme.curve(&values, 2 * mean).into()
}
