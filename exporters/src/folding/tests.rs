#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use rtrace_model::{Call, Ending, Timestamp, three_digits};

use super::*;

/// Region, whether timed, and call site, from the root of a path to it.
type Chain = Vec<(u32, bool, Option<u32>, Option<u32>)>;

/// What is folded of the calls of a path, by its location and chain.
type Paths = BTreeMap<(u32, Chain), FoldedPath>;

/// What happens next on a thread: a call of a region begins, or the last one ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter {
        region: u32,
        fate: u8,
    },
    Exit,
    /// Exits at the same time as the last.
    ExitToo,
}

fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let step = prop_oneof![
        4 => (0..3_u32, any::<u8>()).prop_map(|(region, fate)| Step::Enter { region, fate }),
        3 => Just(Step::Exit),
        1 => Just(Step::ExitToo),
    ];
    prop::collection::vec((1..3_u32, step), 1..300)
}

/// The calls in the order of their ends, with two readings of one metric each.
fn calls(steps: &[(u32, Step)]) -> Vec<(Call, [u64; 2])> {
    let mut all = Vec::new();
    let mut stacks: HashMap<u32, Vec<Call>> = HashMap::new();
    let mut entered: HashMap<u32, u64> = HashMap::new();
    let mut clock = 0;
    let end = |stack: &mut Vec<Call>, clock: u64, ending: Ending, all: &mut Vec<(Call, [u64; 2])>| {
        let Some(mut call) = stack.pop() else { return };
        // An untimed call says so from its enter.
        if call.ending != Ending::Unseen {
            let duration = clock - call.start.0;
            (call.duration, call.ending) = (Some(duration), ending);
            if let Some(around) = stack.iter_mut().rev().find(|around| around.ending != Ending::Unseen) {
                around.child += duration;
            }
        }
        all.push((call, [call.duration.unwrap_or(0) / 2, call.child / 2]));
    };
    for &(location, step) in steps {
        let stack = stacks.entry(location).or_default();
        match step {
            Step::Enter { region, fate } => {
                clock += u64::from(fate % 3);
                let id = entered.entry(location).or_default();
                *id += 1;
                let ending = if fate % 5 == 0 { Ending::Unseen } else { Ending::Returned };
                stack.push(Call {
                    location: LocationId(location),
                    region: RegionId(region),
                    id: *id,
                    parent: stack.last().map_or(0, |caller| caller.id),
                    depth: stack.len() as u32,
                    start: Timestamp(clock),
                    duration: None,
                    ending,
                    call_site: (fate % 2 == 0).then_some(CallSiteId(u32::from(fate % 4))),
                    context: (fate % 3 > 0).then_some(ContextId(u32::from(fate % 3))),
                    ..Call::default()
                });
            }
            Step::Exit => {
                clock += 1;
                end(stack, clock, Ending::Returned, &mut all);
            }
            Step::ExitToo => end(stack, clock, Ending::Unwound, &mut all),
        }
    }
    for stack in stacks.values_mut() {
        while !stack.is_empty() {
            end(stack, clock, Ending::Open, &mut all);
        }
    }
    all
}

fn fold(calls: &[(Call, [u64; 2])], size: usize, late: usize) -> Option<Paths> {
    let mut folding = Folding::with_late(late);
    for chunk in calls.chunks(size) {
        let mut chunk = chunk.to_vec();
        chunk.sort_by_key(|(call, _)| (call.location, call.id));
        let (calls, readings): (Vec<Call>, Vec<[u64; 2]>) = chunk.into_iter().unzip();
        folding.chunk(&calls, &readings.concat(), 1);
    }
    let mut keys: HashMap<(LocationId, PathId), Chain> = HashMap::new();
    let mut paths = Paths::new();
    for mut path in folding.into_paths(1)? {
        let mut key = path.parent.map_or_else(Vec::new, |parent| keys[&(path.location, parent)].clone());
        let (site, context) = (path.call_site(), path.context());
        key.push((path.region.0, path.unseen == 0, site.map(|site| site.0), context.map(|context| context.0)));
        keys.insert((path.location, path.path), key.clone());
        (path.profile.path, path.profile.parent) = (PathId(0), None);
        assert_eq!(paths.insert((path.location.0, key), path), None, "a path is there twice");
    }
    Some(paths)
}

