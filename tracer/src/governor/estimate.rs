//! How many calls were made while no probe was in place: at least, from windows in which calls were counted.
//!
//! Nobody knows what happened between two windows. There were no fewer calls than at the lowest rate of the four nearest
//! windows. How many more there were is not known: a window says little of a function that takes some nanoseconds,
//! because its probes slow it down, and bursts may fall between windows.

use std::collections::{HashMap, HashSet, VecDeque};

use rtrace_bpf::Counted;
use rtrace_bpf::wire::CountedKey;
use rtrace_model::{Estimate, LocationId, RegionId};

/// A hit may cost so many times what was measured, as machines are slower at times than they were.
const DEAREST: f64 = 2.0;

/// So many times a rate may be another outside of windows, as placing probes disturbs the program.
const DISTURBED: f64 = 1.5;

/// A call takes so many nanoseconds at least.
const SHORTEST_CALL: f64 = 1.0;

/// Windows that tell of the time between the middle ones.
const NEAR: usize = 4;

/// Weight that a window keeps with each that follows, where the pace at present is asked for, and how many it takes:
/// programs have phases, in most of which a function is not called.
const KEPT: f64 = 0.98;
const ENOUGH_FOR_PACE: u32 = 40;

/// Stands for a thread that is not known: no window has met a call of any.
pub const NO_LOCATION: LocationId = LocationId(0);

/// A window, in which calls were counted. Times are in ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its begin.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// Calls per nanosecond without probes, at least, from so many hits in a window of so many nanoseconds.
fn least_rate(hits: u64, length: f64) -> f64 {
    let hits = hits as f64;
    // A number of chance events is off by twice its root at most, nearly always.
    (hits - 2.0 * hits.sqrt()).max(0.0) / (length * DISTURBED)
}

/// Nanoseconds of a window that were left to so many calls, at least.
fn left(hits: f64, length: f64, cost: f64) -> f64 {
    (length - cost).max(hits * SHORTEST_CALL).max(1.0)
}

/// What a window showed: calls per nanosecond, at least.
#[derive(Clone, Copy, Debug)]
struct Seen {
    window: Window,
    rate: f64,
}

/// Calls of one region on one thread.
#[derive(Clone, Debug, Default)]
struct Calls {
    counted: u64,
    /// The last windows, since the region was throttled.
    seen: VecDeque<Seen>,
    /// Windows since the region was throttled: how many; hits, and nanoseconds that were left to them.
    recent: u32,
    hits: f64,
    left: f64,
    /// Calls, at least, in gaps between windows of which all that are near are known.
    settled: f64,
}

impl Calls {
    fn add(&mut self, seen: Seen) {
        self.seen.push_back(seen);
        match self.seen.len() {
            0..3 => {}
            // The first gap has no window before it, the others have one.
            3 => self.settled += self.gap(0),
            _ => self.settled += self.gap(1),
        }
        if self.seen.len() == NEAR {
            self.seen.pop_front();
        }
    }

    /// Calls between this window of the last ones and the next.
    fn gap(&self, index: usize) -> f64 {
        let near = self.seen.iter().skip(index.saturating_sub(1)).take(if index == 0 { NEAR - 1 } else { NEAR });
        let rate = near.map(|seen| seen.rate).reduce(f64::min).unwrap_or_default();
        rate * self.seen[index + 1].window.from.saturating_sub(self.seen[index].window.to) as f64
    }

    /// From now on nothing goes unseen. After the last window it may have called no more.
    fn close(&mut self) {
        self.settled = self.unseen();
        self.seen.clear();
        (self.recent, self.hits, self.left) = (0, 0.0, 0.0);
    }

    /// Calls that were not seen: those in gaps that are settled, and in the last one.
    fn unseen(&self) -> f64 {
        let last = self.seen.len().checked_sub(2).map(|index| self.gap(index));
        self.settled + last.unwrap_or_default()
    }
}

/// Estimates for all regions that are throttled or have been.
#[derive(Debug, Default)]
pub struct Estimator {
    calls: HashMap<(u32, u32), Calls>,
    /// Those of threads that have ended.
    ended: Vec<Estimate>,
    /// By region that is throttled: since when.
    throttled: HashMap<u32, u64>,
    /// Regions that were throttled, and of which no call was counted so far.
    unmet: HashSet<u32>,
}

