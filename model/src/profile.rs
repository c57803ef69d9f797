//! Calls folded by call path: what is kept where not every call is a record.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{CallSiteId, ContextId, LocationId, PathId, Reading, RegionId};

/// Number of buckets of a [`PathProfile`]'s histogram.
pub const HISTOGRAM_BUCKETS: usize = 48;

/// The bucket of a duration in nanoseconds: bucket 0 holds 0, bucket n durations from 2ⁿ⁻¹ to
/// 2ⁿ − 1, the last one all longer ones, too.
pub const fn histogram_bucket(duration: u64) -> usize {
    let bucket = (u64::BITS - duration.leading_zeros()) as usize;
    if bucket < HISTOGRAM_BUCKETS { bucket } else { HISTOGRAM_BUCKETS - 1 }
}

/// Arrays of this length are not known to serde.
fn write_buckets<S: Serializer>(buckets: &[u64; HISTOGRAM_BUCKETS], serializer: S) -> Result<S::Ok, S::Error> {
    buckets.as_slice().serialize(serializer)
}

fn read_buckets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; HISTOGRAM_BUCKETS], D::Error> {
    let buckets = Vec::<u64>::deserialize(deserializer)?;
    let count = buckets.len();
    buckets.try_into().map_err(|_| serde::de::Error::invalid_length(count, &"a histogram's number of buckets"))
}

/// What one metric counted in the timed calls of a call path, and in those that still ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The sum over the calls, in the metric's unit with its base and exponent.
    pub inclusive: u64,
    /// The same without traced callees.
    pub exclusive: u64,
}

impl Count {
    /// Adds counts with callees to sums, by counter.
    pub fn add_inclusive(sums: &mut Vec<Count>, counts: impl ExactSizeIterator<Item = Count>) {
        Count::add(sums, counts, |sum, count| sum.inclusive = sum.inclusive.saturating_add(count.inclusive));
    }

    /// Adds counts without callees to sums, by counter.
    pub fn add_exclusive(sums: &mut Vec<Count>, counts: impl ExactSizeIterator<Item = Count>) {
        Count::add(sums, counts, |sum, count| sum.exclusive = sum.exclusive.saturating_add(count.exclusive));
    }

    /// Adds both.
    pub fn add_all(sums: &mut Vec<Count>, counts: impl ExactSizeIterator<Item = Count> + Clone) {
        Count::add_inclusive(sums, counts.clone());
        Count::add_exclusive(sums, counts);
    }

    fn add(sums: &mut Vec<Count>, counts: impl ExactSizeIterator<Item = Count>, one: impl Fn(&mut Count, Count)) {
        if sums.len() < counts.len() {
            sums.resize(counts.len(), Count::default());
        }
        sums.iter_mut().zip(counts).for_each(|(sum, count)| one(sum, count));
    }
}

/// What was counted during one call.
impl From<Reading> for Count {
    fn from(reading: Reading) -> Count {
        Count { inclusive: reading.inclusive, exclusive: reading.exclusive() }
    }
}

/// All calls of one call path on one location, folded. Times in nanoseconds. Calls that were not
/// timed are counted, and are in no time.
///
/// A recording that folds has all of its calls here, those with a record of their own, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathProfile {
    /// Names the path among those of its location.
    pub path: PathId,
    /// The path of the callers; `None` at a root.
    pub parent: Option<PathId>,
    /// The function called.
    pub region: RegionId,
    /// The thread.
    pub location: LocationId,
    /// Calls that ended, or ran until the recording's end.
    pub calls: u64,
    /// Of these, how many have a duration, that is, returned or were left by an unwind.
    pub timed: u64,
    /// Of the timed ones, how many were left by an unwind.
    pub unwound: u64,
    /// Of all, how many still ran when their thread, its program or the recording ended.
    pub open: u64,
    /// Of all, how many were not timed, as their return was not observed.
    pub unseen: u64,
    /// Sum of the durations, of open calls until the end.
    pub inclusive: u64,
    /// The same without traced callees.
    pub exclusive: u64,
    /// The part of `inclusive` in open calls.
    pub open_time: u64,
    /// The shortest duration of a timed call; `None` if there is none.
    pub min: Option<u64>,
    /// The longest duration of a timed call; `None` if there is none.
    pub max: Option<u64>,
    /// Timed calls by duration, see [`histogram_bucket`].
    #[serde(serialize_with = "write_buckets", deserialize_with = "read_buckets")]
    pub histogram: [u64; HISTOGRAM_BUCKETS],
    /// What the calls counted, by metric of scope `call`; empty where that is not known.
    pub counts: Vec<Count>,
}

