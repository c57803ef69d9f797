//! How busy each thread was over time, and how often it called.

use std::cmp::Reverse;

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{Call, LocationId};
use serde_json::{Value, json};

use super::axis::{Axis, merge_slices};

/// Threads that are told apart while calls are read; others share a lane.
const MOST_LANES: usize = 512;

/// Time within traced calls, and calls, by thread and slice of time.
pub(super) struct Lanes {
    axis: Axis,
    places: HashMap<LocationId, usize>,
    /// The last one is of the threads without a lane of their own.
    lanes: Vec<Lane>,
}

struct Lane {
    location: Option<LocationId>,
    /// Nanoseconds in calls that did not run through all of a slice.
    busy: Vec<u64>,
    /// By how much the number of calls that run through all of a slice changes at its begin.
    through: Vec<i64>,
    calls: Vec<u64>,
}

impl Lane {
    fn new(location: Option<LocationId>, slices: usize) -> Lane {
        Lane { location, busy: vec![0; slices], through: vec![0; slices + 1], calls: vec![0; slices] }
    }

    /// Nanoseconds in traced calls by slice.
    fn times(&self, width: u64) -> Vec<u64> {
        let mut running = 0;
        let time = |(&busy, change): (&u64, &i64)| {
            running += change;
            busy.saturating_add(width.saturating_mul(u64::try_from(running).unwrap_or(0)))
        };
        self.busy.iter().zip(&self.through).map(time).collect()
    }

    fn widen(&mut self, width: u64) {
        self.busy = self.times(width);
        self.through.fill(0);
        merge_slices(&mut self.busy, 1, u64::saturating_add);
        merge_slices(&mut self.calls, 1, u64::saturating_add);
    }
}

impl Lanes {
    /// Lanes of the threads with most calls.
    pub(super) fn new(trace: &TraceSet, axis: Axis) -> Lanes {
        let mut locations: Vec<_> = trace.locations().iter().collect();
        locations.sort_by_key(|location| (Reverse(location.calls_entered), location.id));
        locations.truncate(MOST_LANES);
        let places = locations.iter().enumerate().map(|(place, location)| (location.id, place)).collect();
        let slices = axis.slices();
        let own = locations.iter().map(|location| Some(location.id));
        let lanes = own.chain([None]).map(|location| Lane::new(location, slices)).collect();
        Lanes { axis, places, lanes }
    }

    /// The lane of a thread.
    pub(super) fn place(&self, location: LocationId) -> usize {
        self.places.get(&location).copied().unwrap_or(self.lanes.len() - 1)
    }

    pub(super) fn location(&self, lane: usize) -> Option<LocationId> {
        self.lanes[lane].location
    }

    /// Adds a call; `outermost` unless its time is part of another one's.
    pub(super) fn add(&mut self, call: &Call, outermost: bool) {
        let end = call.known_until();
        let (first, last) = loop {
            match self.axis.slice(call.start).zip(self.axis.slice(end)) {
                Some(slices) => break slices,
                None => self.widen(),
            }
        };
        let (axis, place) = (&self.axis, self.place(call.location));
        let lane = &mut self.lanes[place];
        lane.calls[first] += 1;
        if !outermost || !call.is_timed() {
            return;
        }
        let (start, end, width) = (axis.offset(call.start), axis.offset(end), axis.width());
        if first == last {
            lane.busy[first] = lane.busy[first].saturating_add(end - start);
            return;
        }
        lane.busy[first] = lane.busy[first].saturating_add((first as u64 + 1).saturating_mul(width) - start);
        lane.busy[last] = lane.busy[last].saturating_add(end - last as u64 * width);
        lane.through[first + 1] += 1;
        lane.through[last] -= 1;
    }

    fn widen(&mut self) {
        let width = self.axis.width();
        self.lanes.iter_mut().for_each(|lane| lane.widen(width));
        self.axis.widen();
    }

