//! What is known of a recording at this moment. It knows no screen: views look at it.
//!
//! Everything is bounded, whatever the program does: functions by the plan, call paths and calls on
//! the timeline by a number, threads by forgetting those that have ended, calls that wait for their
//! callers by not waiting any longer.

pub mod counters;
pub mod folded;
pub mod function;
pub mod history;
pub mod lanes;
pub mod log;
pub mod paths;
pub mod thread;
pub mod values;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rtrace_model::{
    Batch, Call, CallCost, Count, Definition, Estimate, Event, EventKind, ExitPolicy, Item, LibraryId, Location,
    LocationId, Loss, MetricId, Overhead, PathProfile, Percent, Region, RegionId, Sample, Summary, Timestamp, Totals,
    ValueBatch,
};

use self::counters::{Counters, Derive};
use self::function::{Function, WithoutRecord};
use self::history::{History, SLOTS};
use self::log::Log;
use self::paths::Paths;
use self::thread::{Settle, Settled, Thread};
use self::values::Recorded;

const SECOND: u64 = 1_000_000_000;

/// Call paths that are told apart, of all threads together.
const MOST_PATHS: usize = 1 << 18;

/// Threads that are kept while there are some that have ended.
const MOST_THREADS: usize = 4096;

/// Calls kept for the timelines of all threads together, of each class of durations.
const MOST_BARS: usize = 1 << 16;

/// Calls of a thread that may wait for their callers.
const MOST_PENDING: usize = 1 << 20;

/// How long after its end a call may arrive behind later ones: readings of two rings.
const STRAGGLING: u64 = 20_000_000;

/// After this time a caller that is not known is lost.
const LOST_AFTER: u64 = SECOND;

/// The time that a state is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// From the begin of a recording until now.
    #[default]
    Live,
    /// A part of a stored trace.
    Range {
        /// Its begin.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
}

/// What is known.
#[derive(Debug, Default)]
pub struct State {
    /// What of the recording is looked at.
    pub span: Span,
    /// Whether calls are folded by call path: then all figures come from there, and single calls
    /// are but shown.
    pub is_folded: bool,
    /// Whether the single calls are to come, and with them another state.
    pub awaits_calls: bool,
    /// Begin of the recording, or of the range.
    pub begin: Timestamp,
    /// Whether calls are being recorded, or were.
    pub is_armed: bool,
    /// The latest time heard of.
    pub now: Timestamp,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, calls that were not timed.
    pub untimed: u64,
    /// Their last minute.
    pub history: History,
    /// Events, losses.
    pub log: Log,
    /// What is said at the end.
    pub summary: Option<Summary>,
    /// Nanoseconds that tracing has cost the program, about; absent where costs are not known.
    pub overhead: Option<f64>,
    /// The part of the programs' CPU time that tracing may take.
    pub budget: Option<Percent>,
    /// What it takes, in percent, as last measured where there is a budget.
    pub share: Option<f64>,
    overhead_metric: Option<MetricId>,
    /// Calls without a record: counted, and about so many not seen.
    pub without_record: WithoutRecord,
    /// What is counted on every call.
    pub counters: Counters,
    /// Arguments and results.
    pub values: Recorded,
    told: Option<Told>,
    functions: Vec<Option<Function>>,
    libraries: BTreeMap<LibraryId, Arc<str>>,
    /// The first function of each name.
    by_name: BTreeMap<Arc<str>, RegionId>,
    /// The programs of processes.
    processes: BTreeMap<u32, Arc<str>>,
    threads: BTreeMap<LocationId, Thread>,
    /// Threads that have ended, the first first: these may be forgotten.
    ended: VecDeque<LocationId>,
    threads_seen: u64,
    merged: Paths,
    room: usize,
    bars: usize,
    /// What calls cost; empty where that was not measured.
    costs: Vec<CallCost>,
}

/// When folded calls were told last.
#[derive(Clone, Copy, Debug)]
struct Told {
    slot: u64,
    /// Slots since the time before.
    slots: u64,
}

