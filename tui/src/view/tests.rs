//! Screens of every view, on a terminal in memory and with a clock that stands still.
#![allow(clippy::unwrap_used, reason = "tests")]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use rtrace_model::{
    Batch, Call, Ending, Event, EventKind, LocationId, Loss, LossReason, RegionId, Summary, Timestamp, Untimed,
    UntimedReason,
};

mod counters;
mod own;

use super::*;
use crate::app::{Fate, Outside};
use crate::dashboard::Dashboard;
use crate::live::{Range, Stored};
use crate::state::tests::{call, cost, library, location, path, region, untimed};
use crate::state::{Span, State};
use crate::testing;
use crate::theme::Theme;

const MS: u64 = 1_000_000;

fn event(time: u64, kind: EventKind) -> Event {
    Event { time: Timestamp(time * MS), pid: None, tid: None, kind }
}

/// Two threads for 10 s: `main` is in `fftw_plan_dft` since 2 s, `worker` has called `fftw_execute`.
fn state() -> State {
    let mut state = State::new(Span::Live, false);
    state.calibrate(&[cost()]);
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
    state.add_event(&event(0, refused));
    state.add_event(&event(0, EventKind::Armed));
    let mut calls = Vec::new();
    for number in 0..99 {
        let (start, id) = (number * 100, 2 * number + 1);
        let end = start + 10 + number % 7;
        calls.push(call(id + 1, id, 1, (start + 1, end - 2), 0));
        calls.push(call(id, 0, 0, (start, end), end - start - 3));
    }
    calls.push(untimed(199, 0, 3, 9_900));
    state.add(&Batch::from(calls));
    let running = Call { location: LocationId(2), ending: Ending::Open, ..call(1, 0, 2, (8_000, 10_000), 0) };
    state.running(Timestamp(10_000 * MS), &[running]);
    state
}

fn theme(variables: &'static [(&str, &str)]) -> Theme {
    Theme::of_environment(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
}

fn dashboard(state: &State) -> Dashboard {
    let mut dashboard = Dashboard::new("fft_demo (4711)", theme(&[("LANG", "C.UTF-8")]));
    dashboard.arrange(state);
    dashboard
}

fn press(dashboard: &mut Dashboard, state: &State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            key => KeyCode::Char(key),
        };
        assert_eq!(dashboard.press(KeyEvent::from(code), state), Outside::Continue, "{key:?}");
    }
}

fn terminal(dashboard: &mut Dashboard, state: &State, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| dashboard.draw(frame, state)).unwrap();
    terminal
}

fn screen(dashboard: &mut Dashboard, state: &State, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(dashboard, state, width, height);
    testing::screen(terminal.backend().buffer()).lines().map(str::to_owned).collect()
}

/// The screen of a view in 80 columns, without what is around it.
fn view(keys: &str, height: u16) -> Vec<String> {
    let state = state();
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, keys);
    let lines = screen(&mut dashboard, &state, 80, height);
    lines[if height < 16 { 3 } else { 4 }..lines.len() - 1].to_vec()
}

#[test]
fn the_functions() {
    let state = state();
    let mut dashboard = dashboard(&state);
    let expected = [
        " rtrace  fft_demo (4711)                                    recording  00:00:10",
        " 199 calls  19/s  0 lost  1 not timed  overhead ~0.00 CPU  2 threads",
        "  1 functions  2 tree  3 threads  4 timeline  5 detail  6 events",
        "      calls    calls/s  exclusive ms▼        share %  function",
        "         99          9         987.00  █████▍   76.9  fftw_dft_solve",
        "         99          9         297.00  █▋       23.1  fftw_execute",
        "          1          1              -              -  evil\\x1b[31m",
        "",
        " q quit  ? help  s sort  b by  Tab view  Enter open  / filter  Space pause",
    ];
    assert_eq!(screen(&mut dashboard, &state, 80, 9), expected);
    let expected = [
        "      calls    calls/s  calls over time    inclusive s  exclusive ms▼        share %        mean           p99         max  function",
        "         99          9              ▆█▆           0.99         987.00  █████▍   76.9     9.97 ms       13.0 ms     13.0 ms  fftw_dft_solve",
        "         99          9              ▆█▆           1.28         297.00  █▋       23.1     13.0 ms       16.0 ms     16.0 ms  fftw_execute",
        "          1          1                █              -              -              -           -             -           -  evil\\x1b[31m",
        "",
    ];
    assert_eq!(screen(&mut dashboard, &state, 150, 8)[2..7], expected);
}

