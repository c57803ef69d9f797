//! Whole states fed with scripted calls.
#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_model::{Ending, ExitPolicy, HISTOGRAM_BUCKETS, Library, LossReason, PathId, histogram_bucket};

use super::*;
use crate::state::paths::{Label, PathIndex, ROOT};

const MS: u64 = 1_000_000;

pub fn region(id: u32, name: &str) -> Definition {
    Definition::Region(Region {
        id: RegionId(id),
        name: name.to_owned(),
        size: 64,
        exit: ExitPolicy::ReturnSite,
        ..Region::default()
    })
}

pub fn library(path: &str) -> Definition {
    Definition::Library(Library {
        id: LibraryId(0),
        path: path.to_owned(),
        apart: None,
        build_id: None,
        device: 0,
        inode: 0,
    })
}

pub fn location(id: u32, name: &str) -> Definition {
    Definition::Location(Location {
        id: LocationId(id),
        pid: 4711,
        tid: 4710 + id,
        start: Timestamp(0),
        end: None,
        name: name.to_owned(),
        calls_entered: None,
    })
}

/// What a call of [`region`] costs: a microsecond.
pub fn cost() -> CallCost {
    CallCost {
        single_stepped: false,
        written: false,
        exit: ExitPolicy::ReturnSite,
        inner: 400,
        whole: 1_000,
        spread: 50,
    }
}

/// A call on thread 1: id, parent, region, begin and end in milliseconds, time in callees.
pub fn call(id: u64, parent: u64, region: u32, (start, end): (u64, u64), child: u64) -> Call {
    Call {
        location: LocationId(1),
        region: RegionId(region),
        id,
        parent,
        depth: u32::from(parent > 0),
        start: Timestamp(start * MS),
        duration: Some((end - start) * MS),
        child: child * MS,
        ending: Ending::Returned,
        ..Call::default()
    }
}

/// A call on thread 1 that was not timed: id, parent, region, begin in milliseconds.
pub fn untimed(id: u64, parent: u64, region: u32, start: u64) -> Call {
    Call { duration: None, ending: Ending::Unseen, ..call(id, parent, region, (start, start), 0) }
}

/// A call path of thread 1: id, parent, region, calls of so many milliseconds each, time of its own.
pub fn path(id: u32, parent: u32, region: u32, (calls, each): (u64, u64), own: u64) -> PathProfile {
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    histogram[histogram_bucket(each * MS)] = calls;
    PathProfile {
        path: PathId(id),
        parent: (parent > 0).then_some(PathId(parent)),
        region: RegionId(region),
        location: LocationId(1),
        calls,
        timed: calls,
        inclusive: calls * each * MS,
        exclusive: own * MS,
        min: (calls > 0).then_some(each * MS),
        max: (calls > 0).then_some(each * MS),
        histogram,
        ..PathProfile::default()
    }
}

fn state() -> State {
    state_of(false)
}

fn state_of(is_folded: bool) -> State {
    let mut state = State::new(Span::Live, is_folded);
    state.begin(Timestamp(0));
    for definition in [library("/lib/libz.so.1"), region(0, "solve"), region(1, "step"), location(1, "main")] {
        state.define(&definition);
    }
    state
}

fn inclusive(state: &State, region: u32) -> u64 {
    state.function(RegionId(region)).unwrap().inclusive / MS
}

