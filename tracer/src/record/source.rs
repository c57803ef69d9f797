//! The live source of calls: reads the rings, names what the records refer to, and feeds the sinks.
//!
//! It keeps no more than a batch and one definition per thread and process.

mod call_sites;
mod check;
mod cpu_times;
mod open;
mod paths;
mod processes;
mod rings;

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

use foldhash::HashMap;
use rtrace_bpf::wire::{
    AccessRecord, CallRecord, CallWords, EndingCode, EventKindCode, EventRecord, LocationRecord, LossCode, LossKey,
    NO_CONTEXT, NO_REGION, ReadingRecord, UntimedCode, comm,
};
use rtrace_bpf::{Error, Programs, Records};
use rtrace_model::{
    Batch, Call, ContextId, Definition, Ending, Estimate, Event, EventKind, Item, Location, LocationId, Loss,
    LossReason, Metric, Missed, Reading, RegionId, Sample, Summary, Timestamp, Untimed, UntimedReason,
};

pub use self::call_sites::CallSites;
use self::cpu_times::CpuTimes;
use self::open::OpenCalls;
use self::paths::Paths;
use self::processes::Processes;
pub use self::rings::Rings;
use crate::host;
use crate::record::contexts::FoundContexts;
use crate::record::cpu_clock::TakenSamples;
use crate::record::governor::NO_LOCATION;
use crate::record::pipeline::Pipeline;
use crate::record::values::Captured;
use crate::target::address_spaces::AddressSpaces;
use crate::watch::Watches;

/// Calls handed to the sinks at a time, at most.
const BATCH: usize = 16 * 1024;

/// What becomes of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A child has a copy of it.
    Forked {
        /// The child.
        child: u32,
    },
    /// Another program has replaced it.
    Executed,
    /// It may not be looked at any more.
    Withheld,
}

/// What there is beside times.
#[derive(Clone, Copy)]
pub struct Kinds<'a> {
    /// What is counted on every call.
    pub metrics: &'a [Metric],
    /// Variables whose values are recorded.
    pub watches: &'a Watches,
    /// Values of calls.
    pub captured: &'a Captured,
    /// Contexts of calls.
    pub contexts: &'a FoundContexts,
    /// What the processes map.
    pub spaces: &'a AddressSpaces,
}

/// What is known when everything has been read.
pub struct Drained {
    /// What was recorded.
    pub summary: Summary,
    /// Where calls came from.
    pub call_sites: CallSites,
    /// Calls by region.
    pub calls: Vec<u64>,
}

/// A recording as it is read from the kernel.
pub struct Source<'a> {
    programs: &'a Programs,
    pipeline: &'a Pipeline,
    rings: Rings,
    kinds: Kinds<'a>,
    locations: HashMap<u32, Location>,
    processes: Processes,
    call_sites: CallSites,
    cpu_times: CpuTimes,
    spaces: AddressSpaces,
    bad_records: u64,
    reported: HashMap<(LossReason, Option<RegionId>), u64>,
    reported_untimed: HashMap<(UntimedReason, Option<RegionId>), u64>,
    /// Calls that may have been running at the end, by reason and region.
    open_untimed: BTreeMap<(UntimedReason, u32), u64>,
    /// Metrics known to be estimates.
    estimated: HashSet<usize>,
    other_processes: bool,
    /// Children that have begun of late.
    begun: Vec<u32>,
    /// Processes that execute a program which may not be looked at.
    withheld: HashSet<u32>,
    /// With process and time.
    changes: Vec<(u32, Timestamp, Change)>,
    /// Where calls are folded.
    paths: Option<Paths>,
    /// Threads that have ended of late.
    ended: Vec<LocationId>,
    /// Calls with a record by region.
    by_region: Vec<u64>,
    summary: Summary,
}

