//! The distribution of durations: exact for few, within a thousandth for many.
//!
//! A histogram of three digits takes some 50 kB. Of thousands of functions most are called a few
//! times, so the first durations are kept as they are. Of folded calls only the power of two below
//! which each duration lies is known.

use crate::{HISTOGRAM_BUCKETS, histogram_bucket};
use hdrhistogram::Histogram;

/// Durations that are kept as they are; they take less than the histogram of as many.
const FEW: usize = 512;

/// Durations in nanoseconds, as a distribution.
#[derive(Clone, Debug, Default)]
pub struct Latency(Durations);

#[derive(Clone, Debug)]
enum Durations {
    Few(Vec<u64>),
    Many(Histogram<u32>),
    /// Calls by [`histogram_bucket`].
    Folded(Box<[u64; HISTOGRAM_BUCKETS]>),
}

impl Default for Durations {
    fn default() -> Durations {
        Durations::Few(Vec::new())
    }
}

impl Latency {
    /// Adds a duration in nanoseconds.
    pub fn record(&mut self, duration: u64) {
        match &mut self.0 {
            Durations::Few(durations) if durations.len() < FEW => durations.push(duration),
            Durations::Few(durations) => {
                let mut histogram = Histogram::new(3).expect("a histogram can have three digits");
                durations.iter().for_each(|&duration| record(&mut histogram, duration));
                record(&mut histogram, duration);
                self.0 = Durations::Many(histogram);
            }
            Durations::Many(histogram) => record(histogram, duration),
            Durations::Folded(buckets) => buckets[histogram_bucket(duration)] += 1,
        }
    }

    /// Adds folded durations. What is there must be folded, too.
    pub fn record_folded(&mut self, histogram: &[u64; HISTOGRAM_BUCKETS]) {
        match &mut self.0 {
            Durations::Folded(buckets) => buckets.iter_mut().zip(histogram).for_each(|(sum, calls)| *sum += calls),
            Durations::Few(_) | Durations::Many(_) => self.0 = Durations::Folded(Box::new(*histogram)),
        }
    }

    /// Whether percentiles are upper bounds.
    pub fn is_folded(&self) -> bool {
        matches!(self.0, Durations::Folded(_))
    }

    /// The duration in nanoseconds that `percent` of all do not exceed; absent when there is none.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        match &self.0 {
            Durations::Few(durations) => {
                let mut sorted = durations.clone();
                sorted.sort_unstable();
                let rank = (sorted.len() * percent as usize).div_ceil(100);
                sorted.get(rank.saturating_sub(1)).copied()
            }
            Durations::Many(histogram) => Some(histogram.value_at_percentile(percent.into())),
            Durations::Folded(buckets) => {
                let calls: u64 = buckets.iter().sum();
                let rank = (u128::from(calls) * u128::from(percent)).div_ceil(100).max(1);
                let mut below = 0;
                let bucket = buckets.iter().position(|&calls| {
                    below += u128::from(calls);
                    below >= rank
                });
                bucket.map(largest_in)
            }
        }
    }
}

/// The longest duration in a bucket.
fn largest_in(bucket: usize) -> u64 {
    if bucket == HISTOGRAM_BUCKETS - 1 { u64::MAX } else { (1 << bucket) - 1 }
}

fn record(histogram: &mut Histogram<u32>, duration: u64) {
    histogram.record(duration).expect("a histogram without limits grows to any duration");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_are_exact_and_of_many_have_three_digits() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentile(50), None);
        for duration in (1..=100).rev() {
            latency.record(duration * 1_001);
        }
        assert_eq!(latency.percentile(50), Some(50 * 1_001));
        assert_eq!(latency.percentile(99), Some(99 * 1_001));

        for duration in 101..=100_000 {
            latency.record(duration * 1_001);
        }
        for percent in [50, 99] {
            let exact = f64::from(percent) * 1_000.0 * 1_001.0;
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
        assert_eq!(latency.percentile(20), Some(0));
        assert_eq!(latency.percentile(40), Some(1));
        assert_eq!(latency.percentile(50), Some(127));
        assert_eq!(latency.percentile(99), Some((1 << 23) - 1));
        assert!(latency.is_folded());
    }

    #[test]
    fn takes_the_longest_duration() {
        let mut latency = Latency::default();
        for _ in 0..=FEW {
            latency.record(u64::MAX);
        }
        assert!(latency.percentile(50) > Some(u64::MAX / 1_000 * 999));
    }
}
