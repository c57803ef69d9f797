//! Calls without a record, where a budget keeps tracing cheap.

use serde::{Deserialize, Serialize};

use crate::{LocationId, RegionId, grouped};

/// How calls of a region are recorded, where a budget decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As without a budget.
    Full,
    /// They are only counted, exactly: in older traces.
    Count,
    /// No probe is in place but for short windows, from which their number is estimated.
    Off,
}

impl Level {
    /// The word used in columns and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Full => "full",
            Level::Count => "count",
            Level::Off => "off",
        }
    }
}

/// The calls of one region on one location that have no record, so far. Calls with a record, or in
/// the profile, are none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// The thread.
    pub location: LocationId,
    /// The function.
    pub region: RegionId,
    /// Calls that were counted, exactly.
    pub counted: u64,
    /// Calls that were not seen: about so many, or `least` where that is all that is known,
    pub estimated: u64,
    /// at least so many,
    pub least: u64,
    /// and at most so many, where that is not many times as many.
    pub most: Option<u64>,
}

/// At least so many calls, and at most where that is known. By default there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRange(pub u64, pub Option<u64>);

impl Default for CallRange {
    fn default() -> CallRange {
        CallRange(0, Some(0))
    }
}

/// What is known of a number of calls, as people are told it: about so many, in that range or from there on.
pub fn estimated(about: u64, CallRange(least, most): CallRange) -> String {
    match most {
        Some(most) => format!("about {} more estimated ({} to {})", grouped(about), grouped(least), grouped(most)),
        None if least == 0 => "an unknown number more unseen".to_owned(),
        None => format!("at least {} more unseen", grouped(least)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_zero() {
        assert_eq!(estimated(5, CallRange(2, Some(9_000))), "about 5 more estimated (2 to 9,000)");
        assert_eq!(estimated(3, CallRange(3, None)), "at least 3 more unseen");
        assert_eq!(estimated(0, CallRange(0, None)), "an unknown number more unseen");
    }
}