#[test]
fn the_tree() {
    assert_eq!(
        view("2", 9),
        [
            "  inclusive s        share %  exclusive ms  call path, all threads (● hot)",
            "         1.28  ███████ 100.0        297.00  ▾ fftw_execute ●",
            "         0.99  █████▍   76.9        987.00      fftw_dft_solve ●",
            "            -              -             -    evil\\x1b[31m",
            "            0            0.0             0    fftw_plan_dft",
        ]
    );
    assert_eq!(
        view("2h", 9)[..3],
        [
            "  inclusive s        share %  exclusive ms  call path, all threads (● hot)",
            "         1.28  ███████ 100.0        297.00  ▸ fftw_execute ●",
            "            -              -             -    evil\\x1b[31m",
        ]
    );
    assert_eq!(
        view("2t", 9)[..3],
        [
            "  inclusive s        share %  exclusive ms  call path on thread 4711 worker",
            "         1.28  ███████ 100.0        297.00  ▾ fftw_execute ●",
            "         0.99  █████▍   76.9        987.00      fftw_dft_solve ●",
        ]
    );
}

#[test]
fn the_threads() {
    assert_eq!(
        view("3", 9),
        [
            "     tid  thread                calls     in calls %      for  in right now",
            "    4711  worker                  199  ▉        12.8           no traced call",
            "    4712  main                      0  █▍       20.0    2.0 s  fftw_plan_dft",
            "",
            "",
        ]
    );
}

#[test]
fn the_timeline() {
    assert_eq!(
        view("4", 10),
        [
            " last 1.0 s        |-1 s                         |-500 ms                   now",
            " 4711 worker       █     ▅     ▆     ▆     ▇     ▇     █     █     ▅     ▁",
            "                   ▇     ▄     ▄     ▅     ▅     ▆     ▆     ▇     ▄",
            "",
            " 4712 main         ▏fftw_plan_dft",
            "",
        ]
    );
    assert_eq!(
        view("4+++", 9)[..4],
        [
            " last 125 ms                   |-100 ms                |-50 ms              now",
            " 4711 worker                   ▁",
            "",
            " 4712 main         ▏fftw_plan_dft",
        ]
    );
}

#[test]
fn one_function_with_its_values() {
    use rtrace_model::{Definition, ValueBatch, ValueColumn, ValueType, Values};
    let mut state = state();
    let (value_type, unit, role, source) = (ValueType::Integer, None, None, String::new());
    let column = |position, name: &str, at_exit| ValueColumn {
        region: RegionId(0),
        position,
        name: name.to_owned(),
        value_type,
        c_type: "int".to_owned(),
        unit: unit.clone(),
        role: role.clone(),
        at_exit,
        source: source.clone(),
    };
    for column in [column(0, "n", false), column(1, "result", true)] {
        state.define(&Definition::ValueColumn(column));
    }
    let calls: Vec<_> = (0..99).map(|number| (LocationId(1), 2 * number + 1)).collect();
    let sizes = Values::Integer((0..99).map(|number| Some(if number < 90 { 64 } else { 1_000 })).collect());
    let results = Values::Integer((0..99).map(|number| (number > 10).then_some(0)).collect());
    state.add_values(&[ValueBatch { region: RegionId(0), calls, columns: vec![sizes, results] }]);
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "j\n");
    let lines = screen(&mut dashboard, &state, 80, 24);
    assert_eq!(
        lines[7..10],
        [
            " value   last  most frequent          distribution",
            " n       1000  64 90.9 %  1000 9.1 %  64 █  ▂ 1023",
            " result  0     0 88.9 %  - 11.1 %     0 █ 0",
        ]
    );
    assert!(lines.iter().any(|line| line.ends_with("fftw_execute(n=64) = -")), "{lines:#?}");
}

