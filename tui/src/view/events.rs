//! What happened beside the calls, the newest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::{Event, EventKind, Loss, LossReason, RegionId, Untimed, format_ns, slowdown};

use crate::app::App;
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::list::{List, Rows};
use crate::panel::Panel;
use crate::state::State;
use crate::text::{counted, grouped, short_ns};

const COLUMNS: [TableColumn; 4] = [
    TableColumn::number("after", 12, 0),
    TableColumn::number("pid", 7, 50),
    TableColumn::words("event", 12, 0),
    TableColumn::rest("what"),
];

/// Losses of a reason, or calls that were not timed for one, that are told within this time, in
/// nanoseconds, are one row.
const TOLD_WITHIN: u64 = 500_000_000;

/// Functions of which it is said how many calls were lost together, or not timed.
const MOST_NAMED: usize = 3;

/// The view.
#[derive(Debug, Default)]
pub struct Events {
    /// By their places in the log.
    rows: List<usize>,
}

impl Panel for Events {
    fn title(&self) -> &'static str {
        "events"
    }

    /// Lists the events.
    fn arrange(&mut self, app: &mut App, state: &State) {
        let wanted = app.filter.to_lowercase();
        let mut rows = Vec::new();
        let mut next = state.log.events.len();
        while let Some(place) = next.checked_sub(1) {
            let told = together(state, place);
            next = place + 1 - told.len();
            if wanted.is_empty() || App::passes(&wanted, &[told[0].kind.name(), &text(&told, state)]) {
                rows.push(place);
            }
        }
        self.rows.set(rows);
    }

    /// Draws the table.
    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        let (theme, origin) = (app.theme, app.origin(state));
        let row = |place: usize| {
            let told = together(state, place);
            let Some(event) = told.first() else { return Vec::new() };
            let style = match event.kind {
                EventKind::Loss(_)
                | EventKind::BlindWindow { .. }
                | EventKind::Overwritten { .. }
                | EventKind::Withheld { .. }
                | EventKind::Slowdown { .. } => theme.bad(),
                EventKind::Attached { .. } | EventKind::Armed | EventKind::Disarmed => theme.good(),
                _ => Style::new(),
            };
            vec![
                after(event, origin).into(),
                event.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
                Cell::from(event.kind.name()).styled(style),
                Cell::from(text(&told, state)).styled(style),
            ]
        };
        let chosen = self.rows.key().map(|place| together(state, place)).unwrap_or_default();
        let area = canvas.put_below(area, &in_full(&chosen, state));
        canvas.table(TableFrame::plain(area, &COLUMNS), &mut self.rows, row);
        if self.rows.rows().is_empty() {
            canvas.put_empty(area, app.why_empty("nothing has happened yet"));
        }
    }

    fn rows<'a>(&'a mut self, _app: &'a mut App) -> &'a mut dyn Rows {
        &mut self.rows
    }
}

/// Calls of one function that are lost or have no time.
struct Missing {
    what: &'static str,
    reason: &'static str,
    region: Option<RegionId>,
    count: u64,
}

impl Missing {
    /// What an event says of calls that are lost or have no time, if it does.
    fn of(event: &Event) -> Option<Missing> {
        match event.kind {
            EventKind::Loss(Loss { reason, region, count }) => {
                Some(Missing { what: "lost", reason: reason.name(), region, count })
            }
            EventKind::Untimed(Untimed { reason, region, count }) => {
                Some(Missing { what: "not timed", reason: reason.name(), region, count })
            }
            _ => None,
        }
    }
}

/// An event; of calls that are missing together, which are told by function, all up to this one, the
/// newest first.
fn together(state: &State, place: usize) -> Vec<&Event> {
    let reason = |event: &Event| Missing::of(event).map(|missing| (missing.what, missing.reason));
    let Some(newest) = state.log.events.get(place) else { return Vec::new() };
    let earlier = (0..place).rev().filter_map(|place| state.log.events.get(place));
    let same = earlier.take_while(|event| {
        reason(newest).is_some() && reason(event) == reason(newest) && newest.time.since(event.time) < TOLD_WITHIN
    });
    [newest].into_iter().chain(same).collect()
}

/// Time from the begin; before it are the events of attaching.
fn after(event: &Event, origin: u64) -> String {
    match event.time.0.checked_sub(origin) {
        Some(after) => format_ns(after),
        None => format!("-{}", format_ns(origin - event.time.0)),
    }
}

