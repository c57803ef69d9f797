//! Calls without a record, where a budget keeps tracing cheap.

use serde::{Deserialize, Serialize};

use crate::{LocationId, RegionId};

/// How calls of a region are recorded, where a budget decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As without a budget.
    Full,
    /// They are only counted, exactly.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The thread.
    pub location: LocationId,
    /// The function.
    pub region: RegionId,
    /// Calls that were counted, exactly.
    pub counted: u64,
    /// Calls that were not seen: about so many,
    pub estimated: u64,
    /// at least so many,
    pub least: u64,
    /// and at most so many, as far as the windows before and after tell.
    pub most: u64,
}
