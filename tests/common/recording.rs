//! A trace as tests see it: calls as trees of names, checked for what every trace must hold.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use rtrace_exporters::Trace;
use rtrace_model::{
    Call, CallCost, CallSite, Ending, EventKind, ExitPolicy, LocationId, Loss, LossReason, Process, Reading, Region,
    RegionId, Summary, Timestamp, ValueBatch,
};

use super::tree::{Forest, Node};
use super::truth::{Thread, Trees};

/// A finished trace without losses.
pub struct Recording {
    trace: Trace,
    calls: BTreeMap<LocationId, Vec<Call>>,
    names: HashMap<RegionId, String>,
    readings: HashMap<(LocationId, u64), Vec<Reading>>,
    events: Vec<EventKind>,
    values: Vec<ValueBatch>,
}

impl Recording {
    /// Reads the trace in `directory` to memory and checks it.
    pub fn open(directory: &Path) -> Recording {
        let trace = Trace::open(directory).unwrap_or_else(|error| panic!("{error}"));
        let mut calls: BTreeMap<LocationId, Vec<Call>> = BTreeMap::new();
        let mut readings = HashMap::new();
        for batch in trace.calls() {
            let batch = batch.unwrap_or_else(|error| panic!("{error}"));
            for (index, call) in batch.iter().enumerate() {
                readings.insert((call.location, call.id), batch.readings(index).to_vec());
                calls.entry(call.location).or_default().push(*call);
            }
        }
        let names = names(trace.regions());
        let events = trace.events().flat_map(|batch| batch.unwrap_or_else(|error| panic!("{error}")));
        let events = events.map(|event| event.kind).collect();
        let values =
            trace.regions().iter().flat_map(|region| trace.values(region.id).unwrap_or_else(|error| panic!("{error}")));
        let values = values.collect();
        let mut recording = Recording { trace, calls, names, readings, events, values };
        recording.calls.values_mut().for_each(|calls| calls.sort_unstable_by_key(|call| call.id));
        recording.check_totals();
        recording.calls.values().for_each(|calls| check_thread(calls));
        recording.calls.values().for_each(|calls| recording.check_readings(calls));
        recording
    }

    /// What was known at its end.
    pub fn summary(&self) -> &Summary {
        self.trace.summary().expect("the recording ended cleanly")
    }

    /// How probes were attached.
    pub fn mechanism(&self) -> &str {
        &self.trace.header().mechanism
    }

    /// Whether threads waited for their return sites, as they do where the kernel places these soon and on another CPU.
    pub fn can_wait(&self) -> bool {
        self.mechanism() != "uprobe" && self.trace.header().cpus > 1
    }

    /// What happened beside the calls.
    pub fn events(&self) -> &[EventKind] {
        &self.events
    }

    /// The processes.
    pub fn processes(&self) -> &[Process] {
        self.trace.processes()
    }

    /// What a call costs outside its duration at return sites here, in nanoseconds, as was measured beside it.
    pub fn cost_outside(&self) -> u64 {
        let mut costs = self.trace.header().calibration.iter().filter(|cost| cost.exit == ExitPolicy::ReturnSite);
        costs.find(|cost| !cost.single_stepped).map_or(0, |cost| cost.whole.saturating_sub(cost.inner))
    }

    /// What a single step costs here, in nanoseconds, as was measured beside it.
    pub fn cost_of_step(&self) -> u64 {
        CallCost::of_step(&self.trace.header().calibration).unwrap_or(0)
    }

    /// The regions.
    pub fn regions(&self) -> &[Region] {
        self.trace.regions()
    }

    /// What was counted in a call that was timed.
    pub fn readings(&self, call: &Call) -> &[Reading] {
        &self.readings[&(call.location, call.id)]
    }

    /// The call sites.
    pub fn call_sites(&self) -> &[CallSite] {
        self.trace.call_sites()
    }

    /// The names of the values that a region's calls have.
    pub fn value_columns(&self, region: RegionId) -> Vec<String> {
        let columns = self.trace.value_columns().iter().filter(|column| column.region == region);
        columns.map(|column| column.name.clone()).collect()
    }

