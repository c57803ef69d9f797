//! Consumers of calls.

use crate::{
    Batch, Call, Definition, Estimate, Event, Header, Item, PathProfile, Sample, Summary, Timestamp, ValueBatch,
};

/// Why a sink could not go on; names the object and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SinkError {
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl SinkError {
    /// An error that reads "failed to ACTION: cause"; the action names its object.
    pub fn new(action: impl std::fmt::Display, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        SinkError { message: format!("failed to {action}: {source}"), source: Some(Box::new(source)) }
    }
}

/// A consumer of a recording, live or stored.
///
/// Called in this order: `begin`, then any mix of `define`, `calls`, `profile`, `estimates`,
/// `samples`, `running`, `event` and `tick`, then `finish`. A definition comes before the first call that refers to it. The first
/// error ends the sink: nothing but drop follows.
pub trait Sink: Send {
    /// Hands an item to the method for it.
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Begin(header) => self.begin(header),
            Item::Define(definitions) => definitions.iter().try_for_each(|definition| self.define(definition)),
            Item::Calls(batch) => self.calls(batch),
            Item::Values(batches) => self.values(batches),
            Item::Profile(paths) => self.profile(paths),
            Item::Estimates(estimates) => self.estimates(estimates),
            Item::Samples(samples) => self.samples(samples),
            Item::Running(time, calls) => self.running(*time, calls),
            Item::Event(event) => self.event(event),
            Item::Tick => self.tick(),
            Item::Finish(summary) => self.finish(summary),
        }
    }

    /// The recording begins.
    fn begin(&mut self, header: &Header) -> Result<(), SinkError> {
        let _ = header;
        Ok(())
    }

    /// Something that calls refer to, or a newer state of it.
    fn define(&mut self, definition: &Definition) -> Result<(), SinkError> {
        let _ = definition;
        Ok(())
    }

    /// Calls that ended. Of one location they come in the order of their ends, save that calls of
    /// one instant, and calls around a move to another CPU, may change places.
    fn calls(&mut self, batch: &Batch) -> Result<(), SinkError>;

    /// Values of calls, which were handed over before, or are not recorded one by one.
    fn values(&mut self, batches: &[ValueBatch]) -> Result<(), SinkError> {
        let _ = batches;
        Ok(())
    }

    /// The call-path profile so far. Rows replace earlier ones of the same location and path.
    fn profile(&mut self, paths: &[PathProfile]) -> Result<(), SinkError> {
        let _ = paths;
        Ok(())
    }

    /// The calls without a record so far. Rows replace earlier ones of the same location and region.
    fn estimates(&mut self, estimates: &[Estimate]) -> Result<(), SinkError> {
        let _ = estimates;
        Ok(())
    }

    /// Values of metrics beside the calls, in the order of time per metric and instance.
    fn samples(&mut self, samples: &[Sample]) -> Result<(), SinkError> {
        let _ = samples;
        Ok(())
    }

    /// Whether [`running`](Sink::running) is to be called.
    fn wants_running(&self) -> bool {
        false
    }

    /// The calls that run at `time`, as [`Ending::Open`](crate::Ending::Open) with their durations
    /// until then, the callers of each location before their callees. Told a few times a second to
    /// sinks that [want it](Sink::wants_running).
    ///
    /// Read while the program runs on, so a snapshot for people: a call may be missing from it, and
    /// one that has just ended may still be in it.
    fn running(&mut self, time: Timestamp, calls: &[Call]) -> Result<(), SinkError> {
        let _ = (time, calls);
        Ok(())
    }

    /// Something that happened beside the calls.
    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        let _ = event;
        Ok(())
    }

    /// Time passes: called at least once a second while recording, also when nothing happens.
    fn tick(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// The recording has ended.
    fn finish(&mut self, summary: &Summary) -> Result<(), SinkError>;
}