/// A slot of time, by the time since the begin, and the calls met that ended in it.
#[derive(Default)]
struct SlotOfTime {
    number: u64,
    times: std::ops::Range<u64>,
    calls: u64,
}

impl State {
    /// Nothing is known yet.
    pub fn new(span: Span, is_folded: bool) -> State {
        let (begin, now) = match span {
            Span::Live => (Timestamp(0), Timestamp(0)),
            Span::Range { from, to } => (from, to),
        };
        State { span, is_folded, begin, now, room: MOST_PATHS, bars: MOST_BARS, ..State::default() }
    }

    /// The same with the figures that follow from counters.
    pub fn deriving(self, derive: Derive) -> State {
        State { counters: Counters::new(derive), ..self }
    }

    /// The same at this moment, to be looked at only: what calls to come would need is left out.
    pub fn snapshot(&self) -> State {
        State {
            awaits_calls: self.awaits_calls,
            begin: self.begin,
            is_armed: self.is_armed,
            now: self.now,
            calls: self.calls,
            untimed: self.untimed,
            history: self.history.clone(),
            log: self.log.clone(),
            summary: self.summary.clone(),
            overhead: self.overhead,
            budget: self.budget,
            share: self.share,
            without_record: self.without_record,
            counters: self.counters.clone(),
            values: self.values.clone(),
            told: self.told,
            functions: self.functions.clone(),
            libraries: self.libraries.clone(),
            by_name: self.by_name.clone(),
            processes: self.processes.clone(),
            threads: self.threads.iter().map(|(&id, thread)| (id, thread.snapshot())).collect(),
            threads_seen: self.threads_seen,
            merged: self.merged.snapshot(),
            ..State::new(self.span, self.is_folded)
        }
    }

    /// Takes in what a recording tells.
    pub fn take(&mut self, item: &Item) {
        match item {
            Item::Begin(header) => {
                self.begin(header.begin.monotonic);
                self.budget = header.budget;
                self.calibrate(&header.calibration);
            }
            Item::Define(definitions) => definitions.iter().for_each(|definition| self.define(definition)),
            Item::Calls(batch) => self.add(batch),
            Item::Values(batches) => self.add_values(batches),
            Item::Profile(paths) => self.fold(paths),
            Item::Estimates(estimates) => self.estimate(estimates),
            Item::Samples(samples) => self.sampled(samples),
            Item::Running(time, calls) => self.running(*time, calls),
            Item::Event(event) => self.add_event(event),
            Item::Tick => {}
            Item::Finish(summary) => self.finish(summary),
        }
    }

    /// The recording began.
    pub fn begin(&mut self, time: Timestamp) {
        if self.span == Span::Live {
            (self.begin, self.now) = (time, time);
        }
    }

    /// What calls cost, before any function is defined.
    pub fn calibrate(&mut self, costs: &[CallCost]) {
        self.costs = costs.to_vec();
        if self.span == Span::Live && !costs.is_empty() {
            self.overhead = Some(0.0);
        }
    }

    /// What a call costs, as far as it is known.
    fn cost(&self, region: &Region) -> Option<CallCost> {
        CallCost::of(&self.costs, region, region.exit != ExitPolicy::EntryOnly)
    }

    /// Takes in a definition.
    pub fn define(&mut self, definition: &Definition) {
        match definition {
            Definition::Region(region) => self.define_region(region),
            Definition::Library(library) => {
                self.libraries.insert(library.id, Arc::from(library.name()));
            }
            Definition::Location(location) => self.define_location(location),
            Definition::Metric(metric) if metric.name == Overhead::METRIC => self.overhead_metric = Some(metric.id),
            Definition::Metric(metric) => self.counters.define(metric),
            Definition::Process(process) => {
                self.processes.insert(process.pid, Arc::from(process.name()));
            }
            Definition::ValueColumn(column) => self.values.define(column),
            Definition::CallSite(_) | Definition::Context(_) | Definition::CpuSamples(_) => {}
        }
    }