#[test]
fn one_function() {
    assert_eq!(
        view("j\n", 18),
        [
            " fftw_execute  libfftw3.so.3  exit: return-site",
            " calls 99        calls/s 9      inclusive 1.28 s   exclusive 297.00 ms",
            " mean 12.97 ms   p50 13.00 ms   p99 16.00 ms       max 16.00 ms",
            " durations in the last minute",
            "   10 ms                                      ░░░░░░░░         99 ████████████",
            "         -1 min                 -30 s               now",
            "    inclusive  callers                   inclusive ms  callees",
            " none is traced                                987.00  fftw_dft_solve",
            "",
            "",
            "      took ms   own %         at  slowest calls",
            "        16.00    18.8     600 ms  thread 4711 worker",
            "        16.00    18.8      1.3 s  thread 4711 worker",
        ]
    );
}

#[test]
fn a_slow_call_leads_to_its_place_in_the_timeline_and_back() {
    let state = state();
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "j\nll");
    assert_eq!((dashboard.app.focus, dashboard.app.view), (Some(RegionId(0)), 4));
    press(&mut dashboard, &state, "\n");
    let lines = screen(&mut dashboard, &state, 80, 14);
    let expected = [
        " 20 ms                   |600 ms        |605 ms        |610 ms        |615 ms",
        " 4711 worker             ▏fftw_execute                                   ▁",
        "                            ▏fftw_dft_solve                        ▁",
        "",
    ];
    assert_eq!(lines[3..7], expected, "{lines:?}");
    assert!(lines.contains(&" marked: fftw_execute for 16.00 ms, from 600 ms".to_owned()), "{lines:?}");
    let terminal = terminal(&mut dashboard, &state, 80, 14);
    let is_marked = |cell: &&ratatui::buffer::Cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED);
    let row = &terminal.backend().buffer().content()[4 * 80..][19..80];
    assert_eq!(row.iter().filter(is_marked).count(), 48, "16 of 20 ms");
    dashboard.press(KeyEvent::from(KeyCode::Esc), &state);
    assert_eq!((dashboard.app.view, dashboard.app.call), (4, None));
    dashboard.press(KeyEvent::from(KeyCode::Esc), &state);
    assert_eq!(dashboard.app.view, 0);
}

#[test]
fn callers_and_callees_lead_on_and_back() {
    let state = state();
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "j\nl\n");
    assert_eq!(dashboard.app.focus, Some(RegionId(1)), "the callee");
    press(&mut dashboard, &state, "h\n");
    assert_eq!(dashboard.app.focus, Some(RegionId(0)), "its caller");
    for focus in [1, 0] {
        dashboard.press(KeyEvent::from(KeyCode::Esc), &state);
        assert_eq!((dashboard.app.focus, dashboard.app.view), (Some(RegionId(focus)), 4));
    }
    press(&mut dashboard, &state, "n");
    assert_eq!(dashboard.app.focus, Some(RegionId(3)), "the next one of the first view");
}

#[test]
fn deep_calls_are_reached_line_by_line() {
    let mut state = State::new(Span::Live, false);
    state.define(&region(0, "deep"));
    state.define(&location(1, "main"));
    state.add_event(&event(0, EventKind::Armed));
    let nested = |depth: u64| Call { depth: depth as u32, ..call(depth + 1, depth, 0, (0, 1_000 - depth), 0) };
    state.add(&Batch::from((0..40).rev().map(nested).collect::<Vec<_>>()));
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "4");
    let lines = |dashboard: &mut Dashboard| screen(dashboard, &state, 80, 24);
    let first = lines(&mut dashboard);
    assert!(first[6].starts_with(" depth 1-16/40") && first.join(" ").contains("J: deeper calls"), "{first:?}");
    press(&mut dashboard, &state, "JJ");
    assert!(lines(&mut dashboard)[6].starts_with(" depth 3-18/40"));
    press(&mut dashboard, &state, &"J".repeat(99));
    assert!(lines(&mut dashboard)[6].starts_with(" depth 25-40/40"));
    press(&mut dashboard, &state, "K");
    assert!(lines(&mut dashboard)[6].starts_with(" depth 24-39/40"), "it does not count what leads nowhere");
}

