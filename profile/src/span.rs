//! The part of the time whose calls count.

use rtrace_model::{Call, Timestamp};

/// From when to when, on the clock of a trace, or from its start, or to its end. A call counts if it
/// ended in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSpan {
    /// Calls count that ended later.
    pub from: Option<Timestamp>,
    /// Calls count that ended until then.
    pub to: Option<Timestamp>,
}

impl ClockSpan {
    /// All of the time.
    pub const ALL: ClockSpan = ClockSpan { from: None, to: None };

    /// Whether the instant is in it.
    pub fn contains(self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| time > from) && self.to.is_none_or(|to| time <= to)
    }

    /// Whether the call counts.
    pub fn counts(self, call: &Call) -> bool {
        self.contains(call.known_until())
    }

    /// Whether the call may have made one that counts. Of one that was not timed, its end is not known.
    pub fn may_enclose(self, call: &Call) -> bool {
        let goes_on = |from| !call.is_timed() || call.known_until() > from;
        self.from.is_none_or(goes_on) && self.to.is_none_or(|to| call.start <= to)
    }
}