/// A path without calls.
impl Default for PathProfile {
    fn default() -> PathProfile {
        PathProfile {
            path: PathId::default(),
            parent: None,
            region: RegionId::default(),
            location: LocationId::default(),
            calls: 0,
            timed: 0,
            unwound: 0,
            open: 0,
            unseen: 0,
            inclusive: 0,
            exclusive: 0,
            open_time: 0,
            min: None,
            max: None,
            histogram: [0; HISTOGRAM_BUCKETS],
            counts: Vec::new(),
        }
    }
}

impl PathProfile {
    /// What a path has more than before; of `min` and `max`, those of all.
    pub fn since(&self, before: &PathProfile) -> PathProfile {
        let mut more = self.clone();
        let sums = [
            (&mut more.calls, before.calls),
            (&mut more.timed, before.timed),
            (&mut more.unwound, before.unwound),
            (&mut more.open, before.open),
            (&mut more.unseen, before.unseen),
            (&mut more.inclusive, before.inclusive),
            (&mut more.exclusive, before.exclusive),
            (&mut more.open_time, before.open_time),
        ];
        for (sum, before) in sums.into_iter().chain(more.histogram.iter_mut().zip(before.histogram)) {
            *sum = sum.saturating_sub(before);
        }
        for (count, before) in more.counts.iter_mut().zip(&before.counts) {
            count.inclusive = count.inclusive.saturating_sub(before.inclusive);
            count.exclusive = count.exclusive.saturating_sub(before.exclusive);
        }
        more
    }

    /// Whether there is a call whose time is known: one that was timed, or one that still ran.
    pub fn has_time(&self) -> bool {
        self.timed > 0 || self.open > 0
    }
}

/// A call path with what is known of its calls beyond the profile.
///
/// Derefs to the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedPath {
    /// The sums.
    pub profile: PathProfile,
    /// Known where each of the calls has a record of its own. Either all of the path's calls have a time, or none.
    pub detail: Option<PathDetail>,
}

/// What reports need of single calls to say of a call path what they say of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathDetail {
    /// Where the calls came from, if that is known.
    pub call_site: Option<CallSiteId>,
    /// Which untraced functions led to them, if they did not come from a traced call directly.
    pub context: Option<ContextId>,
    /// Timed calls by duration in nanoseconds, in ascending order: see
    /// [`Latency::record_counted`](crate::Latency::record_counted).
    pub durations: Vec<(u64, u64)>,
    /// Timed and open calls that took 0 ns.
    pub instant: u64,
    /// Calls that ended at the same time as the nearest timed call around them: those that took more than 0 ns.
    pub ended_with_caller: u64,
    /// The same of those that took 0 ns.
    pub instant_with_caller: u64,
}

impl FoldedPath {
    /// Which untraced functions led to the calls, if they did not come from a traced call directly.
    pub fn context(&self) -> Option<ContextId> {
        self.detail.as_ref().and_then(|detail| detail.context)
    }

    /// Where the calls came from, if that is known.
    pub fn call_site(&self) -> Option<CallSiteId> {
        self.detail.as_ref().and_then(|detail| detail.call_site)
    }
}

impl Deref for FoldedPath {
    type Target = PathProfile;

    fn deref(&self) -> &PathProfile {
        &self.profile
    }
}

impl From<PathProfile> for FoldedPath {
    fn from(profile: PathProfile) -> FoldedPath {
        FoldedPath { profile, detail: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_of_a_path_and_what_was_known_are_all_of_it() {
        let count = |inclusive, exclusive| Count { inclusive, exclusive };
        let mut before = PathProfile { calls: 3, timed: 2, open: 1, inclusive: 30, ..PathProfile::default() };
        (before.exclusive, before.open_time, before.min, before.max) = (20, 5, Some(4), Some(21));
        (before.histogram[3], before.counts) = (2, vec![count(7, 5)]);
        let mut now = PathProfile { calls: 9, timed: 7, unwound: 1, unseen: 2, inclusive: 100, ..before.clone() };
        (now.open, now.open_time, now.exclusive, now.min, now.counts) = (0, 0, 70, Some(1), vec![count(9, 9)]);
        now.histogram[3] = 6;
        let more = now.since(&before);
        assert_eq!((more.calls, more.timed, more.unwound, more.open, more.unseen), (6, 5, 1, 0, 2));
        assert_eq!((more.inclusive, more.exclusive, more.open_time), (70, 50, 0));
        assert_eq!((more.min, more.max, more.histogram[3]), (Some(1), Some(21), 4));
        let mut counts = before.counts;
        Count::add_all(&mut counts, more.counts.iter().copied());
        assert_eq!(counts, now.counts);
        assert_eq!(now.since(&PathProfile::default()), now);
    }

    #[test]
    fn counts_of_more_counters_make_room() {
        let mut sums = vec![Count { inclusive: 1, exclusive: 1 }];
        Count::add_exclusive(&mut sums, [Count { inclusive: 5, exclusive: 3 }; 2].into_iter());
        assert_eq!(sums, [Count { inclusive: 1, exclusive: 4 }, Count { inclusive: 0, exclusive: 3 }]);
    }
}
