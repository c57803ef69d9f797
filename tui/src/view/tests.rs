//! Screens of every view, on a terminal in memory and with a clock that stands still.
#![allow(clippy::unwrap_used, reason = "tests")]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use rtrace_model::{Call, Ending, Event, EventKind, LocationId, Loss, LossReason, RegionId, Summary, Timestamp};

use super::*;
use crate::app::Flow;
use crate::export;
use crate::live::{Range, Stored};
use crate::state::tests::{call, library, location, region};
use crate::state::{Costs, Span};
use crate::theme::Theme;

const MS: u64 = 1_000_000;

fn happened(time: u64, kind: EventKind) -> Event {
    Event { time: Timestamp(time * MS), pid: None, tid: None, kind }
}

/// Two threads for 10 s: `main` is in `fftw_plan_dft` since 2 s, `worker` has called `fftw_execute`.
fn state() -> State {
    let costs: Costs = (0..4).map(|id| (RegionId(id), 1_000)).collect();
    let mut state = State::new(Span::Live, Some(costs));
    let names = ["fftw_execute", "fftw_dft_solve", "fftw_plan_dft", "evil\u{1b}[31m"];
    state.define(&library("/usr/lib/libfftw3.so.3"));
    names.iter().zip(0..).for_each(|(name, id)| state.define(&region(id, name)));
    state.define(&location(1, "worker"));
    state.define(&location(2, "main"));
    let refused = EventKind::Refused {
        library: "/usr/lib/libfftw3.so.3".into(),
        region: "fftw_tiny".into(),
        reason: "too short".into(),
    };
    state.happened(&happened(0, refused));
    state.happened(&happened(0, EventKind::Armed));
    let mut calls = Vec::new();
    for number in 0..99 {
        let (start, id) = (number * 100, 2 * number + 1);
        let end = start + 10 + number % 7;
        calls.push(call(id + 1, id, 1, (start + 1, end - 2), 0));
        calls.push(call(id, 0, 0, (start, end), end - start - 3));
    }
    calls.push(Call { ending: Ending::Unseen, ..call(199, 0, 3, (9_900, 9_900), 0) });
    state.add(&calls);
    let running = Call { location: LocationId(2), ending: Ending::Open, ..call(1, 0, 2, (8_000, 10_000), 0) };
    state.running(Timestamp(10_000 * MS), &[running]);
    state
}

fn theme(variables: &'static [(&str, &str)]) -> Theme {
    Theme::of_environment(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
}

fn app(state: &State) -> App {
    let mut app = App::new("fft_demo (4711)", theme(&[("LANG", "C.UTF-8")]));
    app.arrange(state);
    app
}

fn press(app: &mut App, state: &State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        assert_eq!(app.press(KeyEvent::from(code), state), Flow::Continue, "{key:?}");
    }
}

fn terminal(app: &mut App, state: &State, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, state)).unwrap();
    terminal
}

fn screen(app: &mut App, state: &State, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(app, state, width, height);
    export::screen(terminal.backend().buffer()).lines().map(str::to_owned).collect()
}

/// The screen of a view in 80 columns, without what is around it.
fn view(keys: &str, height: u16) -> Vec<String> {
    let state = state();
    let mut app = app(&state);
    press(&mut app, &state, keys);
    let lines = screen(&mut app, &state, 80, height);
    lines[3..lines.len() - 1].to_vec()
}
#[test]
fn print_all() {
    for keys in ["", "2", "3", "4", "j\n", "6", "7", "?"] {
        println!("=== {keys:?}");
        for line in view(keys, 24) {
            println!("{line}");
        }
    }
    let state = state();
    let mut app = app(&state);
    for line in screen(&mut app, &state, 120, 12) {
        println!("{line}");
    }
    for line in screen(&mut app, &state, 200, 12) {
        println!("{line}");
    }
    for line in screen(&mut app, &state, 20, 5) {
        println!("{line}");
    }
}