impl<'a> Source<'a> {
    /// A source for the processes that the user named.
    pub fn new(
        programs: &'a Programs,
        rings: Rings,
        kinds: Kinds<'a>,
        is_folded: bool,
        pipeline: &'a Pipeline,
        pids: &[u32],
    ) -> Source<'a> {
        let mut source = Source {
            programs,
            pipeline,
            rings,
            kinds,
            locations: HashMap::default(),
            processes: Processes::new(kinds.spaces.history().clone()),
            call_sites: CallSites::new(programs.levels() > 0, kinds.spaces.share()),
            cpu_times: CpuTimes::default(),
            spaces: kinds.spaces.share(),
            bad_records: 0,
            reported: HashMap::default(),
            reported_untimed: HashMap::default(),
            open_untimed: BTreeMap::new(),
            estimated: HashSet::new(),
            other_processes: false,
            begun: Vec::new(),
            withheld: HashSet::new(),
            changes: Vec::new(),
            paths: is_folded.then(|| Paths::new(kinds.metrics.len())),
            ended: Vec::new(),
            by_region: Vec::new(),
            summary: Summary::default(),
        };
        for &pid in pids {
            source.define_process(pid);
        }
        source
    }

    /// Calls by region so far: those with a record, or where calls are folded, all.
    pub fn calls_by_region(&self) -> &[u64] {
        self.paths.as_ref().map_or(&self.by_region, |paths| paths.by_region())
    }

    /// The threads that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<LocationId> {
        std::mem::take(&mut self.ended)
    }

    /// Hands calls without a record to the sinks.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn estimated(&mut self, mut estimates: Vec<Estimate>) -> Result<(), Error> {
        self.summary.counted = estimates.iter().map(|estimate| estimate.counted).sum();
        self.summary.missed = (!estimates.is_empty()).then(|| Missed::of(estimates.iter().copied()));
        // What was throttled from the beginning may have been called by threads of which none is known.
        let any = self.locations.keys().min().copied();
        estimates.retain_mut(|estimate| {
            if estimate.location == NO_LOCATION {
                estimate.location = any.map_or(NO_LOCATION, LocationId);
            }
            estimate.location != NO_LOCATION
        });
        for estimate in &estimates {
            self.discover(estimate.location.0)?;
        }
        self.pipeline.send(Item::Estimates(estimates));
        Ok(())
    }

    /// Whether a process of that id has ended.
    pub fn has_ended(&self, pid: u32) -> bool {
        self.processes.has_ended(pid)
    }

    /// Whether a process has begun or ended since the last call.
    pub fn has_other_processes(&mut self) -> bool {
        std::mem::take(&mut self.other_processes)
    }

    /// The children that have begun since the last call.
    pub fn take_begun(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.begun)
    }

    /// What has become of processes since the last call, each with its id and the time.
    pub fn changes(&mut self) -> Vec<(u32, Timestamp, Change)> {
        std::mem::take(&mut self.changes)
    }

    /// The processes that have not ended.
    pub fn living(&self) -> Vec<u32> {
        self.processes.living()
    }

    /// A process that is no child of those known is recorded from now on.
    pub fn join(&mut self, pid: u32, time: Timestamp) {
        self.processes.forget_ended(pid);
        self.define_process(pid);
        self.other_processes = true;
        // Whatever looks at programs that processes execute looks at this one.
        self.changes.push((pid, time, Change::Executed));
    }

    /// Hands what was read from the rings to the sinks.
    ///
    /// # Errors
    /// A ring or map cannot be read.
    pub fn pass(&mut self) -> Result<(), Error> {
        // No more than is there now: as much may come meanwhile as is taken.
        for _ in 0..self.rings.waiting() {
            let Some(records) = self.rings.next()? else { break };
            self.pass_records(records)?;
        }
        Ok(())
    }

    /// Hands all that the rings hold to the sinks.
    fn pass_all(&mut self) -> Result<(), Error> {
        self.rings.ask();
        while let Some(records) = self.rings.next()? {
            self.pass_records(records)?;
        }
        Ok(())
    }

    fn pass_records(&mut self, records: Records) -> Result<(), Error> {
        self.catch_up()?;
        self.bad_records += records.bad_records;
        let counters = self.kinds.metrics.len();
        let forks = records.events.iter().map(|(event, _)| event).chain(&records.forks);
        for fork in forks.filter(|event| event.kind == EventKindCode::RT_EVENT_FORK) {
            self.spaces.history().forked(fork.pid, fork.value, Timestamp(fork.time));
            let child = self.processes.expect(fork.pid, fork.value, Timestamp(fork.time));
            self.pipeline.send(Item::Define(child.into_iter().map(Definition::Process).collect()));
        }
        // A thread's name is looked up before its end makes the kernel side forget it.
        for (number, calls) in records.calls.chunks(BATCH).enumerate() {
            // Many calls of a thread follow each other.
            for calls in calls.chunk_by(|a, b| a.location == b.location) {
                self.discover(calls[0].location)?;
            }
            let (first_call, first) = (number * BATCH, number * BATCH * counters);
            let readings = records.readings[first..first + calls.len() * counters].iter().map(reading_of).collect();
            let values = |place: usize| Some(&records.values.get(place).filter(|(of, _)| *of == place)?.1);
            let calls = (first_call..).zip(calls).map(|(place, call)| self.call_of(call, values(place))).collect();
            self.announce_call_sites();
            self.hand_over(Batch::measured(calls, counters, readings));
        }
        let values = records.values.iter().filter(|(_, values)| values.values.has != 0);
        let values = values.map(|(place, values)| (&records.calls[*place], values));
        self.pipeline.send(Item::Values(self.kinds.captured.batches(values)));
        for (event, arguments) in &records.events {
            self.emit_event(event, arguments)?;
        }
        let samples: Vec<Sample> =
            records.accesses.iter().filter_map(|access| sample_of(self.kinds.watches, access)).collect();
        if !samples.is_empty() {
            self.pipeline.send(Item::Samples(samples));
        }
        self.rings.give_back(records);
        Ok(())
    }

    /// Takes samples of CPU time.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn sampled(&mut self, samples: TakenSamples) -> Result<(), Error> {
        self.catch_up()?;
        self.cpu_times.take(samples, &mut self.call_sites, self.programs)
    }

    /// Hears of all that was mapped before the calls that were read began. What the kernel side knows of addresses at which
    /// there is something else, it forgets.
    fn catch_up(&mut self) -> Result<(), Error> {
        for replaced in self.spaces.history().catch_up() {
            self.call_sites.replaced(&replaced);
            if let Some(space) = self.programs.forget_code(replaced.pid, &replaced.addresses)? {
                self.spaces.forget(space);
            }
        }
        Ok(())
    }

    /// Lets the sinks know that time passes, and what went missing meanwhile.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn tick(&mut self) -> Result<(), Error> {
        self.call_sites.tick();
        let living: HashSet<u32> = self.processes.living().into_iter().collect();
        self.spaces.history().keep(|pid| living.contains(&pid));
        self.announce_call_sites();
        self.name_processes();
        self.report_paths()?;
        self.report_losses(&self.losses()?);
        self.report_untimed()?;
        self.report_estimates();
        self.pipeline.send(Item::Tick);
        Ok(())
    }

    /// Lets the sinks know which calls run. Nothing depends on it: where that cannot be read,
    /// nothing is told.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn snapshot(&mut self) -> Result<(), Error> {
        let Ok(threads) = self.programs.open_calls() else { return Ok(()) };
        let now = host::now();
        let mut running = Vec::new();
        for thread in threads {
            let calls = open::running_of(&thread, now);
            if !calls.is_empty() {
                self.discover(thread.thread.location)?;
                running.extend(calls);
            }
        }
        self.pipeline.send(Item::Running(now, running));
        Ok(())
    }

    /// After disarming, at that time, which is the end of the recording: hands over what is left, the calls that still
    /// run, and what is missing; `regions`: how many have ids. Gives the call sites, too.
    ///
    /// # Errors
    /// A ring or map cannot be read.
    pub fn drain(mut self, regions: usize, disarmed: Timestamp) -> Result<Drained, Error> {
        let open = self.programs.take_open_calls()?;
        self.pass_all()?;
        self.sampled(TakenSamples::default())?;
        self.announce_call_sites();
        let end = host::clock_anchor_at(disarmed);
        for thread in open {
            let id = thread.thread.location;
            self.discover(id)?;
            let with_values = thread.calls.iter().enumerate();
            let calls = with_values.map(|(place, open)| self.call_of(&open.call, thread.values.get(place))).collect();
            self.announce_call_sites();
            let open = OpenCalls::of(&thread, calls, self.kinds.metrics.len(), end.monotonic);
            for call in thread.calls.iter().filter(|open| open.doubt > 0) {
                let reason = reason_of(UntimedCode(u32::from(call.doubt) - 1));
                *self.open_untimed.entry((reason, call.call.region)).or_default() += 1;
            }
            if let Some(known) = &mut self.paths {
                open.with_paths().for_each(|(call, readings, path)| known.add_open(path, call, readings));
            }
            self.hand_over(open.recorded());
            let values = thread.calls.iter().zip(&thread.values);
            let values = values.filter(|(open, values)| open.has_record != 0 && values.values.has != 0);
            let values = values.map(|(open, values)| (&open.call, values));
            self.pipeline.send(Item::Values(self.kinds.captured.batches(values)));
            if let Some(location) = self.locations.get_mut(&id) {
                location.calls_entered = Some(thread.thread.calls);
                location.name = comm(&thread.thread.comm);
                self.pipeline.send(Item::Define(vec![Definition::Location(location.clone())]));
            }
        }
        self.name_processes();
        self.report_paths()?;
        if let Some(paths) = &self.paths {
            let recorded = self.summary.calls;
            paths.count(&mut self.summary);
            self.summary.folded = self.summary.calls.saturating_sub(recorded);
        }
        self.summary.locations = self.locations.len() as u64;
        let mut losses = self.losses()?;
        losses.extend(self.unaccounted(regions, &losses)?);
        self.report_losses(&losses);
        self.summary.losses = losses;
        self.summary.outside = self.outside()?;
        self.summary.untimed = self.untimed()?;
        self.report_untimed()?;
        self.report_estimates();
        self.summary.end = end;
        let calls = self.calls_by_region().to_vec();
        Ok(Drained { summary: self.summary, call_sites: self.call_sites, calls })
    }

    fn hand_over(&mut self, batch: Batch) {
        self.summary.calls += batch.len() as u64;
        for call in &*batch {
            add_calls(&mut self.by_region, call.region, 1);
            match call.ending {
                Ending::Returned => {}
                Ending::Unwound => self.summary.unwound += 1,
                Ending::Open => self.summary.open += 1,
                Ending::Unseen => self.summary.unseen += 1,
            }
        }
        self.pipeline.send(Item::Calls(batch));
    }

    /// A call with its call site, and its context if it has one; its location is known.
    fn call_of(&mut self, record: &CallRecord, values: Option<&CallWords>) -> Call {
        let pid = self.locations.get(&record.location).map_or(0, |location| location.pid);
        let context = values.map(CallWords::context).filter(|&number| number != NO_CONTEXT).map(ContextId);
        Call {
            call_site: self.call_sites.at(pid, record.space, record.site, Timestamp(record.start)),
            context,
            ..call_of(record)
        }
    }

    fn announce_call_sites(&mut self) {
        self.bad_records += self.call_sites.add_contexts(self.kinds.contexts.take());
        self.pipeline.send(Item::Define(self.call_sites.announce()));
        self.pipeline.send(Item::Define(self.cpu_times.announce()));
    }

    /// Tells the sinks which call paths have more calls than before.
    fn report_paths(&mut self) -> Result<(), Error> {
        let Some(mut paths) = self.paths.take() else { return Ok(()) };
        let rows = paths.read(self.programs)?;
        for row in &rows {
            self.discover(row.location.0)?;
        }
        self.pipeline.send(Item::Profile(rows));
        self.paths = Some(paths);
        Ok(())
    }

    /// Defines a location that calls refer to.
    fn discover(&mut self, id: u32) -> Result<(), Error> {
        if self.locations.contains_key(&id) {
            return Ok(());
        }
        let record = self.programs.location(id)?.unwrap_or_default();
        self.define_process(record.pid);
        let location = location_of(id, &record);
        self.pipeline.send(Item::Define(vec![Definition::Location(location.clone())]));
        self.locations.insert(id, location);
        Ok(())
    }

    /// Tells the programs of processes that had ended before they could be looked at.
    fn name_processes(&mut self) {
        let named = self.processes.name_ended();
        self.pipeline.send(Item::Define(named.into_iter().map(Definition::Process).collect()));
    }

    fn define_process(&mut self, pid: u32) {
        if let Some(process) = self.processes.discover(pid) {
            self.spaces.history().begin(pid);
            self.pipeline.send(Item::Define(vec![Definition::Process(process)]));
        }
    }

    fn emit_event(&mut self, event: &EventRecord, arguments: &[u8]) -> Result<(), Error> {
        let time = Timestamp(event.time);
        let (pid, value) = (event.pid, event.value);
        let kind = match event.kind {
            EventKindCode::RT_EVENT_FORK => {
                self.other_processes = true;
                self.begun.push(value);
                self.summary.untraced_children += 1;
                self.changes.push((pid, time, Change::Forked { child: value }));
                self.spaces.history().forked(pid, value, time);
                self.pipeline.send(Item::Define(vec![Definition::Process(self.processes.forked(pid, value, time))]));
                EventKind::Fork { child: value }
            }
            EventKindCode::RT_EVENT_EXEC => {
                let process = self.processes.executes(pid, time, arguments);
                let executable = process.executable.clone();
                self.pipeline.send(Item::Define(vec![Definition::Process(process)]));
                if self.withheld.remove(&pid) {
                    self.withhold(pid, event.tid, time);
                } else {
                    self.cpu_times.resume(pid, time);
                    self.changes.push((pid, time, Change::Executed));
                }
                EventKind::Exec { executable }
            }
            EventKindCode::RT_EVENT_EXIT => {
                self.other_processes = true;
                let process = self.processes.exited(pid, time, value);
                let code = process.exit_code.unwrap_or_default();
                self.pipeline.send(Item::Define(vec![Definition::Process(process)]));
                EventKind::Exit { code }
            }
            EventKindCode::RT_EVENT_WITHHELD if value != 0 => {
                self.withheld.insert(pid);
                return Ok(());
            }
            EventKindCode::RT_EVENT_WITHHELD => {
                self.withhold(pid, event.tid, time);
                return Ok(());
            }
            EventKindCode::RT_EVENT_THREAD_END => return self.thread_ended(value),
            _ => {
                self.bad_records += 1;
                return Ok(());
            }
        };
        self.pipeline.send(Item::Event(Event { time, pid: Some(pid), tid: Some(event.tid), kind }));
        Ok(())
    }

    /// Nothing of a process is recorded from here on, as who records could not ptrace it.
    pub fn withhold(&mut self, pid: u32, tid: u32, time: Timestamp) {
        self.cpu_times.withhold(pid, time);
        self.changes.push((pid, time, Change::Withheld));
        self.summary.withheld += 1;
        let kind = EventKind::Withheld { program: processes::program(pid) };
        self.pipeline.send(Item::Event(Event { time, pid: Some(pid), tid: Some(tid), kind }));
    }

    fn thread_ended(&mut self, id: u32) -> Result<(), Error> {
        if let Some(record) = self.programs.location(id)? {
            self.define_process(record.pid);
            let location = location_of(id, &record);
            self.pipeline.send(Item::Define(vec![Definition::Location(location.clone())]));
            self.locations.insert(id, location);
            self.programs.forget_location(id)?;
            self.ended.push(LocationId(id));
            if let Some(paths) = &mut self.paths {
                paths.location_ended(id);
            }
        }
        Ok(())
    }

    fn report_losses(&mut self, losses: &[Loss]) {
        for &loss in losses {
            let count = growth(&mut self.reported, (loss.reason, loss.region), loss.count);
            if count > 0 {
                let kind = EventKind::Loss(Loss { count, ..loss });
                self.pipeline.send(Item::Event(Event { time: host::now(), pid: None, tid: None, kind }));
            }
        }
    }

    /// Calls so far that were not within those that open.
    fn outside(&self) -> Result<u64, Error> {
        let counted = self.programs.losses()?.into_iter();
        Ok(counted.filter(|(key, _)| key.reason == LossCode::RT_LOSS_OUTSIDE).map(|(_, calls)| calls).sum())
    }

    /// The calls of which nothing else tells that they are missing.
    fn unaccounted(&self, regions: usize, losses: &[Loss]) -> Result<Vec<Loss>, Error> {
        let mut entries = self.programs.entries();
        let sums = entries.len();
        for (key, laps) in self.programs.losses()? {
            if !is_lost(&key) {
                let entries = &mut entries[key.region as usize % sums];
                *entries = entries.saturating_sub(laps);
            }
        }
        let ledger = check::Ledger {
            entries: &entries,
            regions,
            calls: self.calls_by_region(),
            losses,
            is_folded: self.paths.is_some(),
            is_governed: self.programs.is_governed(),
        };
        Ok(ledger.unaccounted())
    }

    /// Tells once of each counter that did not count all the time.
    fn report_estimates(&mut self) {
        for (index, metric) in self.kinds.metrics.iter().enumerate() {
            if self.programs.is_estimated(index) && self.estimated.insert(index) {
                let kind = EventKind::Estimated { metric: metric.name.clone() };
                self.pipeline.send(Item::Event(Event { time: host::now(), pid: None, tid: None, kind }));
            }
        }
    }

    /// Tells the sinks which calls have no duration, and why.
    fn report_untimed(&mut self) -> Result<(), Error> {
        for untimed in self.untimed()? {
            let count = growth(&mut self.reported_untimed, (untimed.reason, untimed.region), untimed.count);
            if count > 0 {
                let kind = EventKind::Untimed(Untimed { count, ..untimed });
                self.pipeline.send(Item::Event(Event { time: host::now(), pid: None, tid: None, kind }));
            }
        }
        Ok(())
    }

    fn untimed(&self) -> Result<Vec<Untimed>, Error> {
        let mut sums: BTreeMap<(UntimedReason, u32), u64> = self.open_untimed.clone();
        for (key, count) in self.programs.untimed()? {
            *sums.entry((reason_of(key.reason), key.region)).or_default() += count;
        }
        let untimed = |((reason, region), count)| Untimed { reason, region: Some(RegionId(region)), count };
        Ok(sums.into_iter().map(untimed).collect())
    }

    fn losses(&self) -> Result<Vec<Loss>, Error> {
        let counted = self.programs.losses()?;
        let lost = counted.iter().filter(|(key, _)| is_lost(key));
        let mut losses: Vec<Loss> = lost.map(|&(key, count)| loss_of(&key, count)).collect();
        if self.bad_records > 0 {
            losses.push(Loss { reason: LossReason::BadRecord, region: None, count: self.bad_records });
        }
        let not_run = self.programs.runs_missed()?;
        if not_run > 0 {
            losses.push(Loss { reason: LossReason::ProgramNotRun, region: None, count: not_run });
        }
        losses.sort_by_key(|loss| (loss.reason, loss.region));
        Ok(losses)
    }
}