#[test]
fn the_events() {
    assert_eq!(
        view("6", 9),
        [
            "        after      pid  event         what",
            "         0 ns           armed         recording begins",
            "         0 ns           refused       fftw_tiny is not probed: too short",
            "",
            "",
        ]
    );
}

#[test]
fn the_help_is_made_of_the_tables_of_keys() {
    let dashboard = dashboard(&state());
    let does =
        |view: usize| dashboard.panels[view].keys().into_iter().map(|keys| keys.does).filter(|does| !does.is_empty());
    let common = || crate::key::BINDINGS.iter().map(|binding| binding.keys.does).filter(|does| !does.is_empty());
    let all = || 0..dashboard.panels.len();
    let lines = view("?", 40).join("\n");
    for does in common().chain(all().flat_map(does)) {
        assert!(lines.contains(does), "{does}");
    }
    for (keys, shown) in [("?", 0), ("2?", 1), ("4?", 3), ("6?", 5)] {
        let lines = view(keys, 24).join("\n");
        assert!(common().all(|does| lines.contains(does)), "{lines}");
        for view in all() {
            assert!(does(view).all(|does| lines.contains(does) == (view == shown)), "{view} {lines}");
        }
    }
}

#[test]
fn what_is_chosen_is_told_in_full_below() {
    let below = |keys| view(keys, 24)[17..].to_vec();
    assert_eq!(below("3j"), [" thread 4712 main of process 4711, 0 calls: in fftw_plan_dft", ""]);
    assert_eq!(below("6"), [" recording begins", ""]);
}

#[test]
fn an_empty_view_says_why() {
    let mut state = State::new(Span::Live, false);
    for (armed, functions) in [(false, "probes are being placed"), (true, "no call has ended yet; press 3")] {
        if armed {
            state.add_event(&event(0, EventKind::Armed));
        }
        let nobody = "no thread has called a traced function yet";
        for (keys, said) in [("1", functions), ("2", functions), ("3", nobody), ("4", nobody)] {
            let mut dashboard = dashboard(&state);
            press(&mut dashboard, &state, keys);
            let lines = screen(&mut dashboard, &state, 80, 24).join("\n");
            assert!(lines.contains(said), "{keys}: {lines}");
            press(&mut dashboard, &state, "/x");
            let lines = screen(&mut dashboard, &state, 80, 24).join("\n");
            assert!(lines.contains("nothing passes the filter; Esc clears it"), "{keys}: {lines}");
        }
    }
}

#[test]
fn standing_still_changes_nothing_on_the_screen() {
    let state = state();
    let frozen = state.snapshot();
    let mut dashboard = dashboard(&state);
    for view in 0..dashboard.panels.len() {
        press(&mut dashboard, &state, &(view + 1).to_string());
        let live = screen(&mut dashboard, &state, 200, 40);
        dashboard.arrange(&frozen);
        assert_eq!(screen(&mut dashboard, &frozen, 200, 40), live, "{}", dashboard.panels[view].title());
    }
}

#[test]
fn a_terminal_of_twenty_by_five_shows_what_it_can() {
    let state = state();
    let mut dashboard = dashboard(&state);
    assert_eq!(
        screen(&mut dashboard, &state, 20, 5),
        [
            " recording  00:00:10",
            "     calls  function",
            "        99  ff…solve",
            "        99  ff…ecute",
            "q quit  ? help",
        ]
    );
    press(&mut dashboard, &state, "j\n");
    assert_eq!(
        screen(&mut dashboard, &state, 20, 5),
        [" recording  00:00:10", "fftw_execute  libff…", "calls 99", "calls/s 9", "q quit  ? help"]
    );
    for (width, height) in [(1, 1), (3, 2), (10, 3), (20, 6), (30, 9), (300, 80)] {
        for view in 0..dashboard.panels.len() {
            dashboard.app.view = view;
            dashboard.arrange(&state);
            screen(&mut dashboard, &state, width, height);
        }
    }
}

