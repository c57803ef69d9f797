//! A part of a recording as a trace of its own: what it says of itself is true of the part alone.

use std::collections::{BTreeMap, HashSet};

use rtrace_exporters::TraceWriter;
use rtrace_model::{
    Batch, Call, ClockAnchor, Definition, Ending, Event, EventKind, Header, Item, LocationId, Loss, Scope, Sink as _,
    SinkError, Summary, Timestamp, Untimed, Window,
};

use super::buffer::{KeptDefinitions, Taken};

/// What is to be written.
pub(super) struct WindowPart {
    pub(super) header: Header,
    pub(super) summary: Summary,
    definitions: KeptDefinitions,
    lasting: Vec<Event>,
    items: Vec<Item>,
}

impl WindowPart {
    /// The part until `end`. What ran then is among `running`, as far as it is no call that was taken.
    pub(super) fn new(
        recording: &Header,
        window: Window,
        taken: Taken,
        end: Timestamp,
        running: Vec<Call>,
    ) -> WindowPart {
        let Taken { mut definitions, lasting, items, since, is_cut } = taken;
        let end = end.max(since);
        let window = Window { is_cut, ..window };
        let header = Header { begin: at(recording, since), window: Some(window), ..recording.clone() };
        let mut part = WindowPart {
            header,
            summary: Summary {
                end: at(recording, end),
                regions: definitions.0.values().filter(|of| matches!(of, Definition::Region(_))).count() as u64,
                ..Summary::default()
            },
            definitions: KeptDefinitions::default(),
            lasting,
            items: Vec::with_capacity(items.len() + 1),
        };
        let mut running: BTreeMap<(LocationId, u64), Call> =
            running.into_iter().map(|call| ((call.location, call.id), call)).collect();
        let mut used = Used::default();
        for item in items {
            let item = match item {
                Item::Calls(batch) => {
                    for call in &*batch {
                        running.remove(&(call.location, call.id));
                    }
                    Item::Calls(within(&batch, since, end))
                }
                Item::Samples(mut samples) => {
                    samples.retain(|sample| sample.time >= since && sample.time <= end);
                    Item::Samples(samples)
                }
                Item::Event(event) if event.time > end => continue,
                item => item,
            };
            part.add(item, &mut used);
        }
        // Of calls that still run it is not known what they have counted.
        let is_counter = |of: &Definition| matches!(of, Definition::Metric(metric) if metric.scope == Scope::Call);
        if !definitions.0.values().any(is_counter) {
            let open = running.into_values().filter(|call| call.start <= end).map(|call| open_at(&call, end));
            part.add(Item::Calls(open.collect::<Vec<Call>>().into()), &mut used);
        }
        part.lasting.iter().for_each(|event| part.summary.count_event(event));
        part.summary.locations = used.locations.len() as u64;
        // Contexts come after call sites.
        let contexts = definitions.0.values().filter_map(|of| match of {
            Definition::Context(context) if used.contexts.contains(&context.id) => Some(&context.sites),
            _ => None,
        });
        used.call_sites.extend(contexts.flatten());
        definitions.0.retain(|_, definition| match definition {
            Definition::Location(location) => {
                // The ids of calls that were not kept are not missing.
                location.calls_entered = None;
                used.locations.contains(&location.id)
            }
            Definition::Context(context) => used.contexts.contains(&context.id),
            Definition::CallSite(site) => used.call_sites.contains(&site.id),
            _ => true,
        });
        part.definitions = definitions;
        part
    }

    fn add(&mut self, item: Item, used: &mut Used) {
        match &item {
            Item::Calls(batch) => {
                self.summary.count_calls(batch);
                used.locations.extend(batch.iter().map(|call| call.location));
                used.call_sites.extend(batch.iter().filter_map(|call| call.call_site));
                used.contexts.extend(batch.iter().filter_map(|call| call.context));
            }
            Item::Event(event) => self.summary.count_event(event),
            _ => {}
        }
        if !item.is_empty() {
            self.items.push(item);
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub(super) fn write(&self, writer: &mut TraceWriter) -> Result<(), SinkError> {
        writer.begin(&self.header)?;
        self.definitions.0.values().try_for_each(|definition| writer.define(definition))?;
        self.lasting.iter().try_for_each(|event| writer.event(event))?;
        self.items.iter().try_for_each(|item| writer.take(item))?;
        writer.finish(&self.summary)
    }
}

/// What the calls of a part refer to.
#[derive(Default)]
struct Used {
    locations: HashSet<LocationId>,
    call_sites: HashSet<rtrace_model::CallSiteId>,
    contexts: HashSet<rtrace_model::ContextId>,
}

/// The wall clock at an instant.
fn at(recording: &Header, time: Timestamp) -> ClockAnchor {
    let ClockAnchor { monotonic, realtime_ns } = recording.begin;
    ClockAnchor { monotonic: time, realtime_ns: realtime_ns + time.since(monotonic) }
}

/// The calls that ended from `since` on, as they were at `end`. What had not ended then is open, and with counters left
/// out, as their values at that time are not known.
fn within(batch: &Batch, since: Timestamp, end: Timestamp) -> Batch {
    let is_kept = |call: &Call| {
        call.known_until() >= since && call.start <= end && (call.known_until() <= end || batch.metrics() == 0)
    };
    let mut kept = batch.selected((0..batch.len()).filter(|&place| is_kept(&batch[place])));
    kept.calls_mut().iter_mut().filter(|call| call.known_until() > end).for_each(|call| *call = open_at(call, end));
    kept
}

fn open_at(call: &Call, end: Timestamp) -> Call {
    let duration = end.since(call.start);
    Call { duration: Some(duration), child: call.child.min(duration), ending: Ending::Open, ..*call }
}

trait CountCalls {
    fn count_calls(&mut self, batch: &Batch);
    fn count_event(&mut self, event: &Event);
}

impl CountCalls for Summary {
    fn count_calls(&mut self, batch: &Batch) {
        self.calls += batch.len() as u64;
        for call in &**batch {
            match call.ending {
                Ending::Returned => {}
                Ending::Unwound => self.unwound += 1,
                Ending::Open => self.open += 1,
                Ending::Unseen => self.unseen += 1,
            }
        }
    }

    fn count_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Refused { .. } => self.refused += 1,
            EventKind::BlindWindow { .. } => self.blind_windows += 1,
            EventKind::Withheld { .. } => self.withheld += 1,
            EventKind::Overwritten { sites, .. } => self.overwritten += sites,
            EventKind::Loss(loss) => {
                let same = |other: &&mut Loss| (other.reason, other.region) == (loss.reason, loss.region);
                match self.losses.iter_mut().find(same) {
                    Some(sum) => sum.count += loss.count,
                    None => self.losses.push(*loss),
                }
            }
            EventKind::Untimed(untimed) => {
                let same = |other: &&mut Untimed| (other.reason, other.region) == (untimed.reason, untimed.region);
                match self.untimed.iter_mut().find(same) {
                    Some(sum) => sum.count += untimed.count,
                    None => self.untimed.push(*untimed),
                }
            }
            _ => {}
        }
    }
}
