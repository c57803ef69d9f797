//! What is known to be missing.

use serde::{Deserialize, Serialize};

use crate::{RegionId, words};

words! {
    /// Why calls or events are missing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    LossReason {
        /// The ring buffer was full when the call ended.
        RingFull = "ring full",
        /// The call was nested deeper than the shadow stack holds.
        TooDeep = "too deep",
        /// The kernel had no memory for the thread's shadow stack.
        NoMemory = "no memory",
        /// The table of locations was full.
        TooManyLocations = "too many locations",
        /// A record could not be understood.
        BadRecord = "bad record",
        /// A lifecycle event (fork, exec, exit) did not fit its ring.
        EventLost = "event lost",
        /// The table of call paths was full: the call is not in the profile.
        TooManyPaths = "too many call paths",
        /// An access to a watched variable was not counted.
        AccessUncounted = "access uncounted",
        /// The value after an access to a watched variable was not recorded.
        ValueLost = "value lost",
        /// An argument or result of a call could not be read from memory.
        ValueUnread = "value not readable",
        /// Which untraced functions led to a call was not recorded.
        ContextLost = "context lost",
        /// The first instruction of a function was executed: by a call, by another lap of a loop that begins there, or
        /// again after a fault.
        CallOrLap = "call, or the same one again",
        /// The kernel did not run a program of rtrace's when it was its turn.
        ProgramNotRun = "program not run",
        /// A call entered, and was neither recorded nor counted as lost; or it was recorded more than once.
        Unaccounted = "unaccounted",
    }
}

impl LossReason {
    /// Whether a value of a call or its context is missing, and not a call or an event.
    pub const fn is_value(self) -> bool {
        matches!(self, LossReason::ValueUnread | LossReason::ContextLost)
    }
}

/// A number of calls or events known to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// The region whose calls are missing, where that is known.
    pub region: Option<RegionId>,
    /// How many.
    pub count: u64,
}