#[test]
fn without_colours_and_glyphs_all_is_said_in_ascii() {
    let state = state();
    let mut dashboard = Dashboard::new("fft_demo (4711)", theme(&[("NO_COLOR", "1"), ("LANG", "C")]));
    for view in 0..dashboard.panels.len() {
        dashboard.app.view = view;
        dashboard.arrange(&state);
        let terminal = terminal(&mut dashboard, &state, 120, 30);
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().all(|cell| cell.symbol().is_ascii()), "{}", dashboard.panels[view].title());
        assert!(
            cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset),
            "{}",
            dashboard.panels[view].title()
        );
    }
    press(&mut dashboard, &state, "4");
    assert_eq!(
        screen(&mut dashboard, &state, 80, 10)[7],
        " 4712 main         [fftw_plan_dft---------------------------------------------]"
    );
}

#[test]
fn losses_stand_out_and_name_their_reason() {
    let mut state = state();
    let loss = Loss { reason: LossReason::RingFull, region: Some(RegionId(0)), count: 12 };
    state.add_event(&event(5_000, EventKind::Loss(loss)));
    let mut dashboard = dashboard(&state);
    let terminal = terminal(&mut dashboard, &state, 80, 9);
    let lines = testing::screen(terminal.backend().buffer());
    assert!(lines.contains("12 LOST (ring full)"), "{lines}");
    let red = terminal.backend().buffer().content().iter().filter(|cell| cell.fg == Color::LightRed).count();
    assert_eq!(red, "12 LOST (ring full)".len());
    press(&mut dashboard, &state, "6");
    assert!(screen(&mut dashboard, &state, 80, 9)[4].contains("12 lost of fftw_execute: ring full"));
    let loss = Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 3_000 };
    state.add_event(&event(5_001, EventKind::Loss(loss)));
    dashboard.arrange(&state);
    let lines = screen(&mut dashboard, &state, 80, 24);
    assert!(lines[5].contains("3,012 lost: ring full; 3,000 of fftw_dft"), "{lines:?}");
    assert!(lines[6].contains("recording begins"), "told together, so one row: {lines:?}");
    let below = [
        " 3,012 lost: ring full; 3,000 of fftw_dft_solve, 12 of fftw_execute. More room:",
        " --buffer 64M; fewer records: --func, --mode profile or --budget 5%",
    ];
    assert_eq!(lines[21..23], below);
    state.add_event(&event(9_000, EventKind::Loss(Loss { reason: LossReason::TooDeep, count: 1, ..loss })));
    dashboard.arrange(&state);
    let lines = screen(&mut dashboard, &state, 80, 24);
    assert!(lines[1].contains("3,013 LOST (3,012 ring full, 1 too deep)"), "{lines:?}");
    assert!(lines[5].contains("1 lost of fftw_dft_solve: too deep"), "another reason is another row: {lines:?}");
}

#[test]
fn calls_that_were_not_timed_are_told_with_their_reason() {
    let mut state = state();
    let not_yet = |region, count| {
        EventKind::Untimed(Untimed { reason: UntimedReason::NotYetPlaced, region: Some(RegionId(region)), count })
    };
    state.add_event(&event(5_000, not_yet(3, 1)));
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "6");
    let told = &screen(&mut dashboard, &state, 100, 9)[4];
    assert!(
        told.contains("untimed") && told.ends_with("1 not timed of evil\\x1b[31m: return site not yet placed"),
        "{told}"
    );
    state.add_event(&event(5_001, not_yet(0, 1_200)));
    dashboard.arrange(&state);
    let told = &screen(&mut dashboard, &state, 140, 24)[5];
    let expected = "1,201 not timed: return site not yet placed; 1,200 of fftw_execute, 1 of evil\\x1b[31m";
    assert!(told.ends_with(expected), "told together, so one row: {told}");
    let loss = Loss { reason: LossReason::RingFull, region: Some(RegionId(0)), count: 12 };
    state.add_event(&event(5_002, EventKind::Loss(loss)));
    dashboard.arrange(&state);
    assert!(screen(&mut dashboard, &state, 100, 24)[5].contains("12 lost of fftw_execute"), "a loss is another row");

    dashboard.app.focus = Some(RegionId(3));
    press(&mut dashboard, &state, "5");
    let lines = screen(&mut dashboard, &state, 100, 20);
    assert!(lines[4].ends_with("1 call not timed"), "{lines:?}");
    assert!(lines[5].contains("inclusive -") && lines[5].contains("exclusive -"), "{lines:?}");
}

