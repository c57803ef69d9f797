//! What the calls of a path add up to. Times in nanoseconds.

use rtrace_model::{Call, Count, Ending, Latency};

use super::reading;

#[derive(Default)]
pub(super) struct Sums {
    pub(super) calls: u64,
    pub(super) unwound: u64,
    pub(super) open: u64,
    pub(super) inclusive: u64,
    pub(super) exclusive: u64,
    /// The part of `inclusive` in open calls.
    pub(super) open_time: u64,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
    /// Of timed calls.
    pub(super) durations: Latency,
    /// Calls that took 0 ns.
    pub(super) instant: u64,
    /// Calls that ended when the nearest timed call around them did: others, and those that took 0 ns.
    pub(super) ended_with_caller: [u64; 2],
    pub(super) counts: Vec<Count>,
}

impl Sums {
    /// Adds a call with the values of its readings; returns how many numbers more there are.
    pub(super) fn add(&mut self, call: &Call, readings: &[u64]) -> i64 {
        self.calls += 1;
        let (Some(duration), Some(exclusive)) = (call.duration, call.exclusive()) else { return 0 };
        self.inclusive = self.inclusive.saturating_add(duration);
        self.exclusive = self.exclusive.saturating_add(exclusive);
        self.instant += u64::from(duration == 0);
        self.counts.resize(readings.len() / 2, Count::default());
        for (count, values) in self.counts.iter_mut().zip(readings.chunks_exact(2)) {
            let reading = reading(values);
            let of_call = Count { inclusive: reading.inclusive, exclusive: reading.exclusive() };
            add_count(count, of_call);
        }
        if call.ending == Ending::Open {
            self.open += 1;
            self.open_time = self.open_time.saturating_add(duration);
            return 0;
        }
        self.unwound += u64::from(call.ending == Ending::Unwound);
        self.min = Some(self.min.map_or(duration, |min| min.min(duration)));
        self.max = self.max.max(Some(duration));
        let before = self.durations.numbers();
        self.durations.record(duration);
        self.durations.numbers() as i64 - before as i64
    }

    /// Adds those of other calls; returns how many numbers more there are.
    pub(super) fn merge(&mut self, other: Sums) -> i64 {
        let before = self.durations.numbers() + other.durations.numbers();
        self.calls += other.calls;
        self.unwound += other.unwound;
        self.open += other.open;
        self.inclusive = self.inclusive.saturating_add(other.inclusive);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        self.open_time = self.open_time.saturating_add(other.open_time);
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
        self.instant += other.instant;
        self.ended_with_caller.iter_mut().zip(other.ended_with_caller).for_each(|(sum, of)| *sum += of);
        self.counts.resize(self.counts.len().max(other.counts.len()), Count::default());
        self.counts.iter_mut().zip(other.counts).for_each(|(count, of)| add_count(count, of));
        self.durations.merge(&other.durations);
        self.durations.numbers() as i64 - before as i64
    }
}

fn add_count(sum: &mut Count, of: Count) {
    sum.inclusive = sum.inclusive.saturating_add(of.inclusive);
    sum.exclusive = sum.exclusive.saturating_add(of.exclusive);
}
