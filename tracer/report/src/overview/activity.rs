//! How busy a thread was over time, and how often it called.

use rtrace_model::Timestamp;

use super::axis::Axis;

/// What a thread did over time.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The scale of the axis of `slices`.
    scale: u32,
    /// Those in which something was, in their order.
    slices: Vec<Slice>,
    /// The place of the slice that was used last, which is often the next, too.
    last: usize,
}

/// What a thread did in a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its number on the axis.
    pub number: u32,
    /// Calls that began in it.
    pub calls: u64,
    /// Nanoseconds of it within traced calls whose time is known.
    pub busy: u64,
}

impl Slice {
    fn add_busy(&mut self, time: u64) {
        self.busy = self.busy.saturating_add(time);
    }
}

impl Activity {
    pub(super) fn new(axis: &Axis) -> Activity {
        Activity { scale: axis.scale(), ..Activity::default() }
    }

    /// Slices in which something was.
    pub fn told(&self) -> &[Slice] {
        &self.slices
    }

    pub(super) fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Adds a call; returns how many slices more there are.
    pub(super) fn add_call(&mut self, axis: &Axis, start: Timestamp) -> usize {
        let before = self.slices.len();
        self.slice(axis.nearest(start)).calls += 1;
        self.slices.len() - before
    }

    /// Adds the time of a call that no other call's time contains; returns how many slices more there are.
    pub(super) fn add_time(&mut self, axis: &Axis, start: Timestamp, end: Timestamp) -> usize {
        if start >= end {
            return 0;
        }
        let before = self.slices.len();
        let (first, last) = (axis.nearest(start), axis.nearest(end));
        let (start, end) = (axis.offset(start), axis.offset(end));
        if first == last {
            self.slice(first).add_busy(end - start);
            return self.slices.len() - before;
        }
        for number in first..=last {
            let begin = u64::from(number) << axis.scale();
            let until = if number == last { end } else { begin + axis.width() };
            self.slice(number).add_busy(until.saturating_sub(start.max(begin)));
        }
        self.slices.len() - before
    }

    /// Makes slices as wide as those of the axis, which only become wider. It must be as wide when something is added.
    pub(super) fn fit(&mut self, axis: &Axis) {
        let narrower = axis.scale() - self.scale;
        if narrower == 0 {
            return;
        }
        (self.scale, self.last) = (axis.scale(), 0);
        self.slices.iter_mut().for_each(|slice| slice.number = slice.number.checked_shr(narrower).unwrap_or(0));
        self.slices.dedup_by(|later, slice| {
            let is_same = later.number == slice.number;
            if is_same {
                slice.calls = slice.calls.saturating_add(later.calls);
                slice.busy = slice.busy.saturating_add(later.busy);
            }
            is_same
        });
    }

    fn slice(&mut self, number: u32) -> &mut Slice {
        if self.slices.get(self.last).is_none_or(|slice| slice.number != number) {
            self.last = match self.slices.binary_search_by_key(&number, |slice| slice.number) {
                Ok(place) => place,
                Err(place) => {
                    self.slices.insert(place, Slice { number, ..Slice::default() });
                    place
                }
            };
        }
        &mut self.slices[self.last]
    }
}
