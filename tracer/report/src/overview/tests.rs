#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_model::{ClockAnchor, Header, Sink as _, Summary};

use super::*;
use crate::{TraceSet, TraceWriter};

/// Calls of two threads whose durations go up and down.
fn call(id: u64) -> Call {
    Call {
        location: LocationId(1 + id as u32 % 2),
        region: RegionId(id as u32 % 3),
        id,
        start: Timestamp(1_000 + id * 10_000),
        duration: Some(id * 7_919 % 9_973),
        ..Call::default()
    }
}

fn overview(ids: impl Iterator<Item = u64>) -> Overview {
    let mut overview = Overview::new(Timestamp(1_000));
    ids.for_each(|id| overview.add(&call(id), true));
    overview
}

/// All that is told, by thread and function.
fn told(overview: &Overview) -> String {
    let mut threads: Vec<_> = overview.threads().map(|(id, activity)| (id, activity.told().to_vec())).collect();
    threads.sort_by_key(|&(location, _)| location);
    let mut functions: Vec<_> =
        overview.functions().map(|(region, durations)| (region, durations.told().collect::<Vec<_>>())).collect();
    functions.sort_by_key(|&(region, _)| region);
    format!("{threads:?} {functions:?} {:?} {}", overview.chosen(1), overview.calls())
}

#[test]
fn of_many_the_slowest_and_a_sample_of_all_times_are_chosen_in_whatever_order_they_come() {
    let forth = overview(1..=50_000);
    assert_eq!(told(&forth), told(&overview((1..=50_000).rev())));
    let chosen = forth.chosen(1);
    let mut all: Vec<Call> = (1..=50_000).map(call).collect();
    all.sort_by_key(|call| std::cmp::Reverse((call.duration, call.id)));
    let is_there = |slow: &Call| chosen.iter().any(|call| (call.location, call.id) == (slow.location, slow.id));
    assert!(all[..5_000].iter().all(is_there));
    let width = 500_000_000 / 128;
    assert!((0..128).all(|slice| chosen.iter().any(|call| (call.start.0 - 1_000) / width == slice)));
    assert!(forth.chosen(8).len() < chosen.len() / 4);
}

#[test]
fn slices_become_wider_where_there_are_too_many_and_nothing_is_lost() {
    let mut overview = Overview::new(Timestamp(0));
    for thread in 1..=1_000 {
        for slice in 0..1_000 {
            let (location, start) = (LocationId(thread), Timestamp(slice << 20));
            overview.add(&Call { location, start, duration: Some(7), ..Call::default() }, true);
        }
    }
    assert!(overview.slices <= MOST_SLICES && overview.activity_axis.width() == 1 << 21);
    let slices = || overview.threads().flat_map(|(_, activity)| activity.told());
    assert_eq!(slices().map(|slice| slice.calls).sum::<u64>(), 1_000_000);
    assert_eq!(slices().map(|slice| slice.busy).sum::<u64>(), 7_000_000);
    assert_eq!(slices().count(), overview.slices);
    let cells = overview.functions().flat_map(|(_, durations)| durations.told());
    assert_eq!(cells.map(|cell| u64::from(cell.calls)).sum::<u64>(), 1_000_000);
}

#[test]
fn durations_of_many_functions_take_bounded_memory() {
    let mut overview = Overview::new(Timestamp(0));
    for function in 0..3_000 {
        for slice in 0..200 {
            let (region, start, duration) = (RegionId(function), Timestamp(slice << 20), Some(1 << (slice % 30)));
            overview.add(&Call { region, start, duration, ..Call::default() }, true);
        }
    }
    assert!(overview.cells <= MOST_CELLS);
    let cells = overview.functions().flat_map(|(_, durations)| durations.told());
    assert_eq!(cells.map(|cell| u64::from(cell.calls)).sum::<u64>(), 600_000);
    assert_eq!(overview.functions.iter().map(|function| function.durations.room()).sum::<usize>(), overview.cells);
}

