//! Durations as [`Latency`](rtrace_model::Latency) tells them apart: few as they are, many within a thousandth. So a
//! report from here has the percentiles of one from the calls.

use rtrace_model::{FEW_DURATIONS, three_digits};

#[derive(Default)]
pub(super) struct Durations {
    /// As they are; all of them, unless some are counted.
    fresh: Vec<u64>,
    /// Durations of three digits and how many calls took each, in ascending order.
    counted: Vec<(u64, u64)>,
}

impl Durations {
    /// Adds a duration; returns how many numbers more are kept.
    pub(super) fn record(&mut self, duration: u64) -> i64 {
        let before = self.numbers();
        // The more there are, the more are counted at once: going through them costs as much for one as for all.
        if self.fresh.len() == FEW_DURATIONS.max(self.counted.len()) {
            let fresh = std::mem::take(&mut self.fresh);
            self.count(in_groups(fresh.into_iter().map(three_digits).collect()));
        }
        self.fresh.push(duration);
        self.numbers() - before
    }

    /// Adds others; returns how many numbers more are kept than in both.
    pub(super) fn merge(&mut self, other: Durations) -> i64 {
        let before = self.numbers() + other.numbers();
        self.count(other.counted);
        other.fresh.into_iter().for_each(|duration| {
            self.record(duration);
        });
        self.numbers() - before
    }

    /// In ascending order with how many calls took each; of three digits where there are more than
    /// [`FEW_DURATIONS`].
    pub(super) fn counted(&self) -> Vec<(u64, u64)> {
        match self.counted.is_empty() {
            true => in_groups(self.fresh.clone()),
            false => {
                let fresh = in_groups(self.fresh.iter().copied().map(three_digits).collect());
                merged(&self.counted, &fresh)
            }
        }
    }

    fn count(&mut self, counted: Vec<(u64, u64)>) {
        self.counted = match self.counted.is_empty() {
            true => counted,
            false => merged(&self.counted, &counted),
        };
    }

    fn numbers(&self) -> i64 {
        (self.fresh.len() + 2 * self.counted.len()) as i64
    }
}

fn in_groups(mut durations: Vec<u64>) -> Vec<(u64, u64)> {
    durations.sort_unstable();
    durations.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect()
}

/// Two ascending lists as one.
fn merged(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a, b);
    while let (Some(&first), Some(&second)) = (a.first(), b.first()) {
        all.push(match first.0.cmp(&second.0) {
            std::cmp::Ordering::Less => first,
            std::cmp::Ordering::Greater => second,
            std::cmp::Ordering::Equal => (first.0, first.1 + second.1),
        });
        a = &a[usize::from(first.0 <= second.0)..];
        b = &b[usize::from(second.0 <= first.0)..];
    }
    all.extend_from_slice(a);
    all.extend_from_slice(b);
    all
}
