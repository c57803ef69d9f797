//! Many trace directories read as one trace: the ranks of a parallel job, the nodes of a machine.
//!
//! Each recording counts its ids from the begin, and each machine its clock. Here locations keep
//! apart, libraries and regions that are the same file and place become one, and all times are on
//! one clock: that of the machine that started first. Traces of one boot of one machine share their
//! clock already; between machines the wall clocks decide, so times are as good as these agree.
//!
//! A directory that is a trace itself is a set of one, with the ids that it has.

mod merged;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use rtrace_model::{
    Batch, Call, CallSiteId, ClockAnchor, ContextId, CpuSamples, Estimate, Event, EventKind, FoldedPath, Header,
    HitsInVain, Library, Location, LocationId, Loss, Process, RegionId, ReturnSites, Sample, Summary, Timestamp,
    Untimed,
};

use crate::definitions::{Definitions, find};
use crate::parallel::in_order;
use crate::values;
use crate::{Error, Trace, Warning};

use self::merged::Merged;

/// One trace directory, or several below one directory, as one trace, with the [definitions](Definitions) of all.
#[derive(Debug)]
pub struct TraceSet {
    parts: Vec<SetMember>,
    definitions: Definitions,
    /// Names that functions of several libraries have.
    ambiguous: HashSet<String>,
    header: Header,
    summary: Option<Summary>,
    warnings: Vec<Warning>,
}

/// One of the traces, and what its ids and times are in the set.
#[derive(Debug)]
struct SetMember {
    trace: Trace,
    /// Nanoseconds from its clock to the clock of the set.
    shift: u64,
    /// What is added to its location ids.
    locations_before: u32,
    /// Its region ids in the set.
    regions: HashMap<RegionId, RegionId>,
    /// Its call sites in the set.
    call_sites: HashMap<CallSiteId, CallSiteId>,
    /// Its contexts in the set.
    contexts: HashMap<ContextId, ContextId>,
}

impl Deref for TraceSet {
    type Target = Definitions;

    fn deref(&self) -> &Definitions {
        &self.definitions
    }
}

impl TraceSet {
    /// Opens `path`: a trace directory, or one that holds trace directories.
    ///
    /// # Errors
    /// There is no trace, or one of them cannot be opened.
    pub fn open(path: &Path) -> Result<TraceSet, Error> {
        let members = match Trace::open(path) {
            Err(Error::NotATrace { .. }) => members(path)?,
            opened => return Ok(TraceSet::of(vec![opened?])),
        };
        if members.is_empty() {
            return Err(Error::NotATrace { path: path.to_owned() });
        }
        let mut traces = Vec::with_capacity(members.len());
        let open = |place: usize| Trace::open(&members[place]);
        in_order(members.len(), open, |trace| trace.map(|trace| traces.push(trace)))?;
        Ok(TraceSet::of(traces))
    }

    /// The traces as one; there is at least one.
    fn of(traces: Vec<Trace>) -> TraceSet {
        let shifts = shifts(traces.iter().map(Trace::header));
        let mut merged = Merged::default();
        let parts: Vec<SetMember> =
            traces.into_iter().zip(shifts).map(|(trace, shift)| merged.take_in(trace, shift)).collect();
        let (definitions, ambiguous) = merged.finish(&parts);
        let header = header(&parts);
        let summary = summary(&parts);
        let warnings = parts.iter().flat_map(|part| part.trace.warnings().iter().cloned()).collect();
        TraceSet { parts, definitions, ambiguous, header, summary, warnings }
    }

    /// The traces of which the set is made, with the ids and times that each has.
    pub fn traces(&self) -> impl ExactSizeIterator<Item = &Trace> {
        self.parts.iter().map(|part| &part.trace)
    }

