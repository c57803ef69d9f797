//! The lines around a view: what is traced, how it goes, tabs, the part of a stored trace, keys.

use std::borrow::Cow;

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use rtrace_model::{Known, Overhead};

use crate::app::App;
use crate::canvas::{Align, Canvas};
use crate::key::Help;
use crate::state::function::WithoutRecord;
use crate::state::{Span, State};
use crate::text::{bytes, clock, counted, grouped, short_ns, width};
use crate::view::question;

type HeaderPiece<'a> = (Cow<'a, str>, Style);

/// What is traced, for how long, and whether it still is.
pub fn draw_title(canvas: &mut Canvas<'_>, area: Rect, app: &App, state: &State) {
    let theme = app.theme;
    let mode = match (app.paused, state.span, &state.summary) {
        (true, _, _) => "PAUSED",
        (_, Span::Range { .. }, _) => app.stored.as_ref().map_or("", |stored| stored.status.as_str()),
        (_, Span::Live, None) if !state.is_armed => "attaching",
        (_, Span::Live, None) => "recording",
        (_, Span::Live, Some(_)) => "recording ended, q quits",
    };
    let time = match state.span {
        Span::Live => clock(state.elapsed()),
        Span::Range { .. } => short_ns(state.elapsed()),
    };
    let right = if mode.is_empty() { time } else { format!("{mode}  {time}") };
    let style = if app.paused { theme.title().patch(theme.chosen()) } else { theme.title() };
    canvas.put_aligned(area, &right, style, Align::Right);
    let left = Rect { width: area.width.saturating_sub(u16::try_from(right.len()).unwrap_or(0) + 2), ..area };
    canvas.put_all(
        left,
        [(Cow::from("rtrace  "), theme.title().patch(theme.accent())), (Cow::from(app.target.as_str()), theme.title())],
    );
}

/// How much is recorded, and how well.
pub fn draw_facts(canvas: &mut Canvas<'_>, area: Rect, app: &App, state: &State) {
    let theme = app.theme;
    let rate = state.rate(state.calls, &state.history);
    let gap = if area.width >= 100 { "   " } else { "  " };
    let mut facts: Vec<HeaderPiece<'_>> = Vec::new();
    let mut fact = |text: String, style| {
        if !facts.is_empty() {
            facts.push((Cow::from(gap), Style::new()));
        }
        facts.push((Cow::from(text), style));
    };
    fact(counted(state.calls, "call"), theme.title());
    let WithoutRecord { counted: counted_only, missed } = state.without_record;
    if counted_only > 0 {
        fact(format!("+{} counted", grouped(counted_only)), Style::new());
    }
    if let Some(missed) = missed {
        let told = match missed.known() {
            Known::Nothing => "?".to_owned(),
            Known::AtLeast(calls) => format!("\u{2265}{}", grouped(calls)),
            Known::About(calls) => format!("~{} {}", grouped(calls), missed.margin_of(calls)),
        };
        fact(format!("+{told} unseen"), theme.bad());
    }
    fact(format!("{}/s", grouped(rate.round() as u64)), Style::new());
    let lost = state.log.lost();
    if lost == 0 {
        fact("0 lost".to_owned(), theme.good());
    } else {
        let mut reasons: Vec<String> =
            state.log.losses().map(|(reason, count)| format!("{} {}", grouped(count), reason.name())).collect();
        if let [(reason, _)] = state.log.losses().collect::<Vec<_>>()[..] {
            reasons = vec![reason.name().to_owned()];
        }
        fact(format!("{} LOST ({})", grouped(lost), reasons.join(", ")), theme.bad());
    }
    if state.untimed > 0 {
        fact(format!("{} not timed", grouped(state.untimed)), Style::new());
    }
    if let Some(budget) = state.budget {
        let share = state.share.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}"));
        fact(format!("overhead {share} of {budget}"), Style::new());
    } else if let Some(overhead) = state.share.map(Overhead::percent) {
        fact(overhead.to_string(), if overhead.is_high() { theme.bad() } else { Style::new() });
    } else if let Some(overhead) = state.overhead.filter(|_| state.calls > 0) {
        // Nanoseconds of the program's time in each second.
        let cpus = overhead / state.calls as f64 * rate / 1e9;
        fact(format!("overhead ~{cpus:.2} CPU"), Style::new());
    }
    fact(counted(state.threads_seen(), "thread"), Style::new());
    if let Some(size) = app.size {
        fact(bytes(size), Style::new());
    }
    // What there is no room for is left out, not cut.
    let mut taken = 0;
    let fits = |(text, _): &HeaderPiece<'_>| {
        taken += width(text);
        taken <= usize::from(area.width)
    };
    canvas.put_all(area, facts.into_iter().take_while(fits));
}

