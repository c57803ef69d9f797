//! What calls add up to.

use crate::{Call, PathProfile};

/// Sums over calls. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub calls: u64,
    /// Of these, calls that were not timed.
    pub untimed: u64,
    /// The durations of the others.
    pub inclusive: u64,
    /// The same without traced callees.
    pub exclusive: u64,
}

impl Totals {
    /// Of one call.
    pub fn of(call: &Call) -> Totals {
        let (inclusive, exclusive) = (call.duration.unwrap_or(0), call.exclusive().unwrap_or(0));
        Totals { calls: 1, untimed: u64::from(!call.is_timed()), inclusive, exclusive }
    }

    /// Of the calls of a path.
    pub fn of_path(path: &PathProfile) -> Totals {
        let PathProfile { calls, unseen: untimed, inclusive, exclusive, .. } = *path;
        Totals { calls, untimed, inclusive, exclusive }
    }

    /// Adds those of other calls.
    pub fn add(&mut self, other: Totals) {
        self.calls += other.calls;
        self.untimed += other.untimed;
        self.inclusive = self.inclusive.saturating_add(other.inclusive);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }

    /// What is left of them beside those.
    pub fn without(self, those: Totals) -> Totals {
        Totals {
            calls: self.calls.saturating_sub(those.calls),
            untimed: self.untimed.saturating_sub(those.untimed),
            inclusive: self.inclusive.saturating_sub(those.inclusive),
            exclusive: self.exclusive.saturating_sub(those.exclusive),
        }
    }

    /// Calls whose time is known.
    pub fn timed(&self) -> u64 {
        self.calls.saturating_sub(self.untimed)
    }

    /// One of the sums over times; absent where there are calls, and none of them was timed.
    pub fn time(&self, sum: u64) -> Option<u64> {
        (self.calls == 0 || self.calls > self.untimed).then_some(sum)
    }
}
