//! Durations over time: calls by slice of time and step of duration, of all functions together and of each.

use foldhash::HashMap;
use rtrace_model::{Call, Ending, RegionId};

use super::axis::{Axis, merge_slices};

/// Steps of durations: two for each power of two.
const STEPS: usize = 128;

/// Functions that have a map of their own; each takes at most 49 kB.
const MOST_FUNCTIONS: usize = 1_024;

/// Slices of time of a function's map.
const SLICES: usize = 96;

pub(super) struct Heat {
    all: Map,
    functions: HashMap<RegionId, Map>,
    /// What a function's map begins as.
    empty: Axis,
}

/// Calls by slice and step.
pub(super) struct Map {
    axis: Axis,
    /// All slices up to the last one with a call, each with all steps.
    cells: Vec<u32>,
}

impl Heat {
    pub(super) fn new(all: Axis, begin: rtrace_model::Timestamp, length: Option<u64>) -> Heat {
        let empty = Axis::new(begin, length, SLICES);
        Heat { all: Map::new(all), functions: HashMap::default(), empty }
    }

    /// Adds a call that ended and was timed.
    pub(super) fn add(&mut self, call: &Call) {
        let Some(duration) = call.duration.filter(|_| call.ending != Ending::Open) else { return };
        self.all.add(call, duration);
        let is_room = self.functions.len() < MOST_FUNCTIONS;
        match self.functions.get_mut(&call.region) {
            Some(map) => map.add(call, duration),
            None if is_room => {
                let mut map = Map::new(self.empty.clone());
                map.add(call, duration);
                self.functions.insert(call.region, map);
            }
            None => {}
        }
    }

    pub(super) fn all(&self) -> &Map {
        &self.all
    }

    pub(super) fn of(&self, region: RegionId) -> Option<&Map> {
        self.functions.get(&region)
    }
}

impl Map {
    fn new(axis: Axis) -> Map {
        Map { axis, cells: Vec::new() }
    }

    fn add(&mut self, call: &Call, duration: u64) {
        let end = call.known_until();
        let slice = loop {
            match self.axis.slice(end) {
                Some(slice) => break slice,
                None => {
                    merge_slices(&mut self.cells, STEPS, u32::saturating_add);
                    self.axis.widen();
                }
            }
        };
        let place = slice * STEPS + step(duration);
        if self.cells.len() <= place {
            self.cells.resize((slice + 1) * STEPS, 0);
        }
        self.cells[place] = self.cells[place].saturating_add(1);
    }

    /// Width of a slice in nanoseconds, then slice, step and calls of each cell that has some.
    pub(super) fn told(&self) -> serde_json::Value {
        let cells = self.cells.iter().enumerate().filter(|&(_, &calls)| calls > 0);
        let flat: Vec<u64> =
            cells.flat_map(|(place, &calls)| [(place / STEPS) as u64, (place % STEPS) as u64, calls.into()]).collect();
        serde_json::json!({ "width": self.axis.width(), "slices": self.axis.slices(), "cells": flat })
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
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn steps_halve_powers_of_two() {
        let steps: Vec<usize> = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15].map(step).into();
        assert_eq!(steps, [0, 2, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9]);
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    #[test]
    fn all_calls_stay_in_the_map_however_long_it_becomes() {
        let axis = Axis::new(rtrace_model::Timestamp(0), None, 4);
        let mut heat = Heat::new(axis, rtrace_model::Timestamp(0), None);
        for start in [0, 1, 100, 3, 1_000_000] {
            heat.add(&Call { start: rtrace_model::Timestamp(start), duration: Some(5), ..Call::default() });
        }
        heat.add(&Call { ending: Ending::Open, ..Call::default() });
        for map in [heat.all(), heat.of(RegionId(0)).unwrap()] {
            let told = map.told();
            let cells: Vec<u64> = told["cells"].as_array().unwrap().iter().map(|cell| cell.as_u64().unwrap()).collect();
            assert_eq!(cells.chunks(3).map(|cell| cell[2]).sum::<u64>(), 5);
            assert!(cells.chunks(3).all(|cell| cell[0] < told["slices"].as_u64().unwrap() && cell[1] == 6));
        }
    }
}