/// What a call adds to the paths of those in it.
fn link(call: &Call) -> (u32, bool, Option<u32>, Option<u32>) {
    let (site, context) = origin(call);
    (call.region.0, call.is_timed(), site.map(|site| site.0), context.map(|context| context.0))
}

fn origin(call: &Call) -> (Option<CallSiteId>, Option<ContextId>) {
    let context = call.context.filter(|context| call.parent == 0 || context.0 != 1);
    (call.call_site, context)
}

/// The same from all calls at once.
fn truth(calls: &[(Call, [u64; 2])]) -> Paths {
    let by_id: HashMap<_, _> = calls.iter().map(|(call, _)| ((call.location, call.id), call)).collect();
    let caller = |call: &Call| by_id.get(&(call.location, call.parent)).copied();
    let mut paths = Paths::new();
    let mut durations: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (call, reading) in calls {
        let mut chain = vec![call];
        chain.extend(std::iter::successors(caller(call), |call| caller(call)));
        let key = (call.location.0, chain.iter().rev().map(|call| link(call)).collect::<Vec<_>>());
        let of_path = durations.entry(key.clone()).or_default();
        let path = paths.entry(key).or_insert_with(|| {
            let (site, context) = origin(call);
            let key = Key { region: call.region, is_timed: call.is_timed(), site, context };
            folded(call.location, (PathId(0), None), key, &PathSums::default(), 1)
        });
        let (profile, detail) = (&mut path.profile, path.detail.as_mut().unwrap());
        profile.calls += 1;
        let Some(duration) = call.duration else {
            profile.unseen += 1;
            continue;
        };
        profile.inclusive += duration;
        profile.exclusive += duration - call.child;
        profile.counts[0].inclusive += reading[0];
        profile.counts[0].exclusive += reading[0].saturating_sub(reading[1]);
        let around = chain[1..].iter().find(|around| around.is_timed());
        let ends_too = around.is_some_and(|around| around.end() == call.end());
        detail.instant += u64::from(duration == 0);
        detail.ended_with_caller += u64::from(ends_too && duration > 0);
        detail.instant_with_caller += u64::from(ends_too && duration == 0);
        if call.ending == Ending::Open {
            profile.open += 1;
            profile.open_time += duration;
            continue;
        }
        profile.timed += 1;
        profile.unwound += u64::from(call.ending == Ending::Unwound);
        profile.min = Some(profile.min.map_or(duration, |min| min.min(duration)));
        profile.max = profile.max.max(Some(duration));
        profile.histogram[histogram_bucket(duration)] += 1;
        of_path.push(duration);
    }
    for (key, mut durations) in durations {
        durations.sort_unstable();
        let counted = durations.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect();
        paths.get_mut(&key).unwrap().detail.as_mut().unwrap().durations = counted;
    }
    paths
}

