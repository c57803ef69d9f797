//! The distribution of durations: exact for few, within a thousandth for many.
//!
//! A histogram of three digits takes some 50 kB. Of thousands of functions most are called a few
//! times, so the first durations are kept as they are. Of folded calls only the power of two below
//! which each duration lies is known.

use hdrhistogram::Histogram;

use crate::{HISTOGRAM_BUCKETS, histogram_bucket};

/// Durations that are kept as they are; they take less than the histogram of as many.
pub const FEW_DURATIONS: usize = 512;

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
    /// Adds a duration.
    pub fn record(&mut self, duration: u64) {
        match &mut self.0 {
            Durations::Few(durations) if durations.len() < FEW_DURATIONS => durations.push(duration),
            _ => self.add(duration, 1),
        }
    }

    /// Adds folded durations; all are folded then.
    pub fn record_folded(&mut self, histogram: &[u64; HISTOGRAM_BUCKETS]) {
        if !self.is_folded() {
            *self = self.folded();
        }
        if let Durations::Folded(buckets) = &mut self.0 {
            buckets.iter_mut().zip(histogram).for_each(|(sum, calls)| *sum += calls);
        }
    }

    /// Adds durations with how many calls took each. It makes no difference to recording them one by one if they are
    /// exact, or at least [`FEW_DURATIONS`] + 1 and each as [`three_digits`] gives it.
    pub fn record_counted(&mut self, durations: &[(u64, u64)]) {
        for &(duration, mut count) in durations {
            while let (Durations::Few(few), true) = (&mut self.0, count > 0) {
                if few.len() == FEW_DURATIONS {
                    break;
                }
                few.push(duration);
                count -= 1;
            }
            if count > 0 {
                self.add(duration, count);
            }
        }
    }

    /// Adds the durations of another.
    pub fn merge(&mut self, other: &Latency) {
        match &other.0 {
            Durations::Few(durations) => durations.iter().for_each(|&duration| self.record(duration)),
            Durations::Many(_) => other.counted().into_iter().for_each(|(duration, count)| self.add(duration, count)),
            Durations::Folded(buckets) => self.record_folded(buckets),
        }
    }

    /// Adds a number of equal durations to what is no longer few.
    fn add(&mut self, duration: u64, count: u64) {
        if let Durations::Few(durations) = &self.0 {
            let mut histogram = Histogram::new(3).expect("a histogram can have three digits");
            durations.iter().for_each(|&duration| record(&mut histogram, duration, 1));
            self.0 = Durations::Many(histogram);
        }
        match &mut self.0 {
            Durations::Many(histogram) => record(histogram, duration, count),
            Durations::Folded(buckets) => buckets[histogram_bucket(duration)] += count,
            Durations::Few(_) => unreachable!("few have just become many"),
        }
    }

    /// The same durations, folded.
    pub fn folded(&self) -> Latency {
        let mut folded = Latency(Durations::Folded(Box::new([0; HISTOGRAM_BUCKETS])));
        folded.merge(self);
        folded
    }

    /// Whether percentiles are upper bounds.
    pub fn is_folded(&self) -> bool {
        matches!(self.0, Durations::Folded(_))
    }

    /// The duration that `percent` of all do not exceed; absent when there is none.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        match &self.0 {
            Durations::Few(durations) => {
                let mut sorted = durations.clone();
                sorted.sort_unstable();
                let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
                sorted.get(rank.saturating_sub(1)).copied()
            }
            Durations::Many(histogram) => Some(histogram.value_at_percentile(percent)),
            Durations::Folded(buckets) => {
                let calls: u64 = buckets.iter().sum();
                let rank = ((calls as f64 * percent / 100.0).ceil() as u64).max(1);
                let mut below = 0;
                let bucket = buckets.iter().position(|&calls| {
                    below += calls;
                    below >= rank
                });
                bucket.map(largest_in)
            }
        }
    }

    /// Number of durations by [`histogram_bucket`], without empty buckets.
    pub fn buckets(&self) -> Vec<(usize, u64)> {
        let mut counts = [0; HISTOGRAM_BUCKETS];
        for (duration, count) in self.counted() {
            counts[histogram_bucket(duration)] += count;
        }
        counts.into_iter().enumerate().filter(|&(_, count)| count > 0).collect()
    }

    /// Durations with how many calls took each, in ascending order; durations that differ by less
    /// than a thousandth count as one, few or many, and of folded ones those of a bucket.
    pub fn counted(&self) -> Vec<(u64, u64)> {
        match &self.0 {
            Durations::Few(durations) => {
                let mut sorted: Vec<u64> = durations.iter().copied().map(three_digits).collect();
                sorted.sort_unstable();
                sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect()
            }
            Durations::Many(histogram) => histogram
                .iter_recorded()
                .map(|step| (three_digits(step.value_iterated_to()), step.count_at_value().into()))
                .collect(),
            Durations::Folded(buckets) => {
                let counted = buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
                counted.map(|(bucket, &count)| (largest_in(bucket), count)).collect()
            }
        }
    }
}

/// The longest duration in a bucket.
fn largest_in(bucket: usize) -> u64 {
    if bucket == HISTOGRAM_BUCKETS - 1 { u64::MAX } else { (1 << bucket) - 1 }
}

/// The least duration that a histogram of three digits does not tell from this one: it keeps the
/// first 11 bits.
pub fn three_digits(duration: u64) -> u64 {
    let dropped = (u64::BITS - duration.leading_zeros()).saturating_sub(11);
    duration >> dropped << dropped
}

fn record(histogram: &mut Histogram<u32>, duration: u64, count: u64) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    histogram.record_n(duration, count).expect("a histogram without limits grows to any duration");
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
