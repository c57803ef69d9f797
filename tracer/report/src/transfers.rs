//! How long calls that wait for other ranks went on when these had come: the transfer.

use std::collections::HashMap;

use rtrace_exporters::{AwaitedCall, TraceSet};
use rtrace_model::{FunctionEvent, LocationId, RegionId, Timestamp, ValueColumn};

use super::Error;

/// Nanoseconds of transfer by function and thread.
#[derive(Default)]
pub(super) struct Transfers(HashMap<(RegionId, LocationId), u64>);

impl Transfers {
    /// None if the trace does not say which calls belong to each other.
    ///
    /// # Errors
    /// The calls cannot be read.
    pub(super) fn new(trace: &TraceSet) -> Result<Transfers, Error> {
        let mut transfers = Transfers::default();
        let event = |column: &ValueColumn| trace.region(column.region).and_then(|region| region.event);
        let says = |column: &ValueColumn| event(column).is_some_and(FunctionEvent::is_message);
        if !trace.value_columns().iter().any(says) || !trace.profile().is_empty() {
            return Ok(transfers);
        }
        trace.messages()?.awaited(|AwaitedCall { at, until }| {
            let began: Timestamp = until.max(at.start);
            let time = at.end.map_or(0, |end| end.since(began.min(end)));
            let sum = transfers.0.entry((at.region, at.location)).or_default();
            *sum = sum.saturating_add(time);
        })?;
        Ok(transfers)
    }

    /// Those of a function on a thread.
    pub(super) fn of(&self, region: RegionId, location: LocationId) -> u64 {
        self.0.get(&(region, location)).copied().unwrap_or(0)
    }
}