fn call_of(record: &CallRecord) -> Call {
    let ending = match record.ending {
        EndingCode::RT_RETURNED => Ending::Returned,
        EndingCode::RT_UNWOUND => Ending::Unwound,
        EndingCode::RT_OPEN => Ending::Open,
        _ => Ending::Unseen,
    };
    Call {
        location: LocationId(record.location),
        region: RegionId(record.region),
        id: record.id,
        parent: record.parent,
        depth: record.depth.into(),
        start: Timestamp(record.start),
        // The kernel side has a 0 there where it observed no return.
        duration: (ending != Ending::Unseen).then_some(record.duration),
        child: record.child,
        ending,
        call_site: None,
        context: None,
    }
}

/// Adds calls to the sums by region, whose ids count up from 0.
fn add_calls(by_region: &mut Vec<u64>, region: RegionId, calls: u64) {
    if by_region.len() <= region.index() {
        by_region.resize(region.index() + 1, 0);
    }
    by_region[region.index()] += calls;
}

fn reading_of(record: &ReadingRecord) -> Reading {
    Reading { inclusive: record.inclusive, child: record.child }
}

/// The value of a watched variable, by the thread that accessed it.
fn sample_of(watches: &Watches, access: &AccessRecord) -> Option<Sample> {
    let (metric, value) = watches.value(access.watch as usize, access.value)?;
    Some(Sample { metric, time: Timestamp(access.time), instance: access.tid, value })
}