#[test]
fn typing_filters_at_once_and_escape_clears() {
    let state = state();
    let mut dashboard = dashboard(&state);
    press(&mut dashboard, &state, "/SOLVE");
    let lines = screen(&mut dashboard, &state, 80, 9);
    assert!(lines[4].ends_with("fftw_dft_solve") && lines[5].is_empty(), "{lines:?}");
    assert_eq!(lines[8], " filter: SOLVE   Enter keep  Esc clear");
    press(&mut dashboard, &state, "\n2");
    let lines = screen(&mut dashboard, &state, 80, 9);
    assert!(lines[8].starts_with(" filter: SOLVE  q quit"), "{lines:?}");
    assert!(lines[5].contains("fftw_dft_solve") && lines[6].is_empty(), "a caller stays above it: {lines:?}");
    dashboard.press(KeyEvent::from(KeyCode::Esc), &state);
    assert_eq!(
        screen(&mut dashboard, &state, 80, 24)
            .iter()
            .filter(|line| line.contains(" fftw_") || line.contains("evil"))
            .count(),
        4
    );
}

#[test]
fn sorting() {
    let state = state();
    let mut dashboard = dashboard(&state);
    let first = |dashboard: &Dashboard| state.function(dashboard.app.functions.rows()[0]).unwrap().name.to_string();
    assert_eq!(first(&dashboard), "fftw_dft_solve");
    press(&mut dashboard, &state, "r");
    assert_eq!(first(&dashboard), "evil\u{1b}[31m");
    press(&mut dashboard, &state, "rss");
    assert_eq!(first(&dashboard), "fftw_execute");
}

#[test]
fn of_functions_of_equal_rank_those_with_most_calls_come_first() {
    let mut state = State::new(Span::Live, false);
    (0..3).for_each(|id| state.define(&region(id, &format!("f{id}"))));
    let unseen = |id, region| untimed(id, 0, region, 1);
    state.add(&Batch::from(vec![unseen(1, 0), unseen(2, 2), unseen(3, 1), unseen(4, 2), unseen(5, 1), unseen(6, 2)]));
    let dashboard = dashboard(&state);
    assert_eq!(dashboard.app.functions.rows(), [RegionId(2), RegionId(1), RegionId(0)]);
}

#[test]
fn a_stored_trace_has_a_slider() {
    let mut state = state();
    state.finish(&Summary::default());
    let mut dashboard = dashboard(&state);
    let at = |ms: u64| Timestamp(ms * MS);
    let whole = Range { from: at(0), to: at(10_000) };
    dashboard.app.stored =
        Some(Stored { whole, wanted: Range { from: at(2_500), to: at(7_500) }, status: "stored".into() });
    let lines = screen(&mut dashboard, &state, 80, 12);
    assert_eq!(lines[10], " ─────────────███████████████████████████──────────────  2.5 s to 7.5 s of 10 s");
    let part = |from, to| Outside::Look(Range { from: at(from), to: at(to) });
    let press = |dashboard: &mut Dashboard, key| dashboard.press(KeyEvent::from(KeyCode::Char(key)), &state);
    assert_eq!(press(&mut dashboard, '<'), part(0, 5_000));
    assert_eq!(press(&mut dashboard, '>'), part(5_000, 10_000));
    assert_eq!(press(&mut dashboard, ']'), part(3_750, 6_250));
    assert_eq!(press(&mut dashboard, '['), part(0, 10_000));
    assert_eq!(press(&mut dashboard, '0'), part(0, 10_000));
}