    fn define_region(&mut self, region: &Region) {
        let Region { id, library, exit, .. } = *region;
        let (index, cost) = (id.index(), self.cost(region));
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        match &mut self.functions[index] {
            Some(known) => known.name = Arc::from(region.name.as_str()),
            none => {
                let mut function = Function::new(id, &region.name, library, exit);
                function.cost = cost;
                function.waits_for = region.waits_for();
                let name = Arc::clone(&function.name);
                *none = Some(function);
                let first = *self.by_name.entry(name).or_insert(id);
                if self.function(first).is_some_and(|first| first.library != library) {
                    [first, id].into_iter().for_each(|id| self.tell_apart(id));
                }
            }
        }
    }

    /// Functions of other libraries have the name, too.
    fn tell_apart(&mut self, id: RegionId) {
        let Some(Some(function)) = self.functions.get_mut(id.index()) else { return };
        let library = self.libraries.get(&function.library).map_or("", |name| name);
        function.alone = Arc::from(format!("{} [{library}]", function.name));
    }

    fn define_location(&mut self, location: &Location) {
        if location.end.is_some() {
            self.ended.push_back(location.id);
        }
        match self.threads.get_mut(&location.id) {
            Some(thread) => thread.location.clone_from(location),
            None => {
                self.threads_seen += 1;
                self.threads.insert(location.id, Thread::new(location.clone()));
                if !self.is_folded {
                    self.forget_threads();
                }
                self.bars = MOST_BARS / self.threads.len().max(1);
            }
        }
    }

    /// Of threads that have ended only the sums stay, where there are many.
    fn forget_threads(&mut self) {
        while self.threads.len() > MOST_THREADS {
            let Some(id) = self.ended.pop_front() else { return };
            self.settle_thread(id, Settle::ALL);
            self.fold_thread(id, &[], true);
            let Some(thread) = self.threads.remove(&id) else { continue };
            for node in thread.paths.nodes() {
                self.merged.figures(node.merged).add(node.figures);
            }
            self.merged.count_all(&thread.paths);
            self.room += thread.paths.nodes().len() - 1;
        }
    }

    /// Takes in the calls without a record: all there are.
    pub fn estimate(&mut self, estimates: &[Estimate]) {
        self.without_record = WithoutRecord::default();
        self.functions.iter_mut().flatten().for_each(|function| function.without_record = WithoutRecord::default());
        for estimate in estimates {
            self.without_record.add(estimate);
            if let Some(Some(function)) = self.functions.get_mut(estimate.region.index()) {
                function.without_record.add(estimate);
            }
        }
    }

    /// Takes in values of metrics beside the calls.
    pub fn sampled(&mut self, samples: &[Sample]) {
        let overhead = samples.iter().rfind(|sample| Some(sample.metric) == self.overhead_metric);
        self.share = overhead.map(|sample| sample.value).or(self.share);
    }

    /// Takes in calls that ended, with what they counted.
    pub fn add(&mut self, batch: &Batch) {
        if self.is_folded {
            self.show(batch);
            return;
        }
        let slot_length = self.slot_length();
        let mut slot = SlotOfTime::default();
        let mut cost = 0;
        let mut first = 0;
        for of_thread in batch.chunk_by(|a, b| a.location == b.location) {
            let location = of_thread[0].location;
            if let Some(thread) = self.threads.get_mut(&location) {
                for (call, index) in of_thread.iter().zip(first..) {
                    thread.add(call, counts(batch, index), self.bars);
                }
            }
            for (call, index) in of_thread.iter().zip(first..) {
                let end = call.known_until();
                let since = end.since(self.begin);
                if !slot.times.contains(&since) {
                    self.history.add_calls(slot.number, slot.calls);
                    let number = since / slot_length;
                    slot = SlotOfTime {
                        number,
                        times: number * slot_length..(number + 1).saturating_mul(slot_length),
                        calls: 0,
                    };
                }
                slot.calls += 1;
                self.untimed += u64::from(!call.is_timed());
                self.now = self.now.max(end);
                if let Some(Some(function)) = self.functions.get_mut(call.region.index()) {
                    function.add(call, slot.number);
                    Count::add_exclusive(&mut function.counts, counts(batch, index));
                    cost += function.cost.map_or(0, |cost| cost.whole);
                }
            }
            self.settle_crowd(location);
            first += of_thread.len();
        }
        self.history.add_calls(slot.number, slot.calls);
        self.calls += batch.len() as u64;
        if let Some(overhead) = &mut self.overhead {
            *overhead += cost as f64;
        }
    }

