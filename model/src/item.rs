//! What travels from a recording to its sinks.

use serde::{Deserialize, Serialize};

use crate::{Batch, Call, Definition, Estimate, Event, Header, PathProfile, Sample, Summary, Timestamp, ValueBatch};

/// One thing that a sink is told. A recording is the items in their order: stored as they are, they can be told again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The recording begins.
    Begin(Header),
    /// What calls refer to, or newer states of it. It comes before the first call that refers to it.
    Define(Vec<Definition>),
    /// Calls that ended. Of one location they come in the order of their ends, save that calls of one instant, and calls
    /// around a move to another CPU, may change places.
    Calls(Batch),
    /// Values of calls, which were told before, or are not recorded one by one.
    Values(Vec<ValueBatch>),
    /// Call paths whose calls are more than before. Rows replace earlier ones of the same location and path.
    Profile(Vec<PathProfile>),
    /// The calls without a record so far. Rows replace earlier ones of the same location and region.
    Estimates(Vec<Estimate>),
    /// Values of metrics beside the calls, in the order of time per metric and instance.
    Samples(Vec<Sample>),
    /// The calls that run at a time, as [`Ending::Open`](crate::Ending::Open) with their durations until then, the callers
    /// of each location before their callees. Told a few times a second to sinks that
    /// [want it](crate::Sink::wants_running).
    ///
    /// Read while the program runs on, so a snapshot for people: a call may be missing from it, and one that has just ended
    /// may still be in it.
    Running(Timestamp, Vec<Call>),
    /// Something that happened beside the calls.
    Event(Event),
    /// Time passes: told at least once a second while recording, also when nothing happens.
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
