//! The last calls of a thread, for a timeline.
//!
//! A thread may end a million calls a second, and a picture of the last minute needs the few long
//! ones among them. So calls are kept by how long they took, as many of each class: the longer, the
//! further back.

use std::collections::VecDeque;

use rtrace_model::{Call, RegionId};

/// Durations in nanoseconds at which the next class begins.
const LIMITS: [u64; CLASSES - 1] = [10_000, 100_000, 1_000_000, 10_000_000];
const CLASSES: usize = 5;

/// A call as a bar of a timeline. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its begin.
    pub start: u64,
    /// Its duration.
    pub duration: u64,
    /// The function.
    pub region: RegionId,
    /// Number of calls it is nested in.
    pub depth: u32,
}

impl Bar {
    /// The bar of a call of that duration.
    pub fn new(call: &Call, duration: u64) -> Bar {
        Bar { start: call.start.0, duration, region: call.region, depth: call.depth }
    }

    /// Its end.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }
}

/// The last calls of one thread.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    kept: [VecDeque<Bar>; CLASSES],
    /// Per class: end of the latest evicted call.
    forgotten: [Option<u64>; CLASSES],
}

/// Calls that are missing from a part of the time, as too many came after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forgotten {
    /// They are shorter than this; absent where they may have any duration.
    pub shorter_than: Option<u64>,
    /// They ended until then.
    pub until: u64,
}

impl Lanes {
    /// Adds a call that ended, `most` are kept of each class; one that was not timed is a mark without
    /// length.
    pub fn add(&mut self, call: &Call, most: usize) {
        let duration = call.duration.unwrap_or(0);
        let class = LIMITS.iter().take_while(|&&limit| duration >= limit).count();
        let bars = &mut self.kept[class];
        while bars.len() >= most.max(1) {
            let oldest = bars.pop_front().map(|bar| bar.end());
            self.forgotten[class] = self.forgotten[class].max(oldest);
        }
        bars.push_back(Bar::new(call, duration));
    }

    /// The calls kept that touch a span of time, the longest classes first, each newest first.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Bar> {
        self.kept.iter().rev().flat_map(move |bars| {
            // They are in the order of their ends, nearly: threads move between CPUs.
            let newest = bars.iter().rev().take_while(move |bar| bar.end() >= from);
            newest.filter(move |bar| bar.start <= to)
        })
    }
    /// What is missing after a time: the longest of such calls.
    pub fn forgotten(&self, from: u64) -> Option<Forgotten> {
        let class = (0..CLASSES).rev().find(|&class| self.forgotten[class].is_some_and(|end| end > from))?;
        Some(Forgotten { shorter_than: LIMITS.get(class).copied(), until: self.forgotten[class]? })
    }
}

#[cfg(test)]
mod tests {
    use rtrace_model::{Ending, LocationId, Timestamp};

    use super::*;

    #[test]
    fn long_calls_are_kept_longer_than_short_ones() {
        let mut lanes = Lanes::default();
        let call = |start, duration| Call {
            location: LocationId(1),
            start: Timestamp(start),
            duration: Some(duration),
            ..Call::default()
        };
        lanes.add(&call(0, 50_000_000), 3);
        for number in 0..10 {
            lanes.add(&call(60_000_000 + number * 100, 50), 3);
        }
        let kept: Vec<u64> = lanes.within(0, u64::MAX).map(|bar| bar.start).collect();
        assert_eq!(kept, [0, 60_000_900, 60_000_800, 60_000_700]);
        assert_eq!(lanes.within(55_000_000, 60_000_750).count(), 1);
        let forgotten = Forgotten { shorter_than: Some(10_000), until: 60_000_650 };
        assert_eq!((lanes.forgotten(0), lanes.forgotten(60_000_700)), (Some(forgotten), None));
        lanes.add(&Call { duration: None, ending: Ending::Unseen, ..call(70_000_000, 0) }, 3);
        let marks: Vec<_> = lanes.within(65_000_000, u64::MAX).map(|bar| (bar.start, bar.end())).collect();
        assert_eq!(marks, [(70_000_000, 70_000_000)]);
    }
}
