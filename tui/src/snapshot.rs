//! The state of a recording at one moment, as the view sees it.

use std::sync::Arc;

use rtrace_model::{Call, Ending, LossReason, RegionId};

/// What the calls of one region add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls that ended.
    pub calls: u64,
    /// Of these, calls whose duration is known.
    pub timed: u64,
    /// Their durations in nanoseconds; a recursive call counts beside the one it is nested in.
    pub inclusive: u64,
    /// Their durations without traced callees, in nanoseconds.
    pub exclusive: u64,
    /// The longest duration in nanoseconds.
    pub max: u64,
}

impl Totals {
    /// Counts one more call.
    pub fn add(&mut self, call: &Call) {
        self.calls += 1;
        if call.ending == Ending::Unseen {
            return;
        }
        self.timed += 1;
        self.inclusive = self.inclusive.saturating_add(call.duration);
        self.exclusive = self.exclusive.saturating_add(call.exclusive());
        self.max = self.max.max(call.duration);
    }

    /// The mean duration in nanoseconds; `None` where no duration is known.
    pub fn mean(&self) -> Option<u64> {
        self.inclusive.checked_div(self.timed)
    }
}

/// One region with calls.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its id.
    pub region: RegionId,
    /// Its name, not escaped.
    pub name: Arc<str>,
    /// The name of its library, not escaped.
    pub library: Arc<str>,
    /// Its calls.
    pub totals: Totals,
}

/// The whole recording.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Calls that ended, of all regions.
    pub calls: u64,
    /// Threads with calls.
    pub threads: usize,
    /// What is missing, by reason; reasons without losses are left out.
    pub losses: Vec<(LossReason, u64)>,
    /// Regions with calls, by id.
    pub functions: Vec<Function>,
}

impl Snapshot {
    /// All that is missing.
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|(_, count)| count).sum()
    }
}