/// The views.
pub fn draw_tabs(canvas: &mut Canvas<'_>, area: Rect, app: &App, titles: impl Iterator<Item = &'static str>) {
    if area.is_empty() {
        return;
    }
    let mut x = area.x;
    for (view, title) in titles.enumerate() {
        let label = format!(" {} {title} ", view + 1);
        let style = if view == app.view { app.theme.chosen() } else { Style::new() };
        x += canvas.put(x, area.y, area.right().saturating_sub(x), &label, style);
    }
}

/// Where in a stored trace the part that is shown lies.
pub fn draw_slider(canvas: &mut Canvas<'_>, area: Rect, app: &App) {
    let Some(stored) = app.stored.as_ref().filter(|_| area.height > 0) else { return };
    let (whole, wanted) = (stored.whole, stored.wanted);
    let since = |time: rtrace_model::Timestamp| short_ns(time.since(whole.from));
    let label = format!("{} to {} of {}", since(wanted.from), since(wanted.to), short_ns(whole.length()));
    let track = area.width.saturating_sub(u16::try_from(label.len()).unwrap_or(0) + 2);
    let place = |time: rtrace_model::Timestamp| {
        (time.since(whole.from) as f64 / whole.length().max(1) as f64 * f64::from(track)) as u16
    };
    let (from, to) = (place(wanted.from), place(wanted.to));
    let glyphs = app.theme.glyphs;
    for cell in 0..track {
        let inside = cell >= from && (cell < to || cell == from);
        let (glyph, style) =
            if inside { (glyphs.shades[3], app.theme.accent()) } else { (glyphs.line, app.theme.dim()) };
        canvas.put(area.x + cell, area.y, 1, glyph, style);
    }
    canvas.put_aligned(area, &label, Style::new(), Align::Right);
}

/// The filter while it is typed, what was done last, or the keys of the view.
pub fn draw_foot(canvas: &mut Canvas<'_>, area: Rect, app: &App, keys: &[Help]) {
    let theme = app.theme;
    if app.typing {
        canvas.put_all(
            area,
            [
                (Cow::from("filter: "), theme.title()),
                (Cow::from(app.filter.as_str()), Style::new()),
                (Cow::from(" "), Style::new().add_modifier(Modifier::REVERSED)),
                (Cow::from("  Enter keep  Esc clear"), theme.dim()),
            ],
        );
        return;
    }
    if app.asks {
        canvas.put(area.x, area.y, area.width, &question::hints(&app.fates), theme.accent());
        return;
    }
    if let Some(message) = &app.message {
        canvas.put(area.x, area.y, area.width, message, theme.accent());
        return;
    }
    let serves = |help: &&Help| help.serves && !help.keys.hint.is_empty();
    let mut notes = String::new();
    if !app.filter.is_empty() {
        notes.push_str(&format!("filter: {}  ", app.filter));
    }
    let mut x = area.x + canvas.put(area.x, area.y, area.width, &notes, theme.accent());
    let mut hints: Vec<&Help> = keys.iter().filter(serves).collect();
    // The way out, the way to all others, then what only this view has.
    hints[2..].sort_by_key(|help| help.place.is_empty());
    for Help { keys, .. } in hints {
        let key = keys.names.split(' ').next().unwrap_or_default();
        let hint = [(Cow::from(key), theme.title()), (Cow::from(format!(" {}", keys.hint)), theme.dim())];
        let needed = u16::try_from(key.len() + 1 + keys.hint.len()).unwrap_or(u16::MAX);
        if needed > area.right().saturating_sub(x) {
            break;
        }
        x = canvas.put_all(Rect { x, width: needed, ..area }, hint) + 2;
    }
}