    /// Takes in values of calls that ended.
    pub fn add_values(&mut self, batches: &[ValueBatch]) {
        for batch in batches {
            let Some(Some(function)) = self.functions.get(batch.region.index()) else { continue };
            let slowest: Vec<_> = function.slowest().iter().map(|slow| (slow.location, slow.call)).collect();
            self.values.add(batch, &function.name, &slowest);
        }
    }

    /// Takes in calls that ended and are counted elsewhere.
    fn show(&mut self, calls: &[Call]) {
        for call in calls {
            self.now = self.now.max(call.known_until());
            if let Some(thread) = self.threads.get_mut(&call.location) {
                thread.show(call, self.bars);
            }
            if let Some(Some(function)) = self.functions.get_mut(call.region.index()) {
                function.note(call);
            }
        }
    }

    /// Takes in call paths, which replace what was known of them. After the last rows of threads
    /// that have ended nothing more comes of these, so they may be forgotten.
    pub fn fold(&mut self, rows: &[PathProfile]) {
        let mut of_threads: BTreeMap<LocationId, Vec<&PathProfile>> = BTreeMap::new();
        for row in rows {
            of_threads.entry(row.location).or_default().push(row);
        }
        if let Some(slot) = self.told_slot() {
            let before = self.told.map(|told| told.slot);
            if !rows.is_empty() && before.is_none_or(|before| before < slot) {
                self.told = Some(Told { slot, slots: before.map_or(slot + 1, |before| slot - before) });
            }
        }
        for (location, rows) in of_threads {
            self.fold_thread(location, &rows, false);
        }
        self.forget_threads();
    }

    /// The slot of time that folded calls are of: they come once a second, around its end.
    fn told_slot(&self) -> Option<u64> {
        (self.span == Span::Live).then(|| self.now.since(Timestamp(self.begin.0 + SECOND / 2)) / SECOND)
    }

    fn fold_thread(&mut self, location: LocationId, rows: &[&PathProfile], are_last: bool) {
        let slot = self.told_slot();
        let Some(thread) = self.threads.get_mut(&location) else { return };
        let (functions, history, calls, mut cost) = (&mut self.functions, &mut self.history, &mut self.calls, 0);
        thread.fold(rows, are_last, &mut self.merged, &mut self.room, |more, is_outermost, caller| {
            *calls += more.calls;
            self.untimed += more.unseen;
            if let Some(slot) = slot {
                history.add_calls(slot, more.calls);
            }
            if let Some(Some(function)) = functions.get_mut(more.region.index()) {
                function.fold(more, is_outermost, slot);
                cost += function.cost.map_or(0, |cost| cost.whole.saturating_mul(more.calls));
            }
            take_off(functions, more.region, caller, more.calls);
        });
        if let Some(overhead) = &mut self.overhead {
            *overhead += cost as f64;
        }
    }

    fn settle_crowd(&mut self, location: LocationId) {
        let Some(thread) = self.threads.get(&location) else { return };
        if thread.pending() >= MOST_PENDING {
            self.settle_thread(location, Settle::ALL);
        } else if thread.is_crowded() {
            let before = Timestamp(self.now.0.saturating_sub(STRAGGLING));
            self.settle_thread(location, Settle { before, lost_before: Timestamp(0) });
        }
    }

