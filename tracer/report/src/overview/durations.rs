//! How long the calls of a function took over time: calls by slice of time and step of duration.

use super::axis::Axis;

/// Steps of durations: two for each power of two.
const STEPS: usize = 128;

/// Durations of a function's calls over time.
#[derive(Debug, Default)]
pub struct Durations {
    scale: u32,
    /// The first of the steps that are in `cells`, and their number.
    first: usize,
    steps: usize,
    /// All slices up to the last one with a call, each with these steps.
    cells: Vec<u32>,
}

/// Calls of about the same duration that ended in a slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationCell {
    /// The number of the slice on the axis.
    pub slice: u32,
    /// The step of duration: 0 for 0 ns, 2n from 2ⁿ⁻¹ ns on, 2n + 1 from one and a half times that.
    pub step: u32,
    /// How many.
    pub calls: u32,
}

impl Durations {
    pub(super) fn new(axis: &Axis) -> Durations {
        Durations { scale: axis.scale(), ..Durations::default() }
    }

    /// Adds a call that ended in a slice and was timed; returns how many cells more there are.
    pub(super) fn add(&mut self, slice: u32, duration: u64) -> usize {
        let step = step(duration);
        let own = step.wrapping_sub(self.first);
        if own < self.steps
            && let Some(cell) = self.cells.get_mut(slice as usize * self.steps + own)
        {
            *cell = cell.saturating_add(1);
            return 0;
        }
        let before = self.cells.len();
        if own >= self.steps {
            self.make_room(step);
        }
        let slices = slice as usize + 1;
        if self.cells.len() < slices * self.steps {
            self.cells.resize(slices * self.steps, 0);
        }
        let cell = &mut self.cells[(slices - 1) * self.steps + step - self.first];
        *cell = cell.saturating_add(1);
        self.cells.len() - before
    }

    /// Slices and steps with calls, by slice.
    pub fn told(&self) -> impl Iterator<Item = DurationCell> {
        let cells = self.cells.iter().enumerate().filter(|&(_, &calls)| calls > 0);
        cells.map(|(place, &calls)| DurationCell {
            slice: (place / self.steps) as u32,
            step: (self.first + place % self.steps) as u32,
            calls,
        })
    }

    pub(super) fn room(&self) -> usize {
        self.cells.len()
    }

    /// Makes slices as wide as those of the axis, which only become wider. They must be as wide when calls are added.
    pub(super) fn fit(&mut self, axis: &Axis) {
        while self.scale < axis.scale() {
            self.scale += 1;
            let slices = self.cells.len().checked_div(self.steps).unwrap_or(0);
            for slice in 0..slices.div_ceil(2) {
                for step in 0..self.steps {
                    let of = |slice: usize| self.cells.get(slice * self.steps + step).copied().unwrap_or(0);
                    self.cells[slice * self.steps + step] = of(2 * slice).saturating_add(of(2 * slice + 1));
                }
            }
            self.cells.truncate(slices.div_ceil(2) * self.steps);
        }
    }

    /// Widens the range of steps to one with `step`, and with those beside it, which are likely to come.
    fn make_room(&mut self, step: usize) {
        let (mut first, mut end) = (step.saturating_sub(1), (step + 2).min(STEPS));
        if self.steps > 0 {
            (first, end) = (first.min(self.first), end.max(self.first + self.steps));
        }
        let mut cells = Vec::new();
        for of_slice in self.cells.chunks(self.steps.max(1)) {
            cells.resize(cells.len() + self.first - first, 0);
            cells.extend_from_slice(of_slice);
            cells.resize(cells.len() + end - self.first - self.steps, 0);
        }
        (self.first, self.steps, self.cells) = (first, end - first, cells);
    }
}

/// Two steps for each power of two: 0 for 0, 2n for durations from 2ⁿ⁻¹, 2n + 1 from one and a half times that.
fn step(duration: u64) -> usize {
    let bits = (u64::BITS - duration.leading_zeros()) as usize;
    let upper_half = bits > 1 && duration >> (bits - 2) & 1 == 1;
    (2 * bits + usize::from(upper_half)).min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use rtrace_model::Timestamp;

    use super::*;

    #[test]
    fn steps_halve_powers_of_two() {
        let steps: Vec<usize> = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15].map(step).into();
        assert_eq!(steps, [0, 2, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9]);
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    #[test]
    fn all_calls_stay_however_long_the_time_and_far_apart_the_durations() {
        let mut axis = Axis::new(Timestamp(0), 4);
        let mut durations = Durations::default();
        let mut room = 0;
        for (end, duration) in [(0, 5), (1, 900), (100, 1), (3, 0), (1_000_000, u64::MAX), (7, 5), (999, 70_000)] {
            while axis.slice(Timestamp(end)).is_none() {
                axis.widen();
            }
            durations.fit(&axis);
            room = durations.room();
            room += durations.add(axis.nearest(Timestamp(end)), duration);
        }
        assert_eq!(room, durations.room());
        let told: Vec<(u32, u32, u32)> = durations.told().map(|cell| (cell.slice, cell.step, cell.calls)).collect();
        assert_eq!(told, [(0, 0, 1), (0, 2, 1), (0, 6, 2), (0, 21, 1), (0, 34, 1), (3, 127, 1)]);
    }
}