    /// Nanoseconds from the clock of each of the [`traces`](TraceSet::traces) to that of the set.
    pub(crate) fn shifts(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.shift)
    }

    /// What was known when the first recording began. Of several traces, texts that differ follow
    /// each other, `cpus` counts those of all machines, and there is no rank.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was known when the last recording had ended, summed up; absent unless all have ended.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// What is missing, found while opening.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// A function's name where its library is not told beside it: with that, if functions of others have the name, too.
    pub fn function(&self, id: RegionId) -> Option<Cow<'_, str>> {
        let region = self.region(id)?;
        if !self.ambiguous.contains(&region.name) {
            return Some(Cow::Borrowed(&region.name));
        }
        let library = self.library(region.library).map_or("not defined", Library::name);
        Some(Cow::Owned(format!("{} [{library}]", region.name)))
    }

    /// How many calls of a region have values, and of each of [its columns](Definitions::value_columns_of) how many of
    /// these are null, where the files say it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn value_nulls(&self, region: RegionId) -> Result<(u64, Vec<Option<u64>>), Error> {
        let columns = self.value_columns_of(region);
        let (mut rows, mut sums) = (0, vec![Some(0_u64); columns.len()]);
        for part in &self.parts {
            let Some((&own, _)) = part.regions.iter().find(|&(_, &id)| id == region) else { continue };
            let own_columns = part.trace.value_columns_of(own);
            for segment in part.trace.value_segments(own) {
                let (of_segment, nulls) = values::nulls(segment, own_columns)?;
                rows += of_segment;
                for (column, sum) in columns.iter().zip(&mut sums) {
                    let place = own_columns.iter().position(|of| of.name == column.name);
                    // What a trace has not recorded is null there.
                    let of_column = place.map_or(Some(of_segment), |place| nulls[place]);
                    *sum = sum.zip(of_column).map(|(sum, of)| sum.saturating_add(of));
                }
            }
        }
        Ok((rows, sums))
    }

    /// One of the [`traces`](TraceSet::traces), by its place.
    pub(crate) fn part(&self, place: usize) -> &Trace {
        &self.parts[place].trace
    }

    /// The place of the trace that a location belongs to, and its id there.
    pub(crate) fn origin_of(&self, location: LocationId) -> Option<(usize, LocationId)> {
        let place = self.place_of(location)?;
        Some((place, LocationId(location.0 - self.parts[place].locations_before)))
    }

    /// The ids of the regions of one of the traces, each with that of the set.
    pub(crate) fn regions_of(&self, place: usize) -> impl Iterator<Item = (RegionId, RegionId)> {
        self.parts[place].regions.iter().map(|(&own, &id)| (own, id))
    }

    /// The process that a location belongs to.
    pub fn process_of(&self, location: &Location) -> Option<&Process> {
        let part = self.part_of(location.id)?;
        let id = LocationId(location.id.0 - part.locations_before);
        let process = part.trace.process_of(part.trace.location(id)?)?;
        let key = |process: &Process| (process.pid, process.start);
        find(self.processes(), (process.pid, part.time(process.start)), key)
    }

    /// What was known when the recording of that location began: its machine and rank.
    pub fn header_of(&self, location: LocationId) -> Option<&Header> {
        self.part_of(location).map(|part| part.trace.header())
    }

    /// When the recording of that location began and ended, on the clock of the set; none while it goes on.
    pub fn recorded_during(&self, location: LocationId) -> Option<[Timestamp; 2]> {
        let part = self.part_of(location)?;
        let [begin, end] = [part.trace.header().begin, part.trace.summary()?.end];
        Some([begin, end].map(|anchor| part.time(anchor.monotonic)))
    }

    /// The rank of the process of that location in a parallel job: its own, or else that of the recording.
    pub fn rank_of(&self, location: &Location) -> Option<u32> {
        let own = self.process_of(location).and_then(|process| process.rank);
        own.or_else(|| Some(self.header_of(location.id)?.rank.as_ref()?.rank))
    }

    fn part_of(&self, location: LocationId) -> Option<&SetMember> {
        self.parts.get(self.place_of(location)?)
    }

    fn place_of(&self, location: LocationId) -> Option<usize> {
        self.parts.partition_point(|part| part.locations_before < location.0).checked_sub(1)
    }

    /// Number of batches of calls.
    pub fn batches(&self) -> usize {
        self.parts.iter().map(|part| part.trace.calls().size_hint().0).sum()
    }

    /// The calls in batches, trace after trace, of each as [`Trace::calls`] gives them.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        let is_counted = self.is_counted();
        self.parts.iter().flat_map(move |part| part.calls(is_counted))
    }

    /// Of the batches of [`calls`](TraceSet::calls) those that may have calls which ran within that time, without
    /// reading most of the others.
    pub fn calls_near(&self, from: Timestamp, to: Timestamp) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        let is_counted = self.is_counted();
        self.parts.iter().flat_map(move |part| {
            let [from, to] = [from, to].map(|time| Timestamp(time.0.saturating_sub(part.shift)));
            part.trace.calls_near(from, to).map(move |batch| Ok(part.batch(batch?, is_counted)))
        })
    }

    /// The calls of one of the [`traces`](TraceSet::traces), by its place.
    pub fn calls_of(&self, place: usize) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        let is_counted = self.is_counted();
        self.parts.get(place).into_iter().flat_map(move |part| part.calls(is_counted))
    }

    /// Calls on record, without reading them.
    pub fn recorded_calls(&self) -> u64 {
        self.parts.iter().map(|part| part.trace.recorded_calls()).sum()
    }

    /// All calls, as call paths where that is asked for and known, and else one by one.
    pub fn folded(&self, is_asked_for: bool) -> Folded<'_> {
        let mut folded = Folded { set: self, paths: Vec::new(), unfolded: Vec::new() };
        folded.paths.extend(self.profile().iter().cloned().map(FoldedPath::from));
        for part in &self.parts {
            if !part.trace.profile().is_empty() {
                continue;
            }
            match is_asked_for.then(|| part.trace.folded()).flatten() {
                Some(paths) => folded.paths.extend(paths.into_iter().map(|path| part.path(path))),
                None => folded.unfolded.push(part),
            }
        }
        folded
    }

    /// The events in batches, trace after trace, by time within each.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = Result<Vec<Event>, Error>> {
        let adapted =
            |part: &SetMember, events: Vec<Event>| events.into_iter().map(|event| part.event(event)).collect();
        self.parts.iter().flat_map(move |part| part.trace.events().map(move |events| Ok(adapted(part, events?))))
    }

    fn is_counted(&self) -> bool {
        !self.metrics().is_empty()
    }

    /// The samples in batches, trace after trace, by metric, instance and time within each batch; of
    /// metrics that all have.
    pub fn samples(&self) -> impl Iterator<Item = Result<Vec<Sample>, Error>> {
        (0..self.parts.len()).flat_map(|place| self.samples_of(place))
    }

    /// The samples of one of the [`traces`](TraceSet::traces), by its place.
    pub fn samples_of(&self, place: usize) -> impl Iterator<Item = Result<Vec<Sample>, Error>> {
        let has_metrics = self.is_counted();
        let shifted = |part: &SetMember, samples: Vec<Sample>| {
            samples.into_iter().map(|sample| Sample { time: part.time(sample.time), ..sample }).collect()
        };
        let part = self.parts.get(place).filter(|_| has_metrics);
        part.into_iter().flat_map(move |part| part.trace.samples().map(move |samples| Ok(shifted(part, samples?))))
    }

    /// What is known to be missing, of all traces.
    ///
    /// # Errors
    /// The events of an unfinished trace cannot be read.
    pub fn losses(&self) -> Result<Vec<Loss>, Error> {
        let mut losses = Vec::new();
        for part in &self.parts {
            losses.extend(part.trace.losses()?.into_iter().map(|loss| part.loss(loss)));
        }
        Ok(losses)
    }

    /// How many calls were not timed, and why, of all traces.
    ///
    /// # Errors
    /// The events of an unfinished trace cannot be read.
    pub fn untimed(&self) -> Result<Vec<Untimed>, Error> {
        let mut untimed = Vec::new();
        for part in &self.parts {
            untimed.extend(part.trace.untimed()?.into_iter().map(|untimed| part.untimed(untimed)));
        }
        Ok(untimed)
    }
}