    fn settle_thread(&mut self, location: LocationId, until: Settle) {
        let Some(thread) = self.threads.get_mut(&location) else { return };
        let functions = &mut self.functions;
        thread.settle(until, &mut self.merged, &mut self.room, |Settled { region, caller, inclusive, counts }| {
            take_off(functions, region, caller, 1);
            let Some(inclusive) = inclusive else { return };
            if let Some(Some(function)) = functions.get_mut(region.index()) {
                Count::add_inclusive(&mut function.counts, counts.iter().copied());
                function.sums.inclusive = function.sums.inclusive.saturating_add(inclusive);
            }
        });
    }

    fn settle(&mut self, until: Settle) {
        let waiting: Vec<LocationId> =
            self.threads.iter().filter(|(_, thread)| thread.is_unsettled()).map(|(&id, _)| id).collect();
        for location in waiting {
            self.settle_thread(location, until);
        }
    }

    /// Takes in what runs at a time: calls whose callers are among it wait no longer.
    pub fn running(&mut self, time: Timestamp, calls: &[Call]) {
        self.now = self.now.max(time);
        for thread in self.threads.values_mut() {
            thread.set_running(time, &[]);
        }
        for of_thread in calls.chunk_by(|a, b| a.location == b.location) {
            if let Some(thread) = self.threads.get_mut(&of_thread[0].location) {
                thread.set_running(time, of_thread);
            }
        }
        let before = |length| Timestamp(time.0.saturating_sub(length));
        self.settle(Settle { before: before(STRAGGLING), lost_before: before(LOST_AFTER) });
    }

    /// Takes in an event.
    pub fn add_event(&mut self, event: &Event) {
        self.log.add(event);
        match &event.kind {
            EventKind::Armed => {
                self.is_armed = true;
                self.begin(event.time);
            }
            EventKind::Loss(Loss { region: Some(region), count, .. }) => {
                if let Some(Some(function)) = self.functions.get_mut(region.index()) {
                    function.lost += count;
                }
            }
            _ => {}
        }
    }

    /// The recording, or the replay of a range, has ended: nothing more will come.
    pub fn finish(&mut self, summary: &Summary) {
        self.settle(Settle::ALL);
        let threads: Vec<LocationId> = self.threads.keys().copied().collect();
        for location in threads {
            self.fold_thread(location, &[], true);
        }
        self.log.conclude(summary);
        self.summary = Some(summary.clone());
        if self.span == Span::Live {
            let now = self.now;
            self.threads.values_mut().for_each(|thread| thread.set_running(now, &[]));
        }
    }

    /// Length of a slot of time in nanoseconds.
    pub fn slot_length(&self) -> u64 {
        match self.span {
            Span::Live => SECOND,
            Span::Range { from, to } => (to.since(from) / SLOTS + 1).max(1),
        }
    }

    /// The slot that is not over yet.
    pub fn slot(&self) -> u64 {
        self.now.since(self.begin) / self.slot_length()
    }

    /// The slot after the last one in sight; the first is [`SLOTS`] before it.
    pub fn end_slot(&self) -> u64 {
        match self.span {
            Span::Live => self.slot() + 1,
            Span::Range { .. } => SLOTS,
        }
    }

    /// Nanoseconds from the begin until now.
    pub fn elapsed(&self) -> u64 {
        self.now.since(self.begin)
    }

    /// Calls per second: live in the last whole second, or when last told, else on average.
    pub fn rate(&self, calls: u64, history: &History) -> f64 {
        match (self.span, self.slot().checked_sub(1)) {
            (Span::Live, Some(last)) if self.summary.is_none() => match self.told {
                // It may be told late.
                Some(Told { slot, slots }) if last <= slot + 1 + slots => history.calls(slot) as f64 / slots as f64,
                _ => history.calls(last) as f64,
            },
            (Span::Live, None) => 0.0,
            _ => calls as f64 * SECOND as f64 / self.elapsed().max(1) as f64,
        }
    }