fn location_of(id: u32, record: &LocationRecord) -> Location {
    let has_ended = record.end != 0;
    Location {
        id: LocationId(id),
        pid: record.pid,
        tid: record.tid,
        start: Timestamp(record.start),
        end: has_ended.then_some(Timestamp(record.end)),
        name: comm(&record.comm),
        calls_entered: has_ended.then_some(record.calls),
    }
}

fn reason_of(code: UntimedCode) -> UntimedReason {
    match code {
        UntimedCode::RT_UNTIMED_NOT_YET_PLACED => UntimedReason::NotYetPlaced,
        UntimedCode::RT_UNTIMED_NOT_PROBEABLE => UntimedReason::NotProbeable,
        UntimedCode::RT_UNTIMED_DROPPED => UntimedReason::SiteDropped,
        UntimedCode::RT_UNTIMED_NOT_ASKED_FOR => UntimedReason::NotAskedFor,
        UntimedCode::RT_UNTIMED_AMBIGUOUS => UntimedReason::Ambiguous,
        _ => UntimedReason::OverwrittenByOther,
    }
}

/// By how much a count exceeds what was told of it before.
fn growth<K: Eq + Hash>(told: &mut HashMap<K, u64>, key: K, count: u64) -> u64 {
    count - told.insert(key, count).unwrap_or_default()
}

