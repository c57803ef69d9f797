//! What travels from a recording to its sinks.

use serde::{Deserialize, Serialize};

use crate::{Batch, Call, Definition, Estimate, Event, Header, PathProfile, Sample, Summary, Timestamp, ValueBatch};

/// One thing that a sink is told. A recording is the items in their order: stored as they are, they can be told again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The recording begins.
    Begin(Header),
    /// What calls refer to, or newer states of it.
    Define(Vec<Definition>),
    /// Calls that ended.
    Calls(Batch),
    /// Values of calls that ended.
    Values(Vec<ValueBatch>),
    /// Call paths whose calls are more than before.
    Profile(Vec<PathProfile>),
    /// Calls without a record.
    Estimates(Vec<Estimate>),
    /// Values of metrics beside the calls.
    Samples(Vec<Sample>),
    /// The calls that run at a time.
    Running(Timestamp, Vec<Call>),
    /// Something that happened beside the calls.
    Event(Event),
    /// Time passes.
    Tick,
    /// The recording has ended.
    Finish(Summary),
}

impl Item {
    /// Whether it tells nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Item::Define(definitions) => definitions.is_empty(),
            Item::Calls(batch) => batch.is_empty(),
            Item::Values(batches) => batches.is_empty(),
            Item::Profile(paths) => paths.is_empty(),
            Item::Estimates(estimates) => estimates.is_empty(),
            Item::Samples(samples) => samples.is_empty(),
            Item::Begin(_) | Item::Running(..) | Item::Event(_) | Item::Tick | Item::Finish(_) => false,
        }
    }
}
