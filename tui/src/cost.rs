//! What the live view costs: a feed of a million calls a second from 1,000 threads and 13,000
//! functions, and a frame of each view on it. Run with
//! `cargo test --release -p rtrace-tui -- --ignored --nocapture cost`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rtrace_model::{Batch, Call, Ending, Item, LocationId, PathProfile, Reading, RegionId, Sink as _, Timestamp};

use crate::dashboard::Dashboard;
use crate::live::{Handle, LiveSink, live};
use crate::run::cpu_time;
use crate::state::State;
use crate::state::tests::{location, path, region};
use crate::theme::Theme;

const FUNCTIONS: u32 = 13_000;
const THREADS: u32 = 1_000;
/// Calls in 5 ms, the time between two readings of the rings.
const BATCH: u64 = 5_000;
const STEP: u64 = 5_000_000;

/// Calls of one reading: four threads ran in it, each with trees of a root, ten callees and ten
/// callees of each of these.
fn batch(number: u64, ids: &mut [u64]) -> (Vec<Call>, Vec<Call>) {
    let (mut calls, mut running) = (Vec::new(), Vec::new());
    for turn in 0..4 {
        let thread = (number * 4 + turn) as u32 % THREADS;
        let id = &mut ids[thread as usize];
        let mut time = number * STEP;
        let call = |id: u64, parent: u64, depth: u32, kind: u64, start: u64, end: u64, child: u64| Call {
            location: LocationId(thread + 1),
            // Few functions are called often, all sometimes.
            region: RegionId(((kind + u64::from(thread) * 13) % u64::from(FUNCTIONS)) as u32),
            id,
            parent,
            depth,
            start: Timestamp(start),
            duration: Some(end - start),
            child,
            ending: Ending::Returned,
            ..Call::default()
        };
        while (calls.len() as u64) < BATCH * (turn + 1) / 4 {
            *id += 1;
            let (root, begin) = (*id, time);
            for middle in 0..10 {
                *id += 1;
                let (caller, since) = (*id, time);
                for leaf in 0..10 {
                    *id += 1;
                    time += 300 + leaf * 7;
                    calls.push(call(*id, caller, 2, leaf + 2, time - 250, time, 0));
                }
                time += 100;
                calls.push(call(caller, root, 1, middle % 3 + 20, since, time, 2_500));
            }
            time += 50;
            calls.push(call(root, 0, 0, 1, begin, time, 30_000));
        }
        running.push(Call { ending: Ending::Open, ..call(*id + 1, 0, 0, 1, time, time + 1, 0) });
    }
    (calls, running)
}

/// A view of all functions and threads, of which nothing is known yet.
fn defined(is_folded: bool) -> (LiveSink, Handle) {
    let (mut sink, handle) = live("bench", is_folded, |_| Vec::new());
    for id in 0..FUNCTIONS {
        sink.define(&region(id, &format!("library_function_number_{id}"))).unwrap();
    }
    for id in 1..=THREADS {
        sink.define(&location(id, "worker")).unwrap();
    }
    (sink, handle)
}

/// Feeds calls with so many counters.
fn feed(sink: &mut LiveSink, metrics: usize) {
    let mut ids = vec![0; THREADS as usize];
    let (mut fed, mut fed_in) = (0, Duration::ZERO);
    for number in 0..1_000 {
        let (calls, running) = batch(number, &mut ids);
        fed += calls.len() as u64;
        let readings = vec![Reading { inclusive: 7, child: 1 }; metrics * calls.len()];
        let batch = Item::Calls(Batch::measured(calls, metrics, readings));
        let begun = cpu_time();
        sink.take(&batch).unwrap();
        if number % 50 == 49 {
            sink.take(&Item::Running(Timestamp((number + 1) * STEP), running)).unwrap();
        }
        fed_in += cpu_time() - begun;
    }
    println!("sink: {:.1} ns per call with {metrics} counters over {fed} calls", fed_in.as_nanos() as f64 / fed as f64);
}

/// Tells of folded calls: all paths that the kernel side has room for, again and again.
fn fold(sink: &mut LiveSink) {
    const PATHS: u32 = 60;
    const TIMES: u32 = 10;
    let mut told_in = Duration::ZERO;
    for time in 1..=TIMES {
        sink.take(&Item::Running(Timestamp(u64::from(time) * 1_000_000_000), Vec::new())).unwrap();
        let row = |thread, id| PathProfile {
            location: LocationId(thread),
            region: RegionId((id * 7 + thread * 13) % FUNCTIONS),
            ..path(id, id / 4, 0, (u64::from(time) * 20, 1), 1)
        };
        let rows = (1..=THREADS).flat_map(|thread| (1..=PATHS).map(move |id| row(thread, id)));
        let rows = Item::Profile(rows.collect());
        let begun = cpu_time();
        sink.take(&rows).unwrap();
        told_in += cpu_time() - begun;
    }
    println!("sink: {:?} for {} call paths, told once a second", told_in / TIMES, PATHS * THREADS);
}

/// Draws each view, and stands still once.
fn draw(handle: &Handle) {
    let theme = Theme::of_environment(|_| Some("C.UTF-8".to_owned()));
    let mut dashboard = Dashboard::new("bench", theme);
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    for key in ['1', '2', '3', '4', '5', '6'] {
        handle.look(|state| dashboard.press(KeyEvent::from(KeyCode::Char(key)), state));
        let begun = cpu_time();
        const TICKS: u32 = 20;
        for _ in 0..TICKS {
            handle.look(|state| dashboard.arrange(state));
            terminal.draw(|frame| handle.look(|state| dashboard.draw(frame, state))).unwrap();
        }
        let tick = (cpu_time() - begun) / TICKS;
        // Four ticks a second.
        let title = dashboard.panels[dashboard.app.view].title();
        println!("{title}: {tick:?} per tick, {:.2} % of a core", tick.as_secs_f64() * 400.0);
    }
    let begun = cpu_time();
    let state = handle.look(State::snapshot);
    println!("pause: {:?}", cpu_time() - begun);
    drop(state);
}

#[test]
#[ignore = "a measurement, for a release build on an idle machine"]
fn cost() {
    for metrics in [2, 0] {
        let (mut sink, handle) = defined(false);
        feed(&mut sink, metrics);
        if metrics == 0 {
            draw(&handle);
        }
    }
    println!("folded calls");
    let (mut sink, handle) = defined(true);
    fold(&mut sink);
    draw(&handle);
}
