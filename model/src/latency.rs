//! The distribution of durations: exact for few, within a thousandth for many.
//!
//! Of thousands of functions most are called a few times, so the first durations are kept as they are. Of folded calls
//! only the power of two below which each duration lies is known.

use crate::{HISTOGRAM_BUCKETS, histogram_bucket};

/// Durations that are kept as they are.
pub const FEW_DURATIONS: usize = 512;

/// Durations in nanoseconds, as a distribution.
#[derive(Clone, Debug)]
pub struct Latency(DurationList);

#[derive(Clone, Debug)]
enum DurationList {
    Listed {
        /// As they are; all of them, unless some are counted.
        fresh: Vec<u64>,
        /// Durations of three digits and how many calls took each, in ascending order.
        counted: Vec<(u64, u64)>,
    },
    /// Calls by [`histogram_bucket`].
    Folded(Box<[u64; HISTOGRAM_BUCKETS]>),
}

impl Default for Latency {
    fn default() -> Latency {
        Latency(DurationList::Listed { fresh: Vec::new(), counted: Vec::new() })
    }
}

impl Latency {
    /// Adds a duration.
    pub fn record(&mut self, duration: u64) {
        match &mut self.0 {
            DurationList::Listed { fresh, counted } => {
                // The more there are, the more are counted at once: going through them costs as much for one as for all.
                if fresh.len() == FEW_DURATIONS.max(counted.len()) {
                    let fresh = std::mem::take(fresh);
                    add(counted, fresh.into_iter().map(|duration| (duration, 1)));
                }
                fresh.push(duration);
            }
            DurationList::Folded(buckets) => buckets[histogram_bucket(duration)] += 1,
        }
    }

    /// Adds folded durations; all are folded then.
    pub fn record_folded(&mut self, histogram: &[u64; HISTOGRAM_BUCKETS]) {
        if !self.is_folded() {
            *self = self.folded();
        }
        if let DurationList::Folded(buckets) = &mut self.0 {
            buckets.iter_mut().zip(histogram).for_each(|(sum, calls)| *sum += calls);
        }
    }

    /// Adds durations with how many calls took each, as [`listed`](Self::listed) gives them. It makes no difference to
    /// recording them one by one.
    pub fn record_counted(&mut self, durations: &[(u64, u64)]) {
        match &mut self.0 {
            DurationList::Listed { fresh, counted } => {
                let calls: u64 = durations.iter().map(|&(_, calls)| calls).sum();
                if counted.is_empty() && fresh.len() as u64 + calls <= FEW_DURATIONS as u64 {
                    fresh.extend(durations.iter().flat_map(|&(duration, calls)| (0..calls).map(move |_| duration)));
                } else {
                    add(counted, durations.iter().copied());
                }
            }
            DurationList::Folded(buckets) => {
                durations.iter().for_each(|&(duration, calls)| buckets[histogram_bucket(duration)] += calls);
            }
        }
    }

    /// Adds the durations of another.
    pub fn merge(&mut self, other: &Latency) {
        match &other.0 {
            DurationList::Listed { fresh, counted } => {
                if !counted.is_empty() {
                    self.record_counted(counted);
                }
                fresh.iter().for_each(|&duration| self.record(duration));
            }
            DurationList::Folded(buckets) => self.record_folded(buckets),
        }
    }

    /// The same durations, folded.
    pub fn folded(&self) -> Latency {
        let mut folded = Latency(DurationList::Folded(Box::new([0; HISTOGRAM_BUCKETS])));
        folded.merge(self);
        folded
    }

    /// Whether percentiles are upper bounds.
    pub fn is_folded(&self) -> bool {
        matches!(self.0, DurationList::Folded(_))
    }

    /// Numbers of 8 bytes that it keeps.
    pub fn numbers(&self) -> usize {
        match &self.0 {
            DurationList::Listed { fresh, counted } => fresh.len() + 2 * counted.len(),
            DurationList::Folded(buckets) => buckets.len(),
        }
    }

