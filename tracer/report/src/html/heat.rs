//! Durations over time: calls by slice of time and step of duration, of all functions together and of each.

use std::collections::BTreeMap;

use rtrace_model::RegionId;
use serde_json::{Value, json};

use crate::overview::{Axis, DurationCell, Overview};

/// Of all functions together.
pub(super) fn of_all(overview: &Overview) -> Value {
    told(overview.durations_axis(), overview.functions().flat_map(|(_, durations)| durations.told()), 1)
}

/// Of each of these functions that has calls with a time. Two slices are one: these maps are many.
pub(super) fn of_functions(overview: &Overview, regions: &[RegionId]) -> Vec<(RegionId, Value)> {
    let mut maps: BTreeMap<usize, Value> = BTreeMap::new();
    for (region, durations) in overview.functions() {
        let Some(place) = regions.iter().position(|&other| other == region) else { continue };
        if durations.told().next().is_some() {
            maps.insert(place, told(overview.durations_axis(), durations.told(), 2));
        }
    }
    maps.into_iter().map(|(place, map)| (regions[place], map)).collect()
}

/// Width of a slice in nanoseconds, then slice, step and calls of each cell that has some; so many slices are one.
fn told(axis: &Axis, cells: impl Iterator<Item = DurationCell>, together: u32) -> Value {
    let mut sums = BTreeMap::<(u32, u32), u64>::new();
    cells.for_each(|cell| *sums.entry((cell.slice / together, cell.step)).or_default() += u64::from(cell.calls));
    let flat: Vec<u64> =
        sums.into_iter().flat_map(|((slice, step), calls)| [slice.into(), step.into(), calls]).collect();
    let width = axis.width().saturating_mul(together.into());
    json!({ "width": width, "slices": axis.slices() / together, "cells": flat })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Call, Ending, Timestamp};

    use super::*;

    #[test]
    fn all_calls_that_ended_are_in_the_maps() {
        let mut overview = Overview::new(Timestamp(0));
        for start in [0, 1, 100, 3, 1_000_000] {
            overview.add(&Call { start: Timestamp(start), duration: Some(5), ..Call::default() }, true);
        }
        overview.add(&Call { ending: Ending::Open, duration: Some(5), ..Call::default() }, true);
        let of_one = of_functions(&overview, &[RegionId(7), RegionId(0)]);
        assert_eq!(of_one.len(), 1);
        for map in [of_all(&overview), of_one[0].1.clone()] {
            let cells: Vec<u64> = map["cells"].as_array().unwrap().iter().map(|cell| cell.as_u64().unwrap()).collect();
            assert_eq!(cells.chunks(3).map(|cell| cell[2]).sum::<u64>(), 5);
            assert!(cells.chunks(3).all(|cell| cell[0] < map["slices"].as_u64().unwrap() && cell[1] == 6));
        }
    }
}