    /// The values of a region's calls.
    pub fn values(&self, region: RegionId) -> impl Iterator<Item = &ValueBatch> {
        self.values.iter().filter(move |batch| batch.region == region)
    }

    /// The regions of the libraries whose path contains `library`.
    pub fn regions_of(&self, library: &str) -> Vec<&Region> {
        let is_meant =
            |region: &&Region| self.trace.library(region.library).is_some_and(|found| found.path.contains(library));
        self.regions().iter().filter(is_meant).collect()
    }

    /// Calls of every thread; those of thread lives with one thread id follow each other.
    pub fn trees(&self) -> Trees {
        self.trees_of(|_| true)
    }

    /// As [`trees`](Recording::trees), first calls from their places that went unseen with the endings that
    /// are told.
    pub fn trees_as(&self, told: &Trees) -> Trees {
        with_unseen_as(self.trees(), told)
    }

    /// Calls that began before this time, and those that began at it or later. A call whose caller is
    /// among the others is in neither.
    pub fn trees_around(&self, time: Timestamp) -> (Trees, Trees) {
        (self.trees_of(|call| call.start < time), self.trees_of(|call| call.start >= time))
    }

    fn trees_of(&self, is_meant: impl Fn(&Call) -> bool) -> Trees {
        let mut trees = Trees::new();
        for (&location, calls) in &self.calls {
            let location = self.trace.location(location).expect("every location is defined");
            let tree = self.tree(calls.iter().filter(|call| is_meant(call)));
            if !tree.is_empty() {
                trees.entry((location.pid, location.tid)).or_default().append(tree);
            }
        }
        trees
    }

    /// Calls of each region that was called.
    pub fn calls_by_region(&self) -> HashMap<RegionId, u64> {
        let mut counts = HashMap::new();
        for call in self.calls.values().flatten() {
            *counts.entry(call.region).or_default() += 1;
        }
        counts
    }

    /// All calls, by thread life, in the order of their begins.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().flatten()
    }

    /// The calls of the same thread that began during this one.
    pub fn calls_during(&self, call: &Call) -> impl Iterator<Item = &Call> {
        let calls = self.calls[&call.location][call.id as usize..].iter();
        calls.take_while(move |other| other.start <= call.known_until())
    }

    /// The calls of a function by thread, in the order of their begins, each with what it counted.
    pub fn counted(&self, function: &str) -> BTreeMap<Thread, Vec<(&Call, &[Reading])>> {
        let mut counted: BTreeMap<Thread, Vec<(&Call, &[Reading])>> = BTreeMap::new();
        for call in self.calls().filter(|call| self.names[&call.region] == function) {
            let location = self.trace.location(call.location).expect("every location is defined");
            let readings = &self.readings[&(call.location, call.id)];
            counted.entry((location.pid, location.tid)).or_default().push((call, readings));
        }
        counted
    }

    /// What the calls made by a call counted adds up to its part of callees.
    fn check_readings(&self, calls: &[Call]) {
        let readings = |call: &Call| &self.readings[&(call.location, call.id)];
        let mut of_callees: HashMap<u64, Vec<u64>> = HashMap::new();
        for call in calls {
            // An untimed call passes what it has called to its own caller.
            let parents = std::iter::successors((call.parent as usize).checked_sub(1), |&parent| {
                (calls[parent].parent as usize).checked_sub(1)
            });
            let timed = parents.into_iter().find(|&parent| calls[parent].is_timed());
            let Some(parent) = timed.filter(|_| call.is_timed()) else { continue };
            let sums = of_callees.entry(calls[parent].id).or_insert_with(|| vec![0; readings(call).len()]);
            sums.iter_mut().zip(readings(call)).for_each(|(sum, reading)| *sum += reading.inclusive);
        }
        for call in calls.iter().filter(|call| call.ending == Ending::Returned) {
            let children: Vec<u64> = readings(call).iter().map(|reading| reading.child).collect();
            let sums = of_callees.remove(&call.id).unwrap_or_else(|| vec![0; children.len()]);
            assert_eq!(children, sums, "{call:?}");
        }
    }

    /// The tree of one thread's calls. Ids count up in the order of begins, so from the last call
    /// to the first every call comes after all that it called.
    fn tree<'a>(&self, calls: impl DoubleEndedIterator<Item = &'a Call>) -> Forest {
        let mut called_from: HashMap<u64, Vec<Node>> = HashMap::new();
        for call in calls.rev() {
            let called = called_from.remove(&call.id).unwrap_or_default();
            let node = Node {
                name: self.names[&call.region].clone(),
                ending: call.ending,
                count: 1,
                calls: called.into_iter().rev().collect(),
            };
            called_from.entry(call.parent).or_default().push(node);
        }
        called_from.remove(&0).unwrap_or_default().into_iter().rev().collect()
    }

    fn check_totals(&self) {
        let summary = self.summary();
        let with = |ending| self.calls().filter(|call| call.ending == ending).count() as u64;
        // Before the site of a first call is there, a lap of a loop at the entry may be another call. Counts are compared
        // apart.
        let is_lap = |loss: &Loss| loss.reason == LossReason::CallOrLap;
        assert!(summary.losses.iter().all(is_lap), "{summary}");
        assert!(self.trace.losses().unwrap().iter().all(is_lap), "{summary}");
        assert!(self.trace.warnings().is_empty(), "{:?}", self.trace.warnings());
        assert_eq!(summary.calls, self.calls().count() as u64, "{summary}");
        assert_eq!(summary.open, with(Ending::Open), "{summary}");
        assert_eq!(summary.unwound, with(Ending::Unwound), "{summary}");
        assert_eq!(summary.unseen, with(Ending::Unseen), "{summary}");
        assert_eq!(summary.locations, self.calls.len() as u64, "{summary}");
    }
}

