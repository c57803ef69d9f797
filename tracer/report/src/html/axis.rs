//! Time in equal slices. How long a recording is may be known only when its calls are read, so slices become wider as
//! later times appear: each time two of them become one.

use rtrace_model::Timestamp;

/// At most so many slices from the begin of a recording.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    begin: Timestamp,
    /// Of a slice, in nanoseconds.
    width: u64,
    slices: usize,
}

impl Axis {
    /// Slices of a recording of `length` nanoseconds, as far as that is known.
    pub(super) fn new(begin: Timestamp, length: Option<u64>, slices: usize) -> Axis {
        Axis { begin, width: length.unwrap_or(0).div_ceil(slices as u64).max(1), slices }
    }

    pub(super) fn slices(&self) -> usize {
        self.slices
    }

    /// Of a slice, in nanoseconds.
    pub(super) fn width(&self) -> u64 {
        self.width
    }

    /// Nanoseconds since the begin.
    pub(super) fn offset(&self, time: Timestamp) -> u64 {
        time.since(self.begin)
    }

    /// The slice of an instant, where it is not behind the last one.
    pub(super) fn slice(&self, time: Timestamp) -> Option<usize> {
        usize::try_from(self.offset(time) / self.width).ok().filter(|&slice| slice < self.slices)
    }

    /// Makes two slices one.
    pub(super) fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
    }
}

/// Adds up in place what is of two slices that become one; each slice has `cells` values.
pub(super) fn merge_slices<T: Copy + Default>(values: &mut [T], cells: usize, add: impl Fn(T, T) -> T) {
    let slices = values.len() / cells;
    for slice in 0..slices {
        for cell in 0..cells {
            let of = |slice: usize| values.get(slice * cells + cell).copied().unwrap_or_default();
            values[slice * cells + cell] = add(of(2 * slice), of(2 * slice + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn slices_become_as_wide_as_needed() {
        let mut axis = Axis::new(Timestamp(100), Some(40), 10);
        assert_eq!((axis.width(), axis.slice(Timestamp(139)), axis.slice(Timestamp(140))), (4, Some(9), None));
        assert_eq!(axis.slice(Timestamp(0)), Some(0), "what began before is in the first slice");
        axis.widen();
        assert_eq!((axis.slice(Timestamp(139)), axis.slice(Timestamp(140))), (Some(4), Some(5)));
        let mut endless = Axis::new(Timestamp(0), None, 3);
        while endless.slice(Timestamp(u64::MAX)).is_none() {
            endless.widen();
        }
    }

    #[test]
    fn pairs_of_slices_are_added_cell_by_cell() {
        let mut values = [1, 10, 2, 20, 3, 30];
        merge_slices(&mut values, 2, |a, b| a + b);
        assert_eq!(values, [3, 30, 3, 30, 0, 0]);
    }
}
