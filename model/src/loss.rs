//! What is known to be missing.

use serde::{Deserialize, Serialize};

use crate::RegionId;

/// Why calls or events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The ring buffer was full when the call ended.
    RingFull,
    /// The call was nested deeper than the shadow stack holds.
    TooDeep,
    /// The kernel had no memory for the thread's shadow stack.
    NoMemory,
    /// The table of locations was full.
    TooManyLocations,
    /// A record could not be understood.
    BadRecord,
    /// A lifecycle event (fork, exec, exit) did not fit its ring.
    EventLost,
    /// The table of call paths was full: the call is not in the profile.
    TooManyPaths,
    /// An access to a watched variable was not counted.
    AccessUncounted,
    /// The value after an access to a watched variable was not recorded.
    ValueLost,
    /// An argument or result of a call could not be read from memory.
    ValueUnread,
    /// Which untraced functions led to a call was not recorded.
    ContextLost,
    /// The first instruction of a function was executed: by a call, by another lap of a loop that begins there, or
    /// again after a fault.
    CallOrLap,
    /// The kernel did not run a program of rtrace's when it was its turn.
    ProgramNotRun,
    /// A call entered, and was neither recorded nor counted as lost; or it was recorded more than once.
    Unaccounted,
}

impl LossReason {
    /// All reasons, the order is that of reports.
    pub const ALL: [LossReason; 14] = [
        LossReason::RingFull,
        LossReason::TooDeep,
        LossReason::NoMemory,
        LossReason::TooManyLocations,
        LossReason::BadRecord,
        LossReason::EventLost,
        LossReason::TooManyPaths,
        LossReason::AccessUncounted,
        LossReason::ValueLost,
        LossReason::ValueUnread,
        LossReason::ContextLost,
        LossReason::CallOrLap,
        LossReason::ProgramNotRun,
        LossReason::Unaccounted,
    ];

    /// Whether a value of a call or its context is missing, and not a call or an event.
    pub const fn is_value(self) -> bool {
        matches!(self, LossReason::ValueUnread | LossReason::ContextLost)
    }

    /// The word used in columns and reports.
    pub const fn name(self) -> &'static str {
        match self {
            LossReason::RingFull => "ring full",
            LossReason::TooDeep => "too deep",
            LossReason::NoMemory => "no memory",
            LossReason::TooManyLocations => "too many locations",
            LossReason::BadRecord => "bad record",
            LossReason::EventLost => "event lost",
            LossReason::TooManyPaths => "too many call paths",
            LossReason::AccessUncounted => "access uncounted",
            LossReason::ValueLost => "value lost",
            LossReason::ValueUnread => "value not readable",
            LossReason::ContextLost => "context lost",
            LossReason::CallOrLap => "call, or the same one again",
            LossReason::ProgramNotRun => "program not run",
            LossReason::Unaccounted => "unaccounted",
        }
    }

    /// The reason of that [`name`](LossReason::name).
    pub fn from_name(name: &str) -> Option<LossReason> {
        LossReason::ALL.into_iter().find(|reason| reason.name() == name)
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