/// What happened, with what can be done about it; not escaped.
fn in_full(told: &[&Event], state: &State) -> String {
    let remedy = match told.first().map(|event| &event.kind) {
        Some(EventKind::Loss(Loss { reason, .. })) => remedy(*reason),
        _ => "",
    };
    format!("{}{remedy}", text(told, state))
}

/// What the user can do against a loss.
fn remedy(reason: LossReason) -> &'static str {
    match reason {
        LossReason::RingFull => ". More room: --buffer 64M; fewer records: --func, --mode profile or --budget 5%",
        LossReason::TooManyPaths => ". Fewer call paths: --func, or --mode trace",
        LossReason::NoMemory
        | LossReason::TooDeep
        | LossReason::TooManyLocations
        | LossReason::BadRecord
        | LossReason::EventLost
        | LossReason::AccessUncounted
        | LossReason::ValueLost
        | LossReason::ValueUnread
        | LossReason::ContextLost
        | LossReason::CallOrLap
        | LossReason::ProgramNotRun => "",
        LossReason::Unaccounted => ". This is a defect of rtrace: please report it",
    }
}

/// An event, or calls that are missing together, in words; not escaped.
fn text(told: &[&Event], state: &State) -> String {
    let Some(event) = told.first() else { return String::new() };
    match &event.kind {
        EventKind::Fork { child } => format!("forked process {child}"),
        EventKind::Exec { executable } => format!("executes {executable}"),
        EventKind::Withheld { program } => format!("{program} runs with privileges and is not recorded"),
        EventKind::Exit { code } => format!("ended with {code}"),
        EventKind::Attached { library, regions } => format!("{} of {library}", counted(*regions, "function")),
        EventKind::BlindWindow { library, since } => {
            format!("{library} was in use without probes for {}", short_ns(event.time.since(*since)))
        }
        EventKind::Overwritten { library, region: None, sites } => {
            format!("{} in {library}: the program wrote over them", counted(*sites, "return site"))
        }
        EventKind::Overwritten { region: Some(region), .. } => {
            format!("{region}: the program wrote over its probe, calls may be missing")
        }
        EventKind::Refused { region, reason, .. } => format!("{region} is not probed: {reason}"),
        EventKind::NoValues { region, reason, .. } => format!("{region}: values are not recorded: {reason}"),
        EventKind::NoLines { file } => {
            format!("{file}: its debug information cannot be read, source lines are missing")
        }
        EventKind::Armed => "recording begins".to_owned(),
        EventKind::Disarmed => "recording ends".to_owned(),
        EventKind::Estimated { metric } => format!("{metric} is estimated from now on"),
        EventKind::Plugin { command, problem } => format!("{command}: {problem}"),
        EventKind::Level { name, from, to, .. } => {
            format!("{name}: {} to {}, because of the budget", from.name(), to.name())
        }
        EventKind::Slowdown { percent } => slowdown(*percent),
        EventKind::Watched { variable, since } => {
            format!("{variable} is watched after {}", short_ns(event.time.since(*since)))
        }
        EventKind::Unwatched { variable, reason } => format!("{variable} is not watched: {reason}"),
        EventKind::Loss(_) | EventKind::Untimed(_) => missing(told, state),
    }
}

/// Calls that are missing for one reason: all, and by function, the most first.
fn missing(told: &[&Event], state: &State) -> String {
    let mut by_function: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut all, mut what, mut reason) = (0, "", "");
    for missing in told.iter().filter_map(|event| Missing::of(event)) {
        all += missing.count;
        (what, reason) = (missing.what, missing.reason);
        if let Some(function) = missing.region.and_then(|region| state.function(region)) {
            *by_function.entry(&function.alone).or_default() += missing.count;
        }
    }
    let mut by_function: Vec<(&str, u64)> = by_function.into_iter().collect();
    by_function.sort_by_key(|&(_, count)| Reverse(count));
    match by_function[..] {
        [] => format!("{} {what}: {reason}", grouped(all)),
        [(name, count)] if count == all => format!("{} {what} of {name}: {reason}", grouped(all)),
        _ => {
            let most = by_function.iter().take(MOST_NAMED);
            let mut of: Vec<String> = most.map(|(name, count)| format!("{} of {name}", grouped(*count))).collect();
            if let Some(more) = by_function.len().checked_sub(MOST_NAMED).filter(|&more| more > 0) {
                of.push(format!("others of {}", counted(more as u64, "more function")));
            }
            format!("{} {what}: {reason}; {}", grouped(all), of.join(", "))
        }
    }
}
