//! Calls by slot of time and by duration, of the last minute or of the range looked at.

use std::collections::VecDeque;

use rtrace_model::HISTOGRAM_BUCKETS;

/// Slots that are kept.
pub const SLOTS: u64 = 60;

/// Classes of durations, two to a decade: from 1 ns to more than 30 s.
pub const CLASSES: usize = 22;

/// The class of a duration in nanoseconds: even ones begin at a power of ten, odd ones at about
/// three times as much (√10).
pub fn class(duration: u64) -> usize {
    const HALVES: [u64; CLASSES / 2] =
        [4, 32, 317, 3_163, 31_623, 316_228, 3_162_278, 31_622_777, 316_227_767, 3_162_277_661, 31_622_776_602];
    let decade = duration.max(1).ilog10() as usize;
    match HALVES.get(decade) {
        Some(&half) => 2 * decade + usize::from(duration >= half),
        None => CLASSES - 1,
    }
}

/// The class of the middle of a bucket of folded calls, see [`rtrace_model::histogram_bucket`].
pub fn class_of_bucket(bucket: usize) -> usize {
    class((0.75 * 2_f64.powi(bucket as i32)) as u64)
}

/// The calls that ended in one slot of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Counts up from the begin.
    pub number: u64,
    /// All calls.
    pub calls: u64,
    /// Those with a duration, by [`class`].
    pub classes: [u32; CLASSES],
}

/// The slots in which there were calls, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Slot>);

impl History {
    /// Counts a call that ended in this slot; one that ended before all that is kept is left out.
    pub fn add(&mut self, number: u64, duration: Option<u64>) {
        let Some(slot) = self.slot(number) else { return };
        slot.calls += 1;
        if let Some(duration) = duration {
            slot.classes[class(duration)] += 1;
        }
    }

    /// Counts so many calls of any duration.
    pub fn add_calls(&mut self, number: u64, calls: u64) {
        if calls > 0
            && let Some(slot) = self.slot(number)
        {
            slot.calls += calls;
        }
    }

    /// Counts folded calls, those with a duration by [`rtrace_model::histogram_bucket`].
    pub fn fold(&mut self, number: u64, calls: u64, histogram: &[u64; HISTOGRAM_BUCKETS]) {
        if calls > 0
            && let Some(slot) = self.slot(number)
        {
            slot.calls += calls;
            for (bucket, &calls) in histogram.iter().enumerate().filter(|&(_, &calls)| calls > 0) {
                let sum = &mut slot.classes[class_of_bucket(bucket)];
                *sum = sum.saturating_add(u32::try_from(calls).unwrap_or(u32::MAX));
            }
        }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let place = self.0.iter().rposition(|slot| slot.number <= number);
        if let Some(place) = place.filter(|&place| self.0[place].number == number) {
            return self.0.get_mut(place);
        }
        let mut place = place.map_or(0, |before| before + 1);
        self.0.insert(place, Slot { number, ..Slot::default() });
        let newest = self.0.back().map_or(number, |slot| slot.number);
        while self.0.front().is_some_and(|oldest| oldest.number + SLOTS <= newest) {
            self.0.pop_front();
            place = place.checked_sub(1)?;
        }
        self.0.get_mut(place)
    }

    /// Calls in one slot.
    pub fn calls(&self, number: u64) -> u64 {
        let place = self.0.binary_search_by_key(&number, |slot| slot.number);
        place.map_or(0, |place| self.0[place].calls)
    }

    /// What is kept, oldest first.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_half_decades() {
        let of = [0, 1, 3, 4, 9, 10, 31, 32, 999, 1_000, 3_162, 3_163, 31_622_776_602, u64::MAX].map(class);
        assert_eq!(of, [0, 0, 0, 1, 1, 2, 2, 3, 5, 6, 6, 7, 21, 21]);
    }

    #[test]
    fn a_minute_is_kept_and_stragglers_find_their_slot() {
        let mut history = History::default();
        for number in [5, 7, 6, 7, 64, 65] {
            history.add(number, Some(1_000));
        }
        let kept: Vec<_> = history.slots().map(|slot| (slot.number, slot.calls)).collect();
        assert_eq!(kept, [(6, 1), (7, 2), (64, 1), (65, 1)]);
        history.add(3, None);
        assert_eq!(history.slots().count(), 4, "too old to be kept");
        history.add_calls(7, 1);
        assert_eq!((history.calls(7), history.calls(8)), (3, 0));
    }
}