proptest! {
    #[test]
    fn chunks_add_up_to_what_all_calls_do(steps in steps(), size in 1..60_usize) {
        let calls = calls(&steps);
        prop_assert_eq!(fold(&calls, size, 1), Some(truth(&calls)));
    }

    /// A callee of an untimed call that comes late may have ended with a call that is forgotten: then there are no sums.
    #[test]
    fn callees_may_come_late(steps in steps(), size in 1..30_usize) {
        let mut calls = calls(&steps);
        calls.chunks_mut(size).for_each(<[_]>::reverse);
        let folded = fold(&calls, size.div_ceil(2), size);
        let is_timed = calls.iter().all(|(call, _)| call.is_timed());
        prop_assert!(folded.is_some() || !is_timed);
        prop_assert!(folded.is_none_or(|folded| folded == truth(&calls)));
    }

    #[test]
    fn without_a_caller_there_are_no_sums(steps in steps(), size in 1..60_usize, lost in any::<prop::sample::Index>()) {
        let mut calls = calls(&steps);
        let callers: Vec<usize> = (0..calls.len())
            .filter(|&place| {
                let (call, _) = calls[place];
                calls.iter().any(|(of, _)| of.location == call.location && of.parent == call.id)
            })
            .collect();
        if !callers.is_empty() {
            calls.remove(callers[lost.index(callers.len())]);
            prop_assert_eq!(fold(&calls, size, 1), None);
        }
    }
}

#[test]
fn many_durations_have_three_digits() {
    let leaf = |id: u64| Call { id: id + 1, parent: 1, duration: Some(id * 10_007), ..Call::default() };
    for number in [512, 513, 2_000] {
        let mut calls: Vec<(Call, [u64; 2])> = (1..=number).map(|id| (leaf(id), [0; 2])).collect();
        calls.push((Call { duration: Some(u64::MAX), ..Call::default() }, [0; 2]));
        let paths = fold(&calls, 100, 1).unwrap();
        let durations = &paths.values().last().unwrap().detail.as_ref().unwrap().durations;
        let expected = |id: u64| if number > 512 { three_digits(id * 10_007) } else { id * 10_007 };
        assert!(durations.iter().all(|&(duration, _)| (1..=number).any(|id| expected(id) == duration)));
        assert_eq!(durations.iter().map(|&(_, calls)| calls).sum::<u64>(), number);
    }
}

#[test]
fn too_many_paths_are_given_up() {
    let root = |id: u64, region: u64| (Call { id, region: RegionId(region as u32), ..Call::default() }, [0; 2]);
    let few: Vec<_> = (1..=1_000).map(|id| root(id, id)).collect();
    assert_eq!(fold(&few, 100, 1).unwrap().len(), 1_000);
    let many: Vec<_> = (1..=140_000).map(|id| root(id, id)).collect();
    assert_eq!(fold(&many, 1_000, 1), None);
}

#[test]
fn calls_that_make_themselves_are_given_up() {
    let call = Call { id: 7, parent: 7, ..Call::default() };
    assert_eq!(fold(&[(call, [0; 2])], 1, 1), None);
}

/// `cargo test --release -p rtrace-exporters --lib folding_a_call -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn folding_a_call_takes_some_nanoseconds() {
    const CALLS: u64 = 20_000_000;
    let mut folding = Folding::new();
    let mut chunk: Vec<Call> = Vec::new();
    let mut took = std::time::Duration::ZERO;
    // On four threads, calls of calls: the first lasts as long as all.
    for round in 0..CALLS / 16 {
        for thread in 0..4 {
            for depth in 1..=4 {
                let id = 1 + round * 4 + depth;
                let long = 500 + (round + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (100 << (round % 9));
                chunk.push(Call {
                    location: LocationId(thread as u32),
                    region: RegionId((depth + id % 3) as u32),
                    id,
                    parent: if depth == 1 { 1 } else { id - 1 },
                    start: Timestamp(round * 100_000 + depth * 50),
                    duration: Some(long - depth * 100),
                    child: if depth == 4 { 0 } else { long - depth * 100 - 100 },
                    call_site: Some(CallSiteId((depth + id % 5) as u32)),
                    ..Call::default()
                });
            }
        }
        if chunk.len() >= ROW_GROUP {
            chunk.sort_by_key(|call| (call.location, call.id));
            let begun = std::time::Instant::now();
            folding.chunk(&chunk, &[], 0);
            took += begun.elapsed();
            chunk.clear();
        }
    }
    println!("{} ns per call, {} paths", took.as_nanos() as u64 / CALLS, folding.nodes.len());
}
