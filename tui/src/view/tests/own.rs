//! Screens of functions whose times are mostly tracing.

use super::*;

#[test]
fn a_function_that_only_costs_its_probe_is_not_the_first() {
    let mut state = State::new(Span::Live, false);
    state.calibrate(&[cost()]);
    ["worker", "setter", "caller"].iter().zip(0..).for_each(|(name, id)| state.define(&region(id, name)));
    state.define(&location(1, "main"));
    state.add_event(&event(0, EventKind::Armed));
    let of = |id: u64, parent: u64, region: u32, start: u64, duration: u64, child: u64| Call {
        start: Timestamp(start),
        duration: Some(duration),
        child,
        ..call(id, parent, region, (0, 0), 0)
    };
    // Of each call of the setter 400 ns are tracing's, and 600 ns of its caller's time.
    let setters = (0..1_000).map(|number| of(number + 3, 2, 1, 500_000 + 1_000 * number, 450, 0));
    let around = of(2, 0, 2, 400_000, 1_200_000, 450_000);
    state
        .add(&Batch::from([of(1, 0, 0, 0, 300_400, 0)].into_iter().chain(setters).chain([around]).collect::<Vec<_>>()));
    state.running(Timestamp(60 * 1_000 * MS), &[]);
    let mut dashboard = dashboard(&state);
    let expected = [
        "      calls    calls/s  exclusive us▼        share %  function",
        "          1          0         300.40  ████▎    60.0  worker",
        "          1          0        !750.00  ██▏      29.9  caller",
        "      1,000          0        !450.00  ▊        10.0  setter",
    ];
    assert_eq!(screen(&mut dashboard, &state, 80, 9)[3..7], expected);
    press(&mut dashboard, &state, "2");
    let expected = [
        " inclusive ms        share %  exclusive us  call path, all threads (● hot)",
        "         0.30  ████▎    60.0        300.40    worker ●",
        "         1.20  ██▊      40.0        750.00  ▾ caller",
        "         0.45  ▊        10.0        450.00      setter",
    ];
    assert_eq!(screen(&mut dashboard, &state, 80, 9)[3..7], expected);
}

#[test]
fn functions_that_wait_stand_behind_those_that_work() {
    let mut state = State::new(Span::Live, false);
    ["pthread_cond_wait", "solve"].iter().zip(0..).for_each(|(name, id)| state.define(&region(id, name)));
    state.define(&location(1, "main"));
    state.add_event(&event(0, EventKind::Armed));
    state.add(&Batch::from(vec![call(1, 0, 0, (0, 900), 0), call(2, 0, 1, (900, 1_000), 0)]));
    state.running(Timestamp(60 * 1_000 * MS), &[]);
    let mut dashboard = dashboard(&state);
    let expected = [
        "      calls    calls/s  exclusive ms▼        share %  function",
        "          1          0         100.00  ███████ 100.0  solve",
        "          1          0         900.00      condition  pthread_cond_wait",
    ];
    assert_eq!(screen(&mut dashboard, &state, 80, 9)[3..6], expected);
}