/// All calls of a set.
#[derive(Debug)]
pub struct Folded<'a> {
    set: &'a TraceSet,
    /// Those of traces whose calls are folded by call path: by location, but for those of the
    /// [`profile`](Definitions::profile), which come first.
    pub paths: Vec<FoldedPath>,
    unfolded: Vec<&'a SetMember>,
}

impl Folded<'_> {
    /// Whether all calls are in the paths.
    pub fn is_complete(&self) -> bool {
        self.unfolded.is_empty()
    }

    /// The calls of the other traces, in batches, trace after trace, of each as [`Trace::calls`] gives them.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        let is_counted = self.set.is_counted();
        let calls = move |part| SetMember::calls(part, is_counted);
        self.unfolded.iter().copied().flat_map(calls)
    }
}

impl SetMember {
    fn calls(&self, is_counted: bool) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        self.trace.calls().map(move |batch| Ok(self.batch(batch?, is_counted)))
    }

    fn path(&self, mut path: FoldedPath) -> FoldedPath {
        path.profile.location = self.location(path.profile.location);
        path.profile.region = self.region(path.profile.region);
        if let Some(detail) = &mut path.detail {
            detail.call_site = self.call_site(detail.call_site);
            detail.context = self.context(detail.context);
        }
        path
    }

    fn call(&self, call: &mut Call) {
        call.location = self.location(call.location);
        call.region = self.region(call.region);
        call.call_site = self.call_site(call.call_site);
        call.context = self.context(call.context);
        call.start = self.time(call.start);
    }

    fn location(&self, id: LocationId) -> LocationId {
        LocationId(id.0.saturating_add(self.locations_before))
    }

    fn call_site(&self, id: Option<CallSiteId>) -> Option<CallSiteId> {
        id.and_then(|site| self.call_sites.get(&site).copied())
    }

    fn context(&self, id: Option<ContextId>) -> Option<ContextId> {
        id.and_then(|context| self.contexts.get(&context).copied())
    }

    fn time(&self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_add(self.shift))
    }

    fn anchor(&self, anchor: ClockAnchor) -> ClockAnchor {
        ClockAnchor { monotonic: self.time(anchor.monotonic), ..anchor }
    }

    /// Calls of regions that are not defined stay so.
    fn region(&self, id: RegionId) -> RegionId {
        self.regions.get(&id).copied().unwrap_or(RegionId(u32::MAX))
    }

    fn estimate(&self, estimate: Estimate) -> Estimate {
        let location = self.location(estimate.location);
        Estimate { location, region: self.region(estimate.region), ..estimate }
    }

    fn samples(&self, samples: CpuSamples) -> CpuSamples {
        let (call_site, context) = (self.call_site(samples.call_site), self.context(samples.context));
        CpuSamples { call_site, context, ..samples }
    }

    fn batch(&self, mut batch: Batch, is_counted: bool) -> Batch {
        batch.calls_mut().iter_mut().for_each(|call| self.call(call));
        if is_counted { batch } else { Batch::from(batch.into_calls()) }
    }

    fn event(&self, event: Event) -> Event {
        let kind = match event.kind {
            EventKind::Loss(loss) => EventKind::Loss(self.loss(loss)),
            EventKind::Untimed(untimed) => EventKind::Untimed(self.untimed(untimed)),
            EventKind::BlindWindow { library, since } => EventKind::BlindWindow { library, since: self.time(since) },
            EventKind::Level { region, name, from, to } => {
                EventKind::Level { region: self.region(region), name, from, to }
            }
            kind => kind,
        };
        Event { time: self.time(event.time), kind, ..event }
    }

    fn loss(&self, loss: Loss) -> Loss {
        Loss { region: loss.region.map(|region| self.region(region)), ..loss }
    }

    fn untimed(&self, untimed: Untimed) -> Untimed {
        Untimed { region: untimed.region.map(|region| self.region(region)), ..untimed }
    }
}

