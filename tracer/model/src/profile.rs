//! Calls folded by call path: what is kept where not every call is a record.

use crate::{LocationId, PathId, RegionId};

/// Number of buckets of a [`PathProfile`]'s histogram.
pub const HISTOGRAM_BUCKETS: usize = 48;

/// The bucket of a duration in nanoseconds: bucket 0 holds 0, bucket n durations from 2ⁿ⁻¹ to
/// 2ⁿ − 1, the last one all longer ones, too.
pub const fn histogram_bucket(duration: u64) -> usize {
    let bucket = (u64::BITS - duration.leading_zeros()) as usize;
    if bucket < HISTOGRAM_BUCKETS { bucket } else { HISTOGRAM_BUCKETS - 1 }
}

/// All calls of one call path on one location, folded. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathProfile {
    /// Names the path within the location's trace; counts up from 1.
    pub path: PathId,
    /// The path of the callers; `None` at a root.
    pub parent: Option<PathId>,
    /// The function called.
    pub region: RegionId,
    /// The thread.
    pub location: LocationId,
    /// Calls entered, folded ones and recorded ones.
    pub calls: u64,
    /// Of these, how many have a duration, that is, ended in sight.
    pub timed: u64,
    /// Sum of the durations.
    pub inclusive: u64,
    /// Sum of the durations without traced callees.
    pub exclusive: u64,
    /// The shortest duration; 0 if there is none.
    pub min: u64,
    /// The longest duration.
    pub max: u64,
    /// Calls by duration, see [`histogram_bucket`].
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}