    /// The functions with probes, by id.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().flatten()
    }

    /// The function of that id.
    pub fn function(&self, id: RegionId) -> Option<&Function> {
        self.functions.get(id.index())?.as_ref()
    }

    /// The name of a library, not escaped; empty where it is not known.
    pub fn library(&self, id: LibraryId) -> &str {
        self.libraries.get(&id).map_or("", |name| name)
    }

    /// The libraries with their names, by id.
    pub fn libraries(&self) -> impl Iterator<Item = (LibraryId, &str)> {
        self.libraries.iter().map(|(&id, name)| (id, &**name))
    }

    /// The program of a process, not escaped; empty where it is not known.
    pub fn program(&self, pid: u32) -> &str {
        self.processes.get(&pid).map_or("", |name| name)
    }

    /// The threads that are kept, by id.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    /// The thread of that id.
    pub fn thread(&self, id: LocationId) -> Option<&Thread> {
        self.threads.get(&id)
    }

    /// Threads with calls, also those that are forgotten.
    pub fn threads_seen(&self) -> u64 {
        self.threads_seen
    }

    /// The call paths of all threads together.
    pub fn merged_paths(&self) -> &Paths {
        &self.merged
    }

    /// The figures of each of these paths.
    pub fn merged_figures(&self) -> Vec<Totals> {
        let mut figures: Vec<Totals> = self.merged.nodes().iter().map(|node| node.figures).collect();
        for thread in self.threads.values() {
            for node in thread.paths.nodes() {
                figures[node.merged as usize].add(node.figures);
            }
        }
        figures
    }

    /// Of each of these paths, which have these figures, the exclusive time without tracing, as far as it is known what
    /// that took.
    pub fn own_times(&self, paths: &Paths, figures: &[Totals]) -> Vec<u64> {
        let mut tracing = vec![0_u64; figures.len()];
        for (index, (node, figures)) in paths.nodes().iter().zip(figures).enumerate() {
            let function = node.function().and_then(|region| self.function(region));
            let Some(cost) = function.and_then(|function| function.cost) else { continue };
            tracing[index] = tracing[index].saturating_add(cost.inner.saturating_mul(figures.timed()));
            let above = &mut tracing[node.parent as usize];
            *above = above.saturating_add(outer(cost).saturating_mul(figures.calls));
        }
        figures.iter().zip(tracing).map(|(figures, tracing)| figures.exclusive.saturating_sub(tracing)).collect()
    }

    /// What the calls of each of these paths counted, by counter; paths at the end may be missing.
    pub fn merged_counts(&self) -> Vec<Vec<Count>> {
        let mut counts = self.merged.counts().to_vec();
        for thread in self.threads.values() {
            for (node, more) in thread.paths.nodes().iter().zip(thread.paths.counts()) {
                let index = node.merged as usize;
                if counts.len() <= index {
                    counts.resize(index + 1, Vec::new());
                }
                Count::add_all(&mut counts[index], more.iter().copied());
            }
        }
        counts
    }
}

/// What tracing a call takes of the time of its caller beside that of the call itself.
fn outer(cost: CallCost) -> u64 {
    cost.whole.saturating_sub(cost.inner)
}

/// Takes off the time of `caller` what tracing so many calls to a function took of it.
fn take_off(functions: &mut [Option<Function>], region: RegionId, caller: Option<RegionId>, calls: u64) {
    let cost = functions.get(region.index()).and_then(|function| function.as_ref()?.cost);
    let caller = caller.and_then(|caller| functions.get_mut(caller.index())?.as_mut());
    if let (Some(cost), Some(caller)) = (cost, caller) {
        caller.take_off(outer(cost).saturating_mul(calls));
    }
}

/// What a call of a batch counted; nothing where it was not timed.
fn counts(batch: &Batch, index: usize) -> impl ExactSizeIterator<Item = Count> {
    batch.readings(index).iter().map(|&reading| Count::from(reading))
}

#[cfg(test)]
pub mod tests;