    /// The duration that `percent` of all do not exceed; absent when there is none.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let listed = self.listed();
        let calls: u64 = listed.iter().map(|&(_, calls)| calls).sum();
        let rank = ((calls as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut below = 0;
        let &(duration, _) = listed.iter().find(|&&(_, calls)| {
            below += calls;
            below >= rank
        })?;
        let is_rounded = matches!(&self.0, DurationList::Listed { counted, .. } if !counted.is_empty());
        Some(if is_rounded { duration | ((1 << dropped_bits(duration)) - 1) } else { duration })
    }

    /// Number of durations by [`histogram_bucket`], without empty buckets.
    pub fn buckets(&self) -> Vec<(usize, u64)> {
        let mut counts = [0; HISTOGRAM_BUCKETS];
        for (duration, count) in self.listed() {
            counts[histogram_bucket(duration)] += count;
        }
        counts.into_iter().enumerate().filter(|&(_, count)| count > 0).collect()
    }

    /// Durations with how many calls took each, in ascending order: exact where there are at most [`FEW_DURATIONS`], else
    /// as [`three_digits`] gives them, and of folded ones the longest of a bucket.
    pub fn listed(&self) -> Vec<(u64, u64)> {
        match &self.0 {
            DurationList::Listed { fresh, counted } if counted.is_empty() => grouped(fresh.iter().map(|&one| (one, 1))),
            DurationList::Listed { fresh, counted } => {
                let mut all = counted.clone();
                add(&mut all, fresh.iter().map(|&duration| (duration, 1)));
                all
            }
            DurationList::Folded(buckets) => {
                let used = buckets.iter().enumerate().filter(|&(_, &calls)| calls > 0);
                used.map(|(bucket, &calls)| (largest_in(bucket), calls)).collect()
            }
        }
    }

    /// The same, few or many as [`three_digits`] gives them.
    pub fn counted(&self) -> Vec<(u64, u64)> {
        match self.is_folded() {
            true => self.listed(),
            false => grouped(self.listed().into_iter().map(|(duration, calls)| (three_digits(duration), calls))),
        }
    }
}

/// The longest duration in a bucket.
fn largest_in(bucket: usize) -> u64 {
    if bucket == HISTOGRAM_BUCKETS - 1 { u64::MAX } else { (1 << bucket) - 1 }
}

/// The least duration that has the same three digits, in binary: the same first 11 bits.
pub fn three_digits(duration: u64) -> u64 {
    duration >> dropped_bits(duration) << dropped_bits(duration)
}

fn dropped_bits(duration: u64) -> u32 {
    (u64::BITS - duration.leading_zeros()).saturating_sub(11)
}

/// Adds durations to those of three digits.
fn add(counted: &mut Vec<(u64, u64)>, durations: impl Iterator<Item = (u64, u64)>) {
    let durations = durations.map(|(duration, calls)| (three_digits(duration), calls));
    *counted = grouped(std::mem::take(counted).into_iter().chain(durations));
}

/// In ascending order, each duration once.
fn grouped(durations: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = durations.collect();
    // The stable sort merges what is in order already.
    all.sort();
    all.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        kept.1 += if is_same { later.1 } else { 0 };
        is_same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_are_exact_and_of_many_have_three_digits() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentile(50.0), None);
        for duration in (1..=100).rev() {
            latency.record(duration * 1_001);
        }
        assert_eq!(latency.percentile(50.0), Some(50 * 1_001));
        assert_eq!(latency.percentile(99.0), Some(99 * 1_001));

        for duration in 101..=100_000 {
            latency.record(duration * 1_001);
        }
        for percent in [50.0, 90.0, 99.0, 99.9] {
            let exact = percent * 1_000.0 * 1_001.0;
            let found = latency.percentile(percent).expect("there are many") as f64;
            assert!((found / exact - 1.0).abs() <= 0.001, "p{percent}: {found} for {exact}");
        }
    }

    #[test]
    fn percentiles_of_folded_durations_are_bounds() {
        let mut latency = Latency::default();
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        for duration in [0, 1, 100, 120, 5_000_000] {
            histogram[histogram_bucket(duration)] += 1;
        }
        latency.record_folded(&histogram);
        latency.record_folded(&histogram);
        assert_eq!(latency.percentile(20.0), Some(0));
        assert_eq!(latency.percentile(40.0), Some(1));
        assert_eq!(latency.percentile(50.0), Some(127));
        assert_eq!(latency.percentile(99.0), Some((1 << 23) - 1));
        assert!(latency.is_folded());
    }

    #[test]
    fn few_and_many_of_one_duration_are_the_same_distribution() {
        for duration in [0, 7, 2_047, 2_048, 100_237, 123_456_789_012, u64::MAX] {
            let mut few = Latency::default();
            few.record(duration);
            let mut many = Latency::default();
            (0..=FEW_DURATIONS).for_each(|_| many.record(duration));
            assert_eq!(few.counted()[0].0, many.counted()[0].0);
            few.merge(&many);
            assert_eq!(few.counted(), [(three_digits(duration), FEW_DURATIONS as u64 + 2)]);
            let mut folded = many.folded();
            folded.merge(&few);
            assert_eq!(folded.buckets(), [(histogram_bucket(duration), 2 * FEW_DURATIONS as u64 + 3)]);
            few.merge(&folded);
            assert_eq!(few.buckets(), [(histogram_bucket(duration), 3 * FEW_DURATIONS as u64 + 5)]);
        }
    }

    #[test]
    fn takes_the_longest_duration() {
        let mut latency = Latency::default();
        for _ in 0..=FEW_DURATIONS {
            latency.record(u64::MAX);
        }
        assert!(latency.percentile(50.0) > Some(u64::MAX / 1_000 * 999));
    }
}
