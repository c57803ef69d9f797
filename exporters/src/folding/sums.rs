//! What the calls of a path add up to.

use rtrace_model::{Call, Count};
use rtrace_profile::Sums;

use super::reading;

#[derive(Default)]
pub(super) struct PathSums {
    pub(super) sums: Sums,
    /// Calls that took 0 ns.
    pub(super) instant: u64,
    /// Calls that ended when the nearest timed call around them did: others, and those that took 0 ns.
    pub(super) ended_with_caller: [u64; 2],
    pub(super) counts: Vec<Count>,
}

impl PathSums {
    /// Adds a call with the values of its readings; returns how many numbers more there are.
    pub(super) fn add(&mut self, call: &Call, readings: &[u64]) -> i64 {
        let before = self.numbers();
        self.sums.add_call(call, true);
        self.instant += u64::from(call.duration == Some(0));
        if call.is_timed() {
            Count::add_all(&mut self.counts, readings.chunks_exact(2).map(|values| Count::from(reading(values))));
        }
        self.numbers() - before
    }

    /// Adds those of other calls; returns how many numbers more there are.
    pub(super) fn merge(&mut self, other: &PathSums) -> i64 {
        let before = self.numbers() + other.numbers();
        self.sums.merge(&other.sums);
        self.instant += other.instant;
        self.ended_with_caller.iter_mut().zip(other.ended_with_caller).for_each(|(sum, of)| *sum += of);
        Count::add_all(&mut self.counts, other.counts.iter().copied());
        self.numbers() - before
    }

    fn numbers(&self) -> i64 {
        self.sums.latency.numbers() as i64
    }
}
