//! The last of a recording, in memory: items by time, up to a time and a number of bytes.
//!
//! What is always true of the recording is apart: definitions, and events that later calls cannot be understood without.
//! Of threads and processes only those are kept that may have a call in what is kept.

use std::collections::{BTreeMap, VecDeque};
use std::mem::size_of;

use rtrace_model::{
    Batch, Call, Definition, Event, EventKind, Item, Location, Process, Reading, Region, RegionId, Sample, Timestamp,
    ValueBatch, Values,
};

/// Calls that come within this time are kept and dropped together, up to so many.
const STEP_NS: u64 = 100_000_000;
const STEP_CALLS: usize = 1 << 14;

/// Bytes of an item beside what it holds.
const PER_ITEM: usize = 128;

/// About so many bytes of an event, and of a text.
const PER_EVENT: usize = 256;

struct KeptDefinition {
    /// The time of its first and of its last part.
    from: Timestamp,
    until: Timestamp,
    bytes: usize,
    item: Item,
}

/// What calls refer to, by what it is and by its key; in the order in which it is written.
#[derive(Clone, Default)]
pub(super) struct KeptDefinitions(pub(super) BTreeMap<(u8, u64, u64), Definition>);

impl KeptDefinitions {
    fn learn(&mut self, definition: &Definition) {
        let key = match definition {
            Definition::Library(library) => (0, library.id.0.into(), 0),
            Definition::Region(region) => region_key(region.id),
            Definition::Metric(metric) => (2, metric.id.0.into(), 0),
            Definition::ValueColumn(column) => (3, column.region.0.into(), column.position.into()),
            Definition::Process(process) => (4, process.pid.into(), process.start.0),
            Definition::Location(location) => (5, location.id.0.into(), 0),
            Definition::CallSite(site) => (6, site.id.0.into(), 0),
            Definition::Context(context) => (7, context.id.0.into(), 0),
            Definition::CpuSamples(_) => return,
        };
        self.0.insert(key, definition.clone());
    }

    /// The function of that id.
    pub(super) fn region(&self, id: RegionId) -> Option<&Region> {
        match self.0.get(&region_key(id)) {
            Some(Definition::Region(region)) => Some(region),
            _ => None,
        }
    }

    /// Forgets what ended before a time. Of a process that has been forgotten no thread is left.
    fn forget_before(&mut self, time: Timestamp) {
        self.0.retain(|_, definition| match definition {
            Definition::Location(Location { end, .. }) | Definition::Process(Process { end, .. }) => {
                end.is_none_or(|end| end >= time)
            }
            _ => true,
        });
    }
}

fn region_key(id: RegionId) -> (u8, u64, u64) {
    (1, id.0.into(), 0)
}

/// What is kept.
pub(super) struct KeptCalls {
    most_bytes: usize,
    entries: VecDeque<KeptDefinition>,
    bytes: usize,
    pub(super) definitions: KeptDefinitions,
    lasting: Vec<Event>,
    /// The latest time that anything was told of.
    pub(super) now: Timestamp,
    /// Nothing before this time is kept.
    pub(super) since: Timestamp,
    /// Whether memory was the reason.
    pub(super) is_cut: bool,
}

/// A part of a recording that was taken out.
pub(super) struct Taken {
    pub(super) definitions: KeptDefinitions,
    pub(super) lasting: Vec<Event>,
    pub(super) items: Vec<Item>,
    pub(super) since: Timestamp,
    pub(super) is_cut: bool,
}

impl KeptCalls {
    pub(super) fn new(most_bytes: usize) -> KeptCalls {
        KeptCalls {
            most_bytes,
            entries: VecDeque::new(),
            bytes: 0,
            definitions: KeptDefinitions::default(),
            lasting: Vec::new(),
            now: Timestamp(0),
            since: Timestamp(0),
            is_cut: false,
        }
    }

    pub(super) fn begin(&mut self, time: Timestamp) {
        self.since = time;
        self.advance(time);
    }

    pub(super) fn advance(&mut self, time: Timestamp) {
        self.now = self.now.max(time);
    }

    pub(super) fn define(&mut self, definition: &Definition) {
        self.definitions.learn(definition);
    }