#[test]
fn leaving_takes_q_or_control_c() {
    let state = state();
    let mut dashboard = dashboard(&state);
    assert_eq!(dashboard.press(KeyEvent::from(KeyCode::Char('q')), &state), Outside::End(Fate::Keep));
    press(&mut dashboard, &state, "/q");
    assert_eq!(dashboard.app.filter, "q");
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(dashboard.press(control, &state), Outside::End(Fate::Keep));
}

#[test]
fn leaving_a_recording_asks_what_becomes_of_it() {
    let mut state = state();
    let mut dashboard = dashboard(&state);
    dashboard.app.fates = Fate::ALL.to_vec();
    let key = |dashboard: &mut Dashboard, state: &State, code| dashboard.press(KeyEvent::from(code), state);
    for (code, fate) in [('s', Fate::Keep), ('q', Fate::Keep), ('l', Fate::GoOn), ('D', Fate::Delete)] {
        assert_eq!(key(&mut dashboard, &state, KeyCode::Char('q')), Outside::Continue);
        assert_eq!(key(&mut dashboard, &state, KeyCode::Char(code)), Outside::End(fate));
        dashboard.app.asks = false;
    }
    key(&mut dashboard, &state, KeyCode::Char('q'));
    for code in [KeyCode::Char('d'), KeyCode::Char('x'), KeyCode::Tab] {
        assert_eq!(key(&mut dashboard, &state, code), Outside::Continue, "no slip deletes anything");
    }
    let lines = screen(&mut dashboard, &state, 60, 12).join("\n");
    for said in ["What becomes of the recording?", "l    leave the view; the recording goes on", "D delete  Esc back"] {
        assert!(lines.contains(said), "{said}: {lines}");
    }
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(dashboard.press(control, &state), Outside::End(Fate::Keep), "at once");
    assert_eq!((key(&mut dashboard, &state, KeyCode::Esc), dashboard.app.asks), (Outside::Continue, false));
    state.finish(&Summary::default());
    assert_eq!(key(&mut dashboard, &state, KeyCode::Char('q')), Outside::End(Fate::Keep), "it has ended");
}

#[test]
fn rows_stand_for_libraries_processes_threads_and_ranks() {
    let state = state();
    let mut dashboard = dashboard(&state);
    let row = |dashboard: &mut Dashboard| {
        dashboard.arrange(&state);
        screen(dashboard, &state, 100, 12)[3..5].to_vec()
    };
    let expected = [
        ("b", "library", "          3  libfftw3.so.3"),
        ("b", "process", "          2  4711 worker"),
        ("b", "thread", "          1  4711 worker of process 4711"),
        ("b", "function", "fftw_dft_solve"),
    ];
    for (key, title, end) in expected {
        press(&mut dashboard, &state, key);
        let lines = row(&mut dashboard);
        assert!(lines[0].ends_with(title) && lines[1].ends_with(end), "{lines:?}");
        assert!(lines[1].contains("199") || title == "function", "{lines:?}");
    }
    dashboard.app.ranks = [(LocationId(1), 7)].into();
    press(&mut dashboard, &state, "bbbb");
    assert!(row(&mut dashboard)[1].contains("rank 7, process 4711"));
    press(&mut dashboard, &state, "\n");
    assert_eq!((dashboard.app.view, dashboard.app.filter.as_str()), (2, "4711"), "the threads of the process");
    dashboard.app.filter.clear();
    press(&mut dashboard, &state, "1bb\n");
    assert_eq!((dashboard.app.view, dashboard.app.filter.as_str()), (0, "libfftw3.so.3"), "the library's functions");
    dashboard.app.filter.clear();
    press(&mut dashboard, &state, "bbb\n");
    assert_eq!((dashboard.app.view, dashboard.app.tree_of), (1, Some(LocationId(1))), "the tree of the thread");
}

