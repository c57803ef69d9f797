//! A stored profile as tests see it: calls by path and ending, checked for what every profile must
//! hold.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rtrace_exporters::Trace;
use rtrace_model::{Call, Count, Ending, LocationId, PathId, PathProfile, Reading, Scope, histogram_bucket};

use super::recording::names;
use super::tree::Paths;
use super::truth::Thread;

/// Reads the profile in `directory` and checks it; gives the calls of each thread.
pub fn open(directory: &Path) -> BTreeMap<Thread, Paths> {
    let trace = Trace::open(directory).unwrap_or_else(|error| panic!("{error}"));
    check_totals(&trace);
    trace.profile().iter().for_each(check_path);
    let full_names = full_names(&trace);
    let mut threads: BTreeMap<Thread, Paths> = BTreeMap::new();
    for path in trace.profile().iter().filter(|path| path.calls > 0) {
        let location = trace.location(path.location).expect("every location is defined");
        let paths = threads.entry((location.pid, location.tid)).or_default();
        let endings = [path.timed - path.unwound, path.unwound, path.open, path.unseen];
        let sums = paths.entry(full_names[&(path.location, path.path)].clone()).or_default();
        sums.iter_mut().zip(endings).for_each(|(sum, calls)| *sum += calls);
    }
    threads
}

fn check_totals(trace: &Trace) {
    let summary = trace.summary().expect("the recording ended cleanly");
    let sum = |figure: fn(&PathProfile) -> u64| trace.profile().iter().map(figure).sum::<u64>();
    let records = trace.calls().map(|batch| batch.unwrap().len() as u64).sum::<u64>();
    assert_eq!(summary.losses, [], "{summary}");
    assert_eq!(summary.calls, sum(|path| path.calls), "{summary}");
    assert_eq!(summary.calls - summary.folded, records, "{summary}");
    assert_eq!(summary.unwound, sum(|path| path.unwound), "{summary}");
    assert_eq!(summary.open, sum(|path| path.open), "{summary}");
    assert_eq!(summary.unseen, sum(|path| path.unseen), "{summary}");
    let mut calls: HashMap<LocationId, u64> = HashMap::new();
    for path in trace.profile() {
        *calls.entry(path.location).or_default() += path.calls;
    }
    for location in trace.locations() {
        assert_eq!(location.calls_entered, calls.get(&location.id).copied(), "{location:?}");
    }
}

fn check_path(path: &PathProfile) {
    assert_eq!(path.calls, path.timed + path.open + path.unseen, "{path:?}");
    assert_eq!(path.timed, path.histogram.iter().sum::<u64>(), "{path:?}");
    assert!(path.exclusive <= path.inclusive, "{path:?}");
    assert_eq!((path.min.is_some(), path.max.is_some()), (path.timed > 0, path.timed > 0), "{path:?}");
    assert!(path.min.unwrap_or(0) * path.timed <= path.inclusive - path.open_time, "{path:?}");
    assert!(path.inclusive - path.open_time <= path.max.unwrap_or(0) * path.timed, "{path:?}");
}

fn full_names(trace: &Trace) -> HashMap<(LocationId, PathId), String> {
    let names = names(trace.regions());
    let paths: HashMap<_, _> = trace.profile().iter().map(|path| ((path.location, path.path), path)).collect();
    let full_name = |place: &(LocationId, PathId)| {
        let mut name = String::new();
        let mut next = Some(place.1);
        while let Some(path) = next.map(|path| paths[&(place.0, path)]) {
            name = format!("/{}{name}", names[&path.region]);
            next = path.parent;
        }
        name
    };
    paths.keys().map(|place| (*place, full_name(place))).collect()
}

/// Checks that the records of all calls, folded here, give the profile that was folded in the kernel.
pub fn check_against_records(directory: &Path) {
    let trace = Trace::open(directory).unwrap_or_else(|error| panic!("{error}"));
    let mut calls: Vec<(Call, Vec<Reading>)> = Vec::new();
    for batch in trace.calls().map(Result::unwrap) {
        calls.extend(batch.iter().enumerate().map(|(index, call)| (*call, batch.readings(index).to_vec())));
    }
    calls.sort_unstable_by_key(|(call, _)| (call.location, call.id));
    let ids: HashMap<_, _> =
        trace.profile().iter().map(|path| ((path.location, path.parent, path.region), path.path)).collect();
    let mut paths: HashMap<(LocationId, u64), PathId> = HashMap::new();
    let mut folded: HashMap<(LocationId, PathId), PathProfile> = HashMap::new();
    let metrics = trace.metrics().iter().filter(|metric| metric.scope == Scope::Call).count();
    for (call, readings) in &calls {
        let parent = (call.parent != 0).then(|| paths[&(call.location, call.parent)]);
        let id = ids[&(call.location, parent, call.region)];
        paths.insert((call.location, call.id), id);
        fold(folded.entry((call.location, id)).or_insert_with(|| empty(call, id, parent, metrics)), call, readings);
    }
    let stored: HashMap<_, _> = trace.profile().iter().map(|path| ((path.location, path.path), path.clone())).collect();
    assert_eq!(folded, stored);
}

fn empty(call: &Call, path: PathId, parent: Option<PathId>, metrics: usize) -> PathProfile {
    let counts = vec![Count::default(); metrics];
    PathProfile { path, parent, region: call.region, location: call.location, counts, ..PathProfile::default() }
}

fn fold(path: &mut PathProfile, call: &Call, readings: &[Reading]) {
    path.calls += 1;
    let (Some(duration), Some(exclusive)) = (call.duration, call.exclusive()) else {
        path.unseen += 1;
        return;
    };
    for (count, reading) in path.counts.iter_mut().zip(readings) {
        count.inclusive += reading.inclusive;
        count.exclusive += reading.exclusive();
    }
    path.inclusive += duration;
    path.exclusive += exclusive;
    if call.ending == Ending::Open {
        path.open += 1;
        path.open_time += duration;
        return;
    }
    path.unwound += u64::from(call.ending == Ending::Unwound);
    path.min = path.min.into_iter().chain([duration]).min();
    path.max = path.max.max(Some(duration));
    path.timed += 1;
    path.histogram[histogram_bucket(duration)] += 1;
}