    pub(super) fn calls(&mut self, batch: &Batch) {
        let Some(until) = batch.iter().map(Call::known_until).max() else { return };
        let bytes = batch.len() * (size_of::<Call>() + batch.metrics() * size_of::<Reading>());
        self.advance(until);
        if let Some(KeptDefinition { from, until: last, bytes: sum, item: Item::Calls(calls) }) =
            self.entries.back_mut()
            && until.since(*from) < STEP_NS
            && calls.len() + batch.len() <= STEP_CALLS
            && calls.metrics() == batch.metrics()
        {
            calls.append(batch);
            *last = until.max(*last);
            *sum += bytes;
            self.bytes += bytes;
            return self.stay_within_memory();
        }
        self.push(until, bytes, Item::Calls(batch.clone()));
    }

    pub(super) fn values(&mut self, batches: &[ValueBatch]) {
        let bytes = batches.iter().map(bytes_of).sum();
        self.push(self.now, bytes, Item::Values(batches.to_vec()));
    }

    pub(super) fn samples(&mut self, samples: &[Sample]) {
        let Some(until) = samples.iter().map(|sample| sample.time).max() else { return };
        self.advance(until);
        self.push(until, size_of_val(samples), Item::Samples(samples.to_vec()));
    }

    pub(super) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Attached { .. }
            | EventKind::Refused { .. }
            | EventKind::NoValues { .. }
            | EventKind::NoLines { .. }
            | EventKind::Watched { .. }
            | EventKind::Unwatched { .. }
            | EventKind::Estimated { .. } => self.lasting.push(event.clone()),
            _ => {
                self.advance(event.time);
                self.push(event.time, PER_EVENT, Item::Event(event.clone()));
            }
        }
    }

    fn push(&mut self, until: Timestamp, bytes: usize, item: Item) {
        let bytes = bytes + PER_ITEM;
        self.bytes += bytes;
        if let Some(KeptDefinition { item: Item::Calls(calls), .. }) = self.entries.back_mut() {
            calls.shrink_to_fit();
        }
        self.entries.push_back(KeptDefinition { from: until, until, bytes, item });
        self.stay_within_memory();
    }

    /// What comes last stays, whatever it takes: it is no more than the kernel's rings hold.
    fn stay_within_memory(&mut self) {
        while self.bytes > self.most_bytes && self.entries.len() > 1 {
            let until = self.pop();
            self.is_cut |= until.is_some();
        }
    }

    /// Forgets what was over before a time.
    pub(super) fn forget_before(&mut self, time: Timestamp) {
        while self.entries.front().is_some_and(|entry| entry.until < time) {
            self.pop();
        }
        if time > self.since {
            self.since = time;
            self.is_cut = false;
        }
        self.definitions.forget_before(self.since);
    }

    fn pop(&mut self) -> Option<Timestamp> {
        let KeptDefinition { until, bytes, .. } = self.entries.pop_front()?;
        self.bytes -= bytes;
        // A call of the same instant may be in the next entry.
        self.since = self.since.max(Timestamp(until.0.saturating_add(1)));
        Some(until)
    }

    /// Takes out what was kept, so that no call is in two windows.
    pub(super) fn take(&mut self) -> Taken {
        let entries = std::mem::take(&mut self.entries);
        self.bytes = 0;
        let since = std::mem::replace(&mut self.since, Timestamp(self.now.0.saturating_add(1)));
        Taken {
            definitions: self.definitions.clone(),
            lasting: self.lasting.clone(),
            items: entries.into_iter().map(|entry| entry.item).collect(),
            since,
            is_cut: std::mem::take(&mut self.is_cut),
        }
    }
}

fn bytes_of(batch: &ValueBatch) -> usize {
    let column = |values: &Values| match values {
        Values::Integer(values) => size_of_val(values.as_slice()),
        Values::Float(values) => size_of_val(values.as_slice()),
        Values::Text(values) => {
            let texts = values.iter().flatten().map(String::capacity).sum::<usize>();
            size_of_val(values.as_slice()) + texts
        }
    };
    PER_ITEM + size_of_val(batch.calls.as_slice()) + batch.columns.iter().map(column).sum::<usize>()
}