impl Estimator {
    /// These regions are throttled from that time on.
    pub fn throttle(&mut self, regions: impl Iterator<Item = RegionId>, since: u64) {
        for RegionId(region) in regions {
            self.throttled.insert(region, since);
            if !self.places().any(|(_, of)| of == region) {
                self.unmet.insert(region);
            }
        }
    }

    /// The threads and regions of which calls were counted.
    fn places(&self) -> impl Iterator<Item = (u32, u32)> {
        self.calls.keys().copied().chain(self.ended.iter().map(|ended| (ended.location.0, ended.region.0)))
    }

    /// Calls of the region are seen from now on.
    pub fn restore(&mut self, region: RegionId) {
        self.throttled.remove(&region.0);
        self.calls.iter_mut().filter(|((_, of), _)| *of == region.0).for_each(|(_, calls)| calls.close());
    }

    /// Takes in what was counted so far, at the end of a window in which regions were probed for which `cost_of` gives
    /// the nanoseconds of a hit.
    pub fn add(&mut self, counted: &[Counted], window: Window, cost_of: impl Fn(RegionId) -> Option<f64>) {
        let mut hits: HashMap<(u32, u32), u64> = HashMap::new();
        let mut costs: HashMap<u32, f64> = HashMap::new();
        for Counted { key: CountedKey { location, region }, calls: now } in counted {
            self.unmet.remove(region);
            let calls = self.calls.entry((*location, *region)).or_default();
            let more = now.saturating_sub(std::mem::replace(&mut calls.counted, *now));
            hits.insert((*location, *region), more);
            *costs.entry(*location).or_default() += more as f64 * cost_of(RegionId(*region)).unwrap_or_default();
        }
        let length = window.to.saturating_sub(window.from).max(1) as f64;
        for ((location, region), calls) in &mut self.calls {
            let Some(&since) = self.throttled.get(region) else { continue };
            if cost_of(RegionId(*region)).is_none() {
                continue;
            }
            if calls.seen.is_empty() && since < window.from {
                // No window has shown it since: nothing was counted in those, whatever else it did.
                let before = Window { from: since, to: since };
                calls.seen.push_back(Seen { window: before, rate: 0.0 });
            }
            let hits = hits.get(&(*location, *region)).copied().unwrap_or_default();
            let cost = costs.get(location).copied().unwrap_or_default();
            calls.recent += 1;
            calls.hits = calls.hits * KEPT + hits as f64;
            calls.left = calls.left * KEPT + left(hits as f64, length, cost * DEAREST);
            calls.add(Seen { window, rate: least_rate(hits, length) });
        }
    }

    /// A thread has ended, all of whose counts were taken in.
    pub fn end(&mut self, location: LocationId) {
        for ((_, region), mut calls) in self.calls.extract_if(|&(of, _), _| of == location.0).collect::<Vec<_>>() {
            calls.close();
            self.ended.push(estimate(location.0, region, &calls));
        }
    }

    /// Calls per second of each throttled region, at most, as the last windows tell; none of those that too few have
    /// met.
    pub fn rates(&self) -> HashMap<RegionId, f64> {
        let mut rates = HashMap::new();
        for ((_, region), calls) in self.calls.iter().filter(|(_, calls)| calls.recent >= ENOUGH_FOR_PACE) {
            let rate = (calls.hits + 2.0 * calls.hits.sqrt() + 3.0) / calls.left;
            *rates.entry(RegionId(*region)).or_default() += rate * 1e9;
        }
        rates
    }

    /// All estimates, by location and region.
    pub fn estimates(&self) -> Vec<Estimate> {
        let running = self.calls.iter().map(|((location, region), calls)| estimate(*location, *region, calls));
        // Any thread stands for all those that may have called them.
        let location = self.places().map(|(location, _)| LocationId(location)).min().unwrap_or(NO_LOCATION);
        let unmet =
            self.unmet.iter().map(|&region| Estimate { location, region: RegionId(region), counted: 0, least: 0 });
        running.chain(self.ended.iter().copied()).chain(unmet).collect()
    }
}

fn estimate(location: u32, region: u32, calls: &Calls) -> Estimate {
    Estimate {
        location: LocationId(location),
        region: RegionId(region),
        counted: calls.counted,
        least: calls.unseen() as u64,
    }
}

#[cfg(test)]
mod tests;