    /// The `most` lanes with most time, and one of all others where there are some; with the place on the page of
    /// each lane. Times are in thousandths of a slice.
    pub(super) fn told(&self, most: usize) -> (Value, Vec<Option<usize>>) {
        let width = self.axis.width();
        let times: Vec<Vec<u64>> = self.lanes.iter().map(|lane| lane.times(width)).collect();
        let whole = |place: usize| times[place].iter().fold(0, |sum: u64, &time| sum.saturating_add(time));
        let mut used: Vec<usize> =
            (0..self.lanes.len()).filter(|&place| self.lanes[place].calls.iter().any(|&calls| calls > 0)).collect();
        used.sort_by_key(|&place| (self.lanes[place].location.is_none(), Reverse(whole(place)), place));
        let mut shown: Vec<usize> = used.iter().copied().take(most).collect();
        shown.sort_by_key(|&place| self.lanes[place].location);
        let mut places = vec![None; self.lanes.len()];
        shown.iter().enumerate().for_each(|(row, &place)| places[place] = Some(row));
        let lane = |(calls, time): (Vec<u64>, Vec<u64>), location: Option<LocationId>, threads: usize| {
            let part = |time: u64| (u128::from(time) * 1_000 / u128::from(width)).min(1_000_000) as u64;
            json!({
                "location": location.map(|location| location.0),
                "threads": threads,
                "busy": time.into_iter().map(part).collect::<Vec<_>>(),
                "calls": calls,
            })
        };
        let mut told: Vec<Value> = shown
            .iter()
            .map(|&place| lane((self.lanes[place].calls.clone(), times[place].clone()), self.lanes[place].location, 1))
            .collect();
        let others = &used[shown.len()..];
        if !others.is_empty() {
            let add = |sum: &mut [u64], of: &[u64]| sum.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
            let (mut calls, mut time) = (vec![0; self.axis.slices()], vec![0; self.axis.slices()]);
            for &place in others {
                add(&mut calls, &self.lanes[place].calls);
                add(&mut time, &times[place]);
            }
            others.iter().for_each(|&place| places[place] = Some(told.len()));
            told.push(lane((calls, time), None, others.len()));
        }
        (json!({ "width": width, "slices": self.axis.slices(), "lanes": told }), places)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::Timestamp;

    use super::*;
    use crate::testing::{definitions, script};

    /// Thousandths of a slice, and calls, of the only lane, of ten slices from 0.
    fn told(text: &str, length: Option<u64>) -> (u64, Vec<u64>, Vec<u64>) {
        let trace = definitions();
        let mut lanes = Lanes::new(&trace, Axis::new(Timestamp(0), length, 10));
        for call in script(text).iter().rev() {
            lanes.add(call, call.depth == 0);
        }
        let (told, places) = lanes.told(1);
        assert_eq!(told["lanes"].as_array().unwrap().len(), 1);
        assert_eq!(places.iter().flatten().count(), 1);
        let numbers =
            |key: &str| told["lanes"][0][key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        (told["width"].as_u64().unwrap(), numbers("busy"), numbers("calls"))
    }

    #[test]
    fn time_is_in_the_slices_in_which_it_passed_and_calls_where_they_began() {
        let text = "thread 1\n a 5 35\n  b 10 30\n b 40 41\n c 99 ?";
        let (width, busy, calls) = told(text, Some(100));
        assert_eq!(width, 10);
        assert_eq!(busy, [500, 1000, 1000, 500, 100, 0, 0, 0, 0, 0]);
        assert_eq!(calls, [1, 1, 0, 0, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn slices_that_widen_keep_all_time() {
        // The last call comes first, so that slices widen while calls are read.
        let (width, busy, calls) = told("thread 1\n a 0 7\n b 8 72\n c 100 159", None);
        assert_eq!((width, calls.iter().sum::<u64>()), (16, 3));
        let time: u64 = busy.iter().map(|part| part * width / 1_000).sum();
        assert!((127..=130).contains(&time), "{busy:?}");
        assert_eq!(busy[1..4], [1000; 3]);
    }
}