#[test]
fn folded_calls_show_all_but_single_ones() {
    let mut state = State::new(Span::Live, true);
    state.define(&library("/lib/libz.so.1"));
    state.define(&region(0, "solve"));
    state.define(&region(1, "step"));
    state.define(&location(1, "main"));
    state.add_event(&event(0, EventKind::Armed));
    state.running(Timestamp(990 * MS), &[]);
    state.fold(&[path(1, 0, 0, (90, 10), 360), path(2, 1, 1, (180, 3), 540)]);
    let running = Call { ending: Ending::Open, ..call(271, 0, 0, (900, 1_010), 0) };
    state.running(Timestamp(1_010 * MS), &[running]);
    let mut dashboard = dashboard(&state);
    let lines = screen(&mut dashboard, &state, 150, 8);
    assert_eq!(lines[1], " 270 calls   270/s   0 lost   1 thread");
    assert_eq!(
        lines[2..5],
        [
            "      calls    calls/s  calls over time   inclusive ms  exclusive ms▼        share %        mean           p99         max  function",
            "        180        180                █         540.00         540.00  ████▎    60.0     3.00 ms     <=3.00 ms     3.00 ms  step",
            "         90         90                █         900.00         360.00  ██▊      40.0     10.0 ms     <=10.0 ms     10.0 ms  solve",
        ]
    );
    for (key, said) in [
        ("2", "▾ solve ●"),
        ("3", "solve"),
        ("4", "calls are aggregated: shown are those"),
        ("5", "aggregated: no single calls recorded"),
    ] {
        press(&mut dashboard, &state, key);
        let lines = screen(&mut dashboard, &state, 120, 20).join("\n");
        assert!(lines.contains(said), "{lines}");
    }
    state.awaits_calls = true;
    for (key, said) in [("4", "single calls are still being read"), ("5", "still being read")] {
        press(&mut dashboard, &state, key);
        let lines = screen(&mut dashboard, &state, 120, 20).join("\n");
        assert!(lines.contains(said), "{lines}");
    }
}

#[test]
fn hostile_names_stay_in_their_places() {
    let long: String = ["std::vector<int>::f(", &"unsigned long, ".repeat(30), ")"].concat();
    let names = [&long, "漢字".repeat(60).as_str(), "\u{1b}[2J\u{202e}\r\n", ""].map(str::to_owned);
    let mut state = State::new(Span::Live, false);
    state.define(&library("/lib/\u{1b}[31m漢字漢字漢字漢字漢字漢字漢字漢字漢字.so"));
    names.iter().zip(0..).for_each(|(name, id)| state.define(&region(id, name)));
    state.define(&location(1, "\u{7}漢字\t"));
    state.add_event(&event(0, EventKind::Armed));
    let calls = (0..4).map(|id| Call { duration: Some(u64::MAX >> (8 * id)), ..call(id + 1, 0, id as u32, (0, 1), 0) });
    state.add(&Batch::from(calls.collect::<Vec<_>>()));
    state.running(Timestamp(900 * MS), &[]);
    let empty = State::new(Span::Live, false);
    for (width, height) in [(40, 12), (40, 24), (80, 24), (120, 40), (200, 60)] {
        for (state, keys) in [&state, &empty].into_iter().flat_map(|state| {
            ["1", "1b", "1bb", "1bbb", "2", "3", "4", "4J", "5", "5l", "5ll\n", "6", "?", "/漢"]
                .map(|keys| (state, keys))
        }) {
            let mut dashboard = dashboard(state);
            dashboard.app.fates = Fate::ALL.to_vec();
            press(&mut dashboard, state, keys);
            let terminal = terminal(&mut dashboard, state, width, height);
            let cells = terminal.backend().buffer().content();
            let is_safe = |symbol: &str| symbol.chars().all(|c| !c.is_control() && c != '\u{202e}');
            assert!(cells.iter().all(|cell| is_safe(cell.symbol())), "{keys} on {width} x {height}");
        }
    }
}