/// These calls, those that went unseen with the endings that are told, where they are the same calls.
pub fn with_unseen_as(mut trees: Trees, told: &Trees) -> Trees {
    for (thread, calls) in &mut trees {
        if let Some(seen) = told.get(thread).and_then(|told| calls.with_unseen_as(told)) {
            *calls = seen;
        }
    }
    trees
}

/// Ids without holes, parents before children, children inside parents, and their times sum up.
fn check_thread(calls: &[Call]) {
    let mut time_in_children: HashMap<u64, u64> = HashMap::new();
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(call.id, index as u64 + 1, "ids count up from 1 without holes: {call:?}");
        if call.parent == 0 {
            assert_eq!(call.depth, 0, "{call:?}");
            continue;
        }
        assert!(call.parent < call.id, "{call:?}");
        let parent = &calls[call.parent as usize - 1];
        assert_eq!(call.depth, parent.depth + 1, "{call:?} in {parent:?}");
        assert!(call.start >= parent.start, "{call:?} in {parent:?}");
        if parent.ending == Ending::Returned {
            assert!(call.end() <= parent.end(), "{call:?} in {parent:?}");
        }
        // An untimed call passes what it has called to its own caller.
        let timed = std::iter::successors(Some(parent), |caller| calls.get((caller.parent as usize).checked_sub(1)?));
        if let (Some(caller), Some(duration)) = (timed.into_iter().find(|caller| caller.is_timed()), call.duration) {
            *time_in_children.entry(caller.id).or_default() += duration;
        }
    }
    for call in calls.iter().filter(|call| call.ending == Ending::Returned) {
        assert_eq!(call.child, time_in_children.get(&call.id).copied().unwrap_or(0), "{call:?}");
    }
}

/// Names as the symbol table spells them, with the version only where it tells regions apart.
pub fn names(regions: &[Region]) -> HashMap<RegionId, String> {
    let preferred = |region: &Region| region.symbols.first().map(|symbol| symbol.symbol.clone());
    let version = |region: &Region| region.symbols.first().and_then(|symbol| symbol.version.clone());
    let mut versions: HashMap<_, HashSet<Option<String>>> = HashMap::new();
    for region in regions {
        versions.entry(preferred(region)).or_default().insert(version(region));
    }
    let name = |region: &Region| {
        let symbol = region.symbols.first().expect("every region has a name");
        match &symbol.version {
            Some(version) if versions[&preferred(region)].len() > 1 => format!("{}@{version}", symbol.symbol),
            _ => symbol.symbol.clone(),
        }
    };
    regions.iter().map(|region| (region.id, name(region))).collect()
}
