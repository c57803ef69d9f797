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
    /// Calls that were not seen: at least so many.
    pub least: u64,
}

/// What is known of calls that were not seen, as people are told it.
pub fn at_least(calls: u64) -> String {
    match calls {
        0 => "an unknown number more unseen".to_owned(),
        _ => format!("at least {} more unseen", grouped(calls)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_zero() {
        assert_eq!(at_least(3_000), "at least 3,000 more unseen");
        assert_eq!(at_least(0), "an unknown number more unseen");
    }
}