/// Whether what is counted there is missing: a lap is no call, and a call outside of `--within` was not to be recorded.
fn is_lost(key: &LossKey) -> bool {
    !matches!(key.reason, LossCode::RT_LOSS_LAP | LossCode::RT_LOSS_OUTSIDE)
}

fn loss_of(key: &LossKey, count: u64) -> Loss {
    let reason = match key.reason {
        LossCode::RT_LOSS_RING_FULL => LossReason::RingFull,
        LossCode::RT_LOSS_TOO_DEEP => LossReason::TooDeep,
        LossCode::RT_LOSS_NO_MEMORY => LossReason::NoMemory,
        LossCode::RT_LOSS_TOO_MANY_LOCATIONS => LossReason::TooManyLocations,
        LossCode::RT_LOSS_EVENT => LossReason::EventLost,
        LossCode::RT_LOSS_TOO_MANY_PATHS => LossReason::TooManyPaths,
        LossCode::RT_LOSS_ACCESS => LossReason::AccessUncounted,
        LossCode::RT_LOSS_VALUE => LossReason::ValueLost,
        LossCode::RT_LOSS_UNREAD => LossReason::ValueUnread,
        LossCode::RT_LOSS_CONTEXT => LossReason::ContextLost,
        LossCode::RT_LOSS_MAYBE_LAP => LossReason::CallOrLap,
        _ => LossReason::BadRecord,
    };
    Loss { reason, region: (key.region != NO_REGION).then_some(RegionId(key.region)), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_whose_return_was_not_observed_has_no_duration() {
        let duration_of = |ending| call_of(&CallRecord { ending, duration: 7, ..CallRecord::default() }).duration;
        for ending in [EndingCode::RT_RETURNED, EndingCode::RT_UNWOUND, EndingCode::RT_OPEN] {
            assert_eq!(duration_of(ending), Some(7));
        }
        assert_eq!(duration_of(EndingCode::RT_UNSEEN), None);
    }
}