/// Paths as `caller/callee calls inclusive`, inclusive time in milliseconds.
fn paths(state: &State) -> Vec<String> {
    let (paths, figures) = (state.merged_paths(), state.merged_figures());
    let name = |label: Label| match label {
        Label::Region(region) => state.function(region).unwrap().name.to_string(),
        other => format!("{other:?}"),
    };
    let path = |mut node: PathIndex| {
        let mut names = Vec::new();
        while node != ROOT {
            names.push(name(paths.node(node).label));
            node = paths.node(node).parent;
        }
        names.reverse();
        names.join("/")
    };
    let mut lines: Vec<String> = (1..figures.len() as u32)
        .map(|node| {
            let of = figures[node as usize];
            format!("{} {} {}", path(node), of.calls, of.inclusive / MS)
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn the_overhead_is_what_calls_cost_where_that_is_known() {
    let mut unknown = state();
    let mut known = State::new(Span::Live, false);
    known.calibrate(&[cost()]);
    for state in [&mut unknown, &mut known] {
        state.define(&region(2, "late"));
        state.add(&vec![call(1, 0, 2, (0, 1), 0), call(2, 0, 2, (1, 2), 0)].into());
    }
    assert_eq!((unknown.overhead, known.overhead), (None, Some(2_000.0)));
}

#[test]
fn callees_find_their_callers_when_these_end() {
    let mut state = state();
    state.add(&Batch::from(vec![call(2, 1, 1, (10, 20), 0), call(4, 3, 0, (32, 38), 0), call(3, 1, 1, (30, 40), 6)]));
    state.add(&Batch::from(vec![call(1, 0, 0, (0, 50), 20), call(5, 0, 1, (60, 61), 0)]));
    assert_eq!(paths(&state), Vec::<String>::new());
    state.finish(&Summary::default());
    assert_eq!(paths(&state), ["solve 1 50", "solve/step 2 20", "solve/step/solve 1 6", "step 1 1"]);
    // Nested in itself, time counts once.
    assert_eq!((inclusive(&state, 0), inclusive(&state, 1)), (50, 21));
    assert_eq!(state.function(RegionId(0)).unwrap().exclusive / MS, 36);
    assert_eq!(state.thread(LocationId(1)).unwrap().traced / MS, 51);
}

#[test]
fn a_snapshot_of_what_runs_tells_callers_that_have_not_ended() {
    let mut state = state();
    let open = Call { ending: Ending::Open, ..call(1, 0, 0, (0, 100), 0) };
    state.add(&Batch::from(vec![call(2, 1, 1, (10, 20), 0), call(3, 1, 1, (95, 99), 0)]));
    state.running(Timestamp(100 * MS), &[open]);
    // What has just ended waits: an earlier call may be on its way.
    assert_eq!(paths(&state), ["solve 0 0", "solve/step 1 10"]);
    state.running(Timestamp(200 * MS), &[open]);
    assert_eq!(paths(&state), ["solve 0 0", "solve/step 2 14"]);
    state.add(&Batch::from(vec![call(1, 0, 0, (0, 300), 14)]));
    assert_eq!(state.thread(LocationId(1)).unwrap().running().count(), 0, "it has ended since");
    state.running(Timestamp(400 * MS), &[]);
    assert_eq!(paths(&state), ["solve 1 300", "solve/step 2 14"]);
    assert_eq!(state.thread(LocationId(1)).unwrap().pending(), 0);
}

#[test]
fn calls_around_a_move_to_another_cpu_may_change_places() {
    let mut state = state();
    state.add(&Batch::from(vec![call(1, 0, 0, (0, 50), 20), call(2, 1, 1, (10, 20), 0)]));
    state.running(Timestamp(500 * MS), &[]);
    assert_eq!(paths(&state), ["solve 1 50", "solve/step 1 10"]);
}

#[test]
fn a_caller_that_never_comes_is_lost_after_a_while() {
    let mut state = state();
    state.add(&Batch::from(vec![call(3, 2, 1, (10, 20), 0)]));
    state.running(Timestamp(500 * MS), &[]);
    assert_eq!(paths(&state), Vec::<String>::new());
    state.running(Timestamp(2_000 * MS), &[]);
    assert_eq!(paths(&state), ["LostCaller 0 10", "LostCaller/step 1 10"]);
    assert_eq!(inclusive(&state, 1), 10);
}

#[test]
fn endings_count_as_in_a_report() {
    let mut state = state();
    let unseen = untimed(1, 0, 0, 0);
    let unwound = Call { ending: Ending::Unwound, ..call(2, 0, 0, (1, 4), 0) };
    let open = Call { ending: Ending::Open, ..call(3, 0, 0, (5, 9), 0) };
    state.add(&Batch::from(vec![unseen, unwound, open]));
    state.finish(&Summary::default());
    let function = state.function(RegionId(0)).unwrap();
    assert_eq!((function.calls, function.untimed(), function.of_ending(Ending::Unwound)), (3, 1, 1));
    assert_eq!((function.inclusive / MS, function.exclusive / MS), (7, 7));
    assert_eq!((function.mean(), function.p99(), function.max), (Some(3 * MS), Some(3 * MS), Some(3 * MS)));
    assert_eq!((function.timed(), function.time(7), state.untimed), (1, Some(7), 1));
}

#[test]
fn a_function_of_which_no_call_was_timed_has_no_times() {
    let mut state = state();
    state.add(&Batch::from(vec![untimed(1, 0, 0, 5), untimed(2, 0, 0, 6)]));
    state.finish(&Summary::default());
    let function = state.function(RegionId(0)).unwrap();
    assert_eq!((function.calls, function.time(0), function.mean(), function.max), (2, None, None, None));
    assert!(function.slowest().is_empty());
    assert_eq!(function.history.calls(0), 2, "they count where they were entered");
    let figures = state.merged_figures()[1];
    assert_eq!((figures.calls, figures.untimed, figures.time(0)), (2, 2, None));
}

#[test]
fn an_untimed_call_is_the_caller_of_what_it_called() {
    let mut state = state();
    let within = [call(3, 2, 0, (20, 30), 4), call(4, 3, 1, (22, 26), 0)];
    let outer = call(1, 0, 1, (0, 100), 10);
    // It comes when what it called has ended.
    state.add(&Batch::from(vec![within[1], within[0], untimed(2, 1, 0, 10), outer]));
    state.finish(&Summary::default());
    assert_eq!(paths(&state), ["step 1 100", "step/solve 1 0", "step/solve/solve 1 10", "step/solve/solve/step 1 4"]);
    assert_eq!((inclusive(&state, 0), inclusive(&state, 1)), (10, 100), "the inner one's time is in no other's");
    assert_eq!(state.thread(LocationId(1)).unwrap().traced, 100 * MS);
    let mut state = self::state();
    let root = Call { child: 10 * MS, ..untimed(2, 0, 0, 10) };
    state.add(&Batch::from(vec![Call { parent: 2, ..within[0] }, root]));
    assert_eq!(state.thread(LocationId(1)).unwrap().traced, 10 * MS, "what a root called is traced time");
}

#[test]
fn rates_are_of_the_last_whole_second_and_at_the_end_of_all() {
    let mut state = state();
    let calls: Vec<Call> = (0..30).map(|id| call(id + 1, 0, 0, (id * 100, id * 100 + 1), 0)).collect();
    state.add(&Batch::from(calls.to_vec()));
    let rate = |state: &State| state.rate(state.calls, &state.history);
    assert_eq!(rate(&state), 10.0);
    state.running(Timestamp(5_000 * MS), &[]);
    assert_eq!(rate(&state), 0.0);
    state.finish(&Summary::default());
    assert_eq!(rate(&state), 6.0);
}

#[test]
fn threads_that_have_ended_make_room() {
    let mut state = state();
    for id in 1..=(MOST_THREADS as u32 + 10) {
        let Definition::Location(location) = location(id, "worker") else { unreachable!() };
        state.define(&Definition::Location(location.clone()));
        let mut calls = [call(1, 0, 0, (1, 2), 0)];
        calls[0].location = LocationId(id);
        state.add(&Batch::from(calls.to_vec()));
        state.define(&Definition::Location(Location { end: Some(Timestamp(3 * MS)), ..location }));
    }
    assert_eq!(state.threads().count(), MOST_THREADS);
    assert_eq!(state.threads_seen(), MOST_THREADS as u64 + 10);
    state.finish(&Summary::default());
    assert_eq!(paths(&state), [format!("solve {0} {0}", MOST_THREADS + 10)]);
}

#[test]
fn losses_add_up_until_the_summary_says_them_all() {
    let mut state = state();
    let loss = |count| Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count };
    for count in [3, 4] {
        state.add_event(&Event { time: Timestamp(0), pid: None, tid: None, kind: EventKind::Loss(loss(count)) });
    }
    assert_eq!((state.log.lost(), state.function(RegionId(1)).unwrap().lost), (7, 7));
    let losses = vec![Loss { reason: LossReason::TooDeep, region: None, count: 9 }];
    state.finish(&Summary { losses, ..Summary::default() });
    assert_eq!(state.log.losses().collect::<Vec<_>>(), [(LossReason::TooDeep, 9)]);
}

#[test]
fn what_is_not_defined_counts_in_the_total_only() {
    let mut state = State::new(Span::Live, false);
    state.add(&Batch::from(vec![call(1, 0, u32::MAX, (0, 1), 0)]));
    state.finish(&Summary::default());
    assert_eq!((state.calls, state.functions().count(), state.threads().count()), (1, 0, 0));
}

#[test]
fn folded_calls_replace_what_was_told_of_their_path() {
    let mut state = state_of(true);
    state.fold(&[path(7, 9, 1, (4, 1), 4), path(9, 0, 0, (1, 10), 6)]);
    state.fold(&[path(9, 0, 0, (3, 10), 18), path(12, 7, 0, (2, 0), 0)]);
    state.fold(&[]);
    assert_eq!(paths(&state), ["solve 3 30", "solve/step 4 4", "solve/step/solve 2 0"]);
    assert_eq!((state.calls, inclusive(&state, 0), inclusive(&state, 1)), (9, 30, 4));
    let solve = state.function(RegionId(0)).unwrap();
    assert_eq!((solve.calls, solve.exclusive / MS, solve.mean()), (5, 18, Some(6 * MS)));
    assert!(solve.has_bounds());
    assert_eq!((solve.p50(), solve.p99()), (Some(10 * MS), Some(10 * MS)), "no more than the longest");
    assert_eq!(state.function(RegionId(1)).unwrap().p50(), Some(MS));
    let thread = state.thread(LocationId(1)).unwrap();
    assert_eq!((thread.calls, thread.traced / MS), (9, 30));
}

#[test]
fn single_calls_beside_folded_ones_do_not_count_twice() {
    let mut state = state_of(true);
    state.add(&Batch::from(vec![call(1, 0, 0, (0, 10), 4), call(2, 0, 0, (20, 25), 0)]));
    assert_eq!((state.calls, state.function(RegionId(0)).unwrap().calls), (0, 0));
    state.fold(&[path(1, 0, 0, (3, 5), 11)]);
    state.finish(&Summary::default());
    let solve = state.function(RegionId(0)).unwrap();
    assert_eq!((state.calls, solve.calls, inclusive(&state, 0)), (3, 3, 15));
    assert_eq!(solve.slowest().iter().map(|slow| slow.call).collect::<Vec<_>>(), [1, 2]);
    let thread = state.thread(LocationId(1)).unwrap();
    assert_eq!((thread.pending(), thread.lanes.within(0, u64::MAX).count()), (0, 2));
}

#[test]
fn rates_of_folded_calls_are_of_the_second_before_they_are_told() {
    let mut state = state_of(true);
    for second in 1..=3 {
        // Rows come around the end of the second.
        state.running(Timestamp((second * 1_000 + 20 * second - 60) * MS), &[]);
        state.fold(&[path(1, 0, 0, (second * 100, 0), 0)]);
    }
    state.running(Timestamp(3_100 * MS), &[]);
    let slots: Vec<_> = state.history.slots().map(|slot| (slot.number, slot.calls)).collect();
    assert_eq!(slots, [(0, 100), (1, 100), (2, 100)]);
    assert_eq!(state.rate(state.calls, &state.history), 100.0);
    let step = state.function(RegionId(0)).unwrap();
    assert_eq!(state.rate(step.calls, &step.history), 100.0);
}

#[test]
fn rates_of_folded_calls_that_are_told_late_are_over_all_of_the_time() {
    let mut state = state_of(true);
    let mut told = |at: u64, calls: u64| {
        state.running(Timestamp(at * MS), &[]);
        state.fold(&[path(1, 0, 0, (calls, 0), 0)]);
        state.rate(state.calls, &state.history)
    };
    assert_eq!([told(1_010, 100), told(3_020, 300), told(4_010, 400)], [100.0, 100.0, 100.0]);
    state.running(Timestamp(5_900 * MS), &[]);
    assert_eq!(state.rate(state.calls, &state.history), 100.0, "the next ones are late");
    state.running(Timestamp(9_000 * MS), &[]);
    assert_eq!(state.rate(state.calls, &state.history), 0.0, "there are none");
}

#[test]
fn folded_calls_wait_for_their_callers_until_the_end() {
    let mut state = state_of(true);
    state.fold(&[path(2, 1, 1, (1, 3), 3), path(5, 6, 0, (1, 1), 1), path(6, 5, 1, (1, 1), 1)]);
    assert_eq!((state.calls, paths(&state)), (0, Vec::new()));
    state.fold(&[path(1, 0, 0, (1, 4), 1)]);
    assert_eq!(paths(&state), ["solve 1 4", "solve/step 1 3"]);
    state.finish(&Summary::default());
    assert_eq!(state.calls, 4);
    let lost = ["LostCaller 0 1", "LostCaller/step 1 1", "LostCaller/step/solve 1 1"];
    assert_eq!(paths(&state)[..3], lost, "what is below itself has lost its caller");
}
