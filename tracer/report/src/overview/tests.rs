#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

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
