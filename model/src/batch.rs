//! Calls that travel together, with what was measured during each.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::{Call, CallValues};

/// What one metric counted during one call, in the metric's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// From the enter to the exit.
    pub inclusive: u64,
    /// The part of it counted in the traced calls that this one made itself.
    pub child: u64,
}

impl Reading {
    /// The part counted outside traced callees.
    pub fn exclusive(self) -> u64 {
        self.inclusive.saturating_sub(self.child)
    }
}

/// A call with what was measured during it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The call.
    pub call: Call,
    /// One reading per call metric; none if it was not timed.
    pub readings: Box<[Reading]>,
    /// Its values, if they were asked for.
    pub values: Option<CallValues>,
}

/// Calls, each with one [`Reading`] per call metric of the recording. A call that was not timed has
/// none: counters are read where times are.
///
/// Derefs to the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Batch {
    calls: Vec<Call>,
    metrics: usize,
    readings: Vec<Reading>,
}

/// A batch as it is stored, which may be of anybody.
#[derive(Deserialize)]
struct Parts {
    calls: Vec<Call>,
    metrics: usize,
    readings: Vec<Reading>,
}

impl TryFrom<Parts> for Batch {
    type Error = &'static str;

    fn try_from(Parts { calls, metrics, readings }: Parts) -> Result<Batch, &'static str> {
        match calls.len().checked_mul(metrics) == Some(readings.len()) {
            true => Ok(Batch::measured(calls, metrics, readings)),
            false => Err("each call must have a reading of each metric"),
        }
    }
}

impl Batch {
    /// Calls with `metrics` readings each: those of the first call, in the order of the metrics'
    /// ids, then those of the second. What stands there for calls that were not timed is ignored.
    ///
    /// # Panics
    /// If there are not `metrics` readings for each call.
    pub fn measured(calls: Vec<Call>, metrics: usize, mut readings: Vec<Reading>) -> Batch {
        assert_eq!(readings.len(), calls.len() * metrics, "each call has a reading of each metric");
        if metrics > 0 {
            let untimed = calls.iter().zip(readings.chunks_mut(metrics)).filter(|(call, _)| !call.is_timed());
            untimed.for_each(|(_, readings)| readings.fill(Reading::default()));
        }
        Batch { calls, metrics, readings }
    }

    /// Number of readings per timed call.
    pub fn metrics(&self) -> usize {
        self.metrics
    }

    /// The readings of the call at this index, in the order of the metrics' ids; empty where the
    /// call was not timed.
    pub fn readings(&self, index: usize) -> &[Reading] {
        if self.calls[index].is_timed() {
            &self.readings[index * self.metrics..(index + 1) * self.metrics]
        } else {
            &[]
        }
    }

    /// The calls at these indices in this order, with their readings.
    pub fn selected(&self, indices: impl Iterator<Item = usize>) -> Batch {
        let mut selected = Batch { calls: Vec::new(), metrics: self.metrics, readings: Vec::new() };
        for index in indices {
            selected.calls.push(self.calls[index]);
            selected.readings.extend_from_slice(&self.readings[index * self.metrics..][..self.metrics]);
        }
        selected
    }

    /// Adds the calls of another, with their readings.
    ///
    /// # Panics
    /// They have readings of other metrics.
    pub fn append(&mut self, other: &Batch) {
        assert_eq!(self.metrics, other.metrics, "each call has a reading of each metric");
        self.calls.extend_from_slice(&other.calls);
        self.readings.extend_from_slice(&other.readings);
    }

    /// Gives back memory for calls that might have been added.
    pub fn shrink_to_fit(&mut self) {
        self.calls.shrink_to_fit();
        self.readings.shrink_to_fit();
    }

    /// The calls, to be changed in place.
    pub fn calls_mut(&mut self) -> &mut [Call] {
        &mut self.calls
    }

    /// The calls alone.
    pub fn into_calls(self) -> Vec<Call> {
        self.calls
    }
}

impl From<Vec<Call>> for Batch {
    /// Calls without readings.
    fn from(calls: Vec<Call>) -> Batch {
        Batch { calls, metrics: 0, readings: Vec::new() }
    }
}

impl Deref for Batch {
    type Target = [Call];

    fn deref(&self) -> &[Call] {
        &self.calls
    }
}
