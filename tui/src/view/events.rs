//! What happened beside the calls, the newest first.

use ratatui::layout::Rect;
use ratatui::style::Style;
use rtrace_model::{Event, EventKind, Loss, format_ns};

use crate::app::App;
use crate::canvas::{Canvas, Cell, Column, Table};
use crate::state::State;
use crate::text::short_ns;

const COLUMNS: [Column; 4] =
    [Column::number("after", 12, 0), Column::number("pid", 7, 50), Column::words("event", 12, 0), Column::rest("what")];

/// Lists the events.
pub fn arrange(app: &mut App, state: &State) {
    let wanted = app.filter.to_lowercase();
    let events = state.log.events.iter().enumerate().rev();
    let passing = events.filter(|(_, event)| App::passes(&wanted, &[event.kind.name(), &text(event, state)]));
    app.events.set(passing.map(|(place, _)| place).collect());
}

/// Draws the table.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
    let (theme, origin) = (app.theme, app.origin(state));
    let row = |place: usize| {
        let Some(event) = state.log.events.get(place) else { return Vec::new() };
        let style = match event.kind {
            EventKind::Loss(_) | EventKind::BlindWindow { .. } | EventKind::Slowdown { .. } => theme.bad(),
            EventKind::Attached { .. } | EventKind::Armed | EventKind::Disarmed => theme.good(),
            _ => Style::new(),
        };
        vec![
            after(event, origin).into(),
            event.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
            Cell::from(event.kind.name()).styled(style),
            Cell::from(text(event, state)).styled(style),
        ]
    };
    canvas.table(Table { area, columns: &COLUMNS, order: None }, &mut app.events, row);
    if app.events.rows().is_empty() && area.height > 2 {
        canvas.put(area.x, area.y + 2, area.width, "nothing happened", theme.dim());
    }
}

/// Time from the begin; before it are the events of attaching.
fn after(event: &Event, origin: u64) -> String {
    match event.time.0.checked_sub(origin) {
        Some(after) => format_ns(after),
        None => format!("-{}", format_ns(origin - event.time.0)),
    }
}

/// An event in words; not escaped.
fn text(event: &Event, state: &State) -> String {
    match &event.kind {
        EventKind::Fork { child } => format!("made process {child}"),
        EventKind::Exec { executable } => format!("runs {executable} from here on"),
        EventKind::Exit { code } => format!("ended with {code}"),
        EventKind::Attached { library, regions } => format!("{regions} functions of {library}"),
        EventKind::BlindWindow { library, since } => {
            format!("{library} was in use without probes for {}", short_ns(event.time.since(*since)))
        }
        EventKind::Refused { region, reason, .. } => format!("{region}: {reason}"),
        EventKind::Armed => "recording begins".to_owned(),
        EventKind::Disarmed => "recording ends".to_owned(),
        EventKind::Estimated { metric } => format!("{metric} is an estimate from here on"),
        EventKind::Plugin { command, problem } => format!("{command}: {problem}"),
        EventKind::Level { name, from, to, .. } => format!("{name}: {} to {}, for the budget", from.name(), to.name()),
        EventKind::Slowdown { percent } => {
            format!("tracing slows the program down by about {percent} %; --budget 5% would keep that low")
        }
        EventKind::Watched { variable, since } => {
            format!("{variable} is watched after {}", short_ns(event.time.since(*since)))
        }
        EventKind::Unwatched { variable, reason } => format!("{variable} is not watched: {reason}"),
        EventKind::Loss(Loss { reason, region, count }) => {
            let function = region.and_then(|region| state.function(region));
            let of = function.map(|function| format!(" of {}", function.name)).unwrap_or_default();
            format!("{count} lost{of}: {}", reason.name())
        }
    }
}
