//! Screens of recordings with counters.

use rtrace_model::{Base, Count, Definition, Metric, MetricId, PathProfile, Reading, Scope};

use super::*;
use crate::state::counters::Derived;

fn metric(id: u32, name: &str, unit: &str, exponent: i32) -> Definition {
    let span = rtrace_model::Span::SinceStart;
    let (id, name, unit) = (MetricId(id), name.to_owned(), unit.to_owned());
    Definition::Metric(Metric { id, name, unit, base: Base::Decimal, exponent, scope: Scope::Call, span })
}

fn defined(is_folded: bool) -> State {
    let derive = |_: &[&str]| vec![Derived::new("CPUs used", |time, counts| Some(counts[1] as f64 / time as f64))];
    let mut state = State::new(Span::Live, is_folded).deriving(derive);
    for definition in [
        library("/lib/libz.so.1"),
        region(0, "solve"),
        region(1, "step"),
        location(1, "main"),
        metric(0, "page-faults", "#", 0),
        metric(1, "task-clock", "s", -9),
    ] {
        state.define(&definition);
    }
    state.add_event(&event(0, EventKind::Armed));
    state
}

/// `solve` calls `step`, which calls `solve`; half of all time is on a CPU, with a fault each 2 ms.
fn traced() -> State {
    let mut state = defined(false);
    let calls = vec![call(3, 2, 0, (30, 40), 0), call(2, 1, 1, (20, 60), 10), call(1, 0, 0, (0, 100), 40)];
    let part = |call: &Call, by| Reading { inclusive: call.duration.unwrap_or(0) / by, child: call.child / by };
    let readings = calls.iter().flat_map(|call| [part(call, 2 * MS), part(call, 2)]).collect();
    let batch = Batch::measured(calls, 2, readings);
    state.add(&batch);
    state.finish(&Summary::default());
    state
}

/// The same, folded.
fn folded() -> State {
    let mut state = defined(true);
    let counted = |path: PathProfile| {
        let count = |by| Count { inclusive: path.inclusive / by, exclusive: path.exclusive / by };
        PathProfile { counts: vec![count(2 * MS), count(2)], ..path }
    };
    let solve = counted(path(1, 0, 0, (1, 100), 60));
    // What was told before is not counted again.
    state.fold(&[counted(path(1, 0, 0, (1, 80), 50))]);
    state.fold(&[solve, counted(path(2, 1, 1, (1, 40), 30)), counted(path(3, 2, 0, (1, 10), 10))]);
    state.finish(&Summary::default());
    state
}

fn lines(state: &State, keys: &str, width: u16) -> Vec<String> {
    let mut dashboard = dashboard(state);
    press(&mut dashboard, state, keys);
    screen(&mut dashboard, state, width, 24)[4..].to_vec()
}

/// The columns of a line, which two cells or more set apart, without bars.
fn columns(line: &str) -> Vec<&str> {
    let columns = line.split("  ").map(|column| column.trim_matches(|c| "█▉▊▋▌▍▎▏▒ ".contains(c)));
    columns.filter(|column| !column.is_empty()).collect()
}

#[test]
fn functions_have_as_many_columns_as_there_is_room_for() {
    for state in [traced(), folded()] {
        let shown = lines(&state, "1", 120);
        let titles =
            ["calls", "calls/s", "exclusive ms▼", "share %", "page-faults", "task-clock ms", "CPUs used", "function"];
        assert_eq!(columns(&shown[0]), titles);
        assert_eq!(columns(&shown[1])[2..], ["70.00", "70.0", "50", "50.00", "0.500", "solve"]);
        assert_eq!(columns(&shown[2])[2..], ["30.00", "30.0", "20", "20.00", "0.500", "step"]);
        let wide = lines(&state, "1", 200);
        let counted = ["page-faults", "task-clock ms", "CPUs used", "page-faults excl", "task-clock excl ms"];
        let first = columns(&wide[0]).iter().position(|title| *title == counted[0]).unwrap();
        assert_eq!(columns(&wide[0])[first..first + 5], counted, "{wide:?}");
        assert!(wide[1].contains("50.00"), "{wide:?}");
        assert!(!lines(&state, "1", 80).join(" ").contains("page-faults"));
    }
}

#[test]
fn a_counter_gives_the_order_like_any_column() {
    let state = traced();
    let mut dashboard = dashboard(&state);
    terminal(&mut dashboard, &state, 120, 12);
    let names =
        |dashboard: &Dashboard| dashboard.app.functions.rows().iter().map(|region| region.0).collect::<Vec<_>>();
    let shown = dashboard.app.columns.clone();
    while dashboard.app.order != functions::COLUMNS.len() {
        press(&mut dashboard, &state, "s");
    }
    assert_eq!(names(&dashboard), [0, 1]);
    assert!(screen(&mut dashboard, &state, 120, 12)[3].contains("page-faults▼"));
    press(&mut dashboard, &state, "r");
    assert_eq!(names(&dashboard), [1, 0]);
    let went: Vec<usize> = shown
        .iter()
        .map(|_| {
            press(&mut dashboard, &state, "s");
            dashboard.app.order
        })
        .collect();
    let place = shown.iter().position(|&order| order == functions::COLUMNS.len()).unwrap();
    assert_eq!(went, [&shown[place + 1..], &shown[..=place]].concat(), "column by column over the screen, and round");
    assert!(shown.len() < functions::COLUMNS.len() + state.counters.figures().len(), "{shown:?}");
}

#[test]
fn paths_of_all_threads_and_of_one() {
    for (state, keys) in [(traced(), "2"), (traced(), "2t"), (folded(), "2"), (folded(), "2t")] {
        let shown = lines(&state, keys, 120);
        let first = columns(&shown[0]).iter().position(|title| *title == "page-faults").unwrap();
        assert_eq!(columns(&shown[0])[first..first + 3], ["page-faults", "task-clock ms", "CPUs used"], "{shown:?}");
        assert_eq!(columns(&shown[1])[first..first + 3], ["50", "50.00", "0.500"], "{shown:?}");
        assert_eq!(columns(&shown[2])[first..first + 3], ["20", "20.00", "0.500"], "{shown:?}");
        assert!(!lines(&state, keys, 80).join(" ").contains("page-faults"));
    }
}

#[test]
fn one_function_has_a_line_of_them() {
    for state in [traced(), folded()] {
        let shown = lines(&state, "1\n", 120);
        let shown = shown.join("\n");
        for fact in ["off CPU 50.0 % of exclusive", "page-faults 50", "task-clock 50.00 ms", "CPUs used 0.500"] {
            assert!(shown.contains(fact), "{fact}: {shown}");
        }
        assert!(!lines(&state, "1\n", 80).join(" ").contains("page-faults"));
    }
}