/// The trace directories in a folder, by name.
fn members(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut members = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("open", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.join(crate::directory::MANIFEST).is_file() {
            members.push(path);
        }
    }
    members.sort();
    Ok(members)
}

/// Nanoseconds from each trace's clock to one clock: that of the machine that started first, so
/// that no time becomes negative.
fn shifts<'a>(headers: impl Iterator<Item = &'a Header> + Clone) -> Vec<u64> {
    let boots: Vec<u64> = headers
        .clone()
        .map(|header| {
            // One reading of the two clocks is as good as another: traces of one boot take the same.
            let same = |other: &&Header| header.boot_id.is_some() && other.boot_id == header.boot_id;
            let begin = headers.clone().find(same).unwrap_or(header).begin;
            begin.realtime_ns.saturating_sub(begin.monotonic.0)
        })
        .collect();
    let first = boots.iter().copied().min().unwrap_or(0);
    boots.into_iter().map(|boot| boot - first).collect()
}

fn header(parts: &[SetMember]) -> Header {
    let headers = || parts.iter().map(|part| part.trace.header());
    if let [only] = parts {
        return only.trace.header().clone();
    }
    let mut machines: Vec<(&str, u32)> = headers().map(|header| (header.host.as_str(), header.cpus)).collect();
    machines.sort_unstable();
    machines.dedup_by_key(|(host, _)| *host);
    let begins = parts.iter().map(|part| part.anchor(part.trace.header().begin));
    Header {
        rtrace_version: distinct(headers().map(|header| &header.rtrace_version)),
        host: distinct(headers().map(|header| &header.host)),
        kernel: distinct(headers().map(|header| &header.kernel)),
        cpus: machines.iter().fold(0, |sum, &(_, cpus)| cpus.saturating_add(sum)),
        command_line: headers().next().map(|header| header.command_line.clone()).unwrap_or_default(),
        command: headers().next().map(|header| header.command.clone()).unwrap_or_default(),
        mechanism: distinct(headers().map(|header| &header.mechanism)),
        begin: begins.min_by_key(|begin| begin.monotonic).unwrap_or_default(),
        ..Header::default()
    }
}

