//! Consumers of calls.

use crate::{Batch, Definition, Estimate, Event, Header, Item, PathProfile, Sample, Summary, ValueBatch};

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
/// It takes the beginning, then any mix of other items, then the end. A definition comes before the first call that refers
/// to it. The first error ends the sink: nothing but drop follows.
pub trait Sink: Send {
    /// Takes what comes next.
    fn take(&mut self, item: &Item) -> Result<(), SinkError>;

    /// Whether [`Item::Running`] is to be told.
    fn wants_running(&self) -> bool {
        false
    }

    /// Takes [`Item::Begin`].
    fn begin(&mut self, header: &Header) -> Result<(), SinkError> {
        self.take(&Item::Begin(header.clone()))
    }

    /// Takes [`Item::Define`] of one definition.
    fn define(&mut self, definition: &Definition) -> Result<(), SinkError> {
        self.take(&Item::Define(vec![definition.clone()]))
    }

    /// Takes [`Item::Calls`].
    fn calls(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.take(&Item::Calls(batch.clone()))
    }

    /// Takes [`Item::Values`].
    fn values(&mut self, batches: &[ValueBatch]) -> Result<(), SinkError> {
        self.take(&Item::Values(batches.to_vec()))
    }

    /// Takes [`Item::Profile`].
    fn profile(&mut self, paths: &[PathProfile]) -> Result<(), SinkError> {
        self.take(&Item::Profile(paths.to_vec()))
    }

    /// Takes [`Item::Estimates`].
    fn estimates(&mut self, estimates: &[Estimate]) -> Result<(), SinkError> {
        self.take(&Item::Estimates(estimates.to_vec()))
    }

    /// Takes [`Item::Samples`].
    fn samples(&mut self, samples: &[Sample]) -> Result<(), SinkError> {
        self.take(&Item::Samples(samples.to_vec()))
    }

    /// Takes [`Item::Tick`].
    fn tick(&mut self) -> Result<(), SinkError> {
        self.take(&Item::Tick)
    }

    /// Takes [`Item::Event`].
    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        self.take(&Item::Event(event.clone()))
    }

    /// Takes [`Item::Finish`].
    fn finish(&mut self, summary: &Summary) -> Result<(), SinkError> {
        self.take(&Item::Finish(summary.clone()))
    }
}