#[test]
fn times_at_the_end_of_time_have_their_place() {
    let mut overview = Overview::new(Timestamp(50));
    for (start, duration) in [(0, 10), (u64::MAX, 0), (60, u64::MAX), (10, u64::MAX)] {
        overview.add(&Call { start: Timestamp(start), duration: Some(duration), ..Call::default() }, true);
    }
    let slices = || overview.threads().flat_map(|(_, activity)| activity.told());
    assert_eq!(slices().map(|slice| slice.calls).sum::<u64>(), 4);
    assert!(slices().all(|slice| slice.number < SLICES[0]));
}

#[test]
fn each_member_of_a_set_has_an_overview_and_they_are_one_where_the_calls_are_many() {
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, number: u64| {
        let mut writer = TraceWriter::create_member(&folder.path().join(name), None).unwrap();
        writer.begin(&Header::default()).unwrap();
        writer.calls(&(1..=number).map(call).collect::<Vec<_>>().into()).unwrap();
        writer.finish(&Summary { calls: number, ..Summary::default() }).unwrap();
        TraceSet::open(folder.path()).unwrap().overview().map(|overview| overview.calls())
    };
    assert_eq!(record("rank-0", 0), None);
    assert_eq!(record("rank-1", 100), None);
    assert_eq!(record("rank-2", 19_900), None);
    assert_eq!(record("rank-3", 1), Some(20_001));
    std::fs::remove_dir_all(folder.path().join("rank-1/overview")).unwrap();
    assert!(TraceSet::open(folder.path()).unwrap().overview().is_none());
}

/// As another program may write it.
#[test]
fn rows_of_a_damaged_overview_take_bounded_memory() {
    let row = |place: u64| {
        let start = Timestamp(if place.is_multiple_of(2) { u64::MAX } else { 5 });
        let region = RegionId(place as u32);
        [0, 1, u64::MAX].map(|from| DurationsRow { region, start, length: place % 3, from, calls: u64::MAX })
    };
    let durations = (0..20_000).flat_map(row).collect();
    let activity = (0..20_000_u32)
        .map(|place| {
            let (location, start) = (LocationId(place % 7), Timestamp(u64::from(place) << (place % 40)));
            ActivityRow { location, start, length: u64::MAX >> (place % 64), calls: u64::MAX, busy: u64::MAX }
        })
        .collect();
    let overview = Overview::of(Timestamp(9), &[StoredOverview { activity, durations, ..StoredOverview::default() }]);
    // Of each function at least two slices with all steps: with all slices, it would be 128 times as much.
    assert!(overview.cells <= MOST_CELLS.max(20_000 * 2 * 128), "{}", overview.cells);
    assert_eq!(overview.calls(), u64::MAX);
}

#[test]
fn a_trace_has_the_overview_of_its_calls_unless_they_are_few_or_others() {
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, number: u64| {
        let path = folder.path().join(name);
        let mut writer = TraceWriter::create(&path, None).unwrap();
        let begin = ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: 0 };
        writer.begin(&Header { begin, ..Header::default() }).unwrap();
        writer.calls(&(1..=number).map(call).collect::<Vec<_>>().into()).unwrap();
        writer.finish(&Summary { calls: number, ..Summary::default() }).unwrap();
        path
    };
    let many = record("many", 30_000);
    let trace = TraceSet::open(&many).unwrap();
    let mut of_calls = Overview::new(Timestamp(1_000));
    trace.calls().for_each(|batch| batch.unwrap().iter().for_each(|call| of_calls.add(call, true)));
    assert_eq!(told(&trace.overview().unwrap()), told(&of_calls));
    let few = record("few", Overview::FEW);
    assert!(TraceSet::open(&few).unwrap().overview().is_none());
    assert!(!few.join("overview").exists());
    // That of another recording.
    std::fs::rename(record("other", 40_000).join("overview"), few.join("overview")).unwrap();
    assert!(TraceSet::open(&few).unwrap().overview().is_none());
    std::fs::write(many.join("overview/calls.parquet"), "PAR1").unwrap();
    assert!(TraceSet::open(&many).unwrap().overview().is_none());
}