/// The texts without repetitions, in the order of first appearance.
fn distinct<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text.as_str()) {
            seen.push(text);
        }
    }
    seen.join(", ")
}

fn sum_of(a: ReturnSites, b: ReturnSites) -> ReturnSites {
    ReturnSites {
        placed: a.placed + b.placed,
        hits: a.hits + b.hits,
        unmatched: a.unmatched + b.unmatched,
        single_stepped: a.single_stepped + b.single_stepped,
        waited: a.waited + b.waited,
    }
}

fn summary(parts: &[SetMember]) -> Option<Summary> {
    if let [only] = parts {
        return only.trace.summary().cloned();
    }
    let mut total = Summary::default();
    for part in parts {
        let summary = part.trace.summary()?;
        total.calls += summary.calls;
        total.folded += summary.folded;
        total.open += summary.open;
        total.unwound += summary.unwound;
        total.unseen += summary.unseen;
        total.counted += summary.counted;
        total.outside += summary.outside;
        if let Some(missed) = summary.missed {
            *total.missed.get_or_insert_default() += missed;
        }
        total.locations += summary.locations;
        total.refused += summary.refused;
        total.blind_windows += summary.blind_windows;
        total.overwritten += summary.overwritten;
        total.withheld += summary.withheld;
        total.untraced_children += summary.untraced_children;
        total.lacks_children |= summary.lacks_children;
        total.losses.extend(summary.losses.iter().map(|&loss| part.loss(loss)));
        total.untimed.extend(summary.untimed.iter().map(|&untimed| part.untimed(untimed)));
        total.return_sites = sum_of(total.return_sites, summary.return_sites);
        let in_vain = |&of: &HitsInVain| HitsInVain { region: part.region(of.region), ..of };
        total.hits_in_vain.extend(summary.hits_in_vain.iter().map(in_vain));
        let end = part.anchor(summary.end);
        if end.monotonic >= total.end.monotonic {
            total.end = end;
        }
    }
    let mut regions: Vec<&RegionId> = parts.iter().flat_map(|part| part.regions.values()).collect();
    regions.sort_unstable();
    regions.dedup();
    Some(Summary { regions: regions.len() as u64, ..total })
}
