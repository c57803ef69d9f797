//! How many calls were made while no probe was in place, estimated from windows in which calls were counted.
//!
//! Nobody knows what happened between two windows. So an estimate is a range: no fewer calls than at the lowest rate of
//! the four nearest windows, no more than at the highest, plus a part for bursts that no window has met. A window says
//! little about a function that takes some nanoseconds, because its probes slow it down. There, and after few windows,
//! the upper bound would be a guess, and is omitted.

use std::collections::{HashMap, HashSet, VecDeque};

use rtrace_bpf::Counted;
use rtrace_bpf::wire::CountedKey;
use rtrace_model::{Estimate, LocationId, RegionId, Timestamp};

/// A hit may cost so many times what was measured, as machines are slower at times than they were.
const DEAREST: f64 = 2.0;

/// So many times a rate may be another outside of windows, as placing probes disturbs the program.
const DISTURBED: f64 = 1.5;

/// A call takes so many nanoseconds at least.
const SHORTEST_CALL: f64 = 1.0;

/// After fewer windows nothing is known of the most calls.
const ENOUGH_WINDOWS: u32 = 8;

/// Of n windows none need meet what happens in this part of an n-th of the time: that happens once in a thousand
/// times.
const UNMET: f64 = 7.0;

/// Where it may have been so many times the fewest calls, that is no bound.
const WIDEST: f64 = 10.0;

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

/// A thread that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Which.
    pub location: LocationId,
    /// When.
    pub time: Timestamp,
}

/// A number of calls, or calls per nanosecond: at least, about, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bounds {
    least: f64,
    about: f64,
    most: f64,
}

impl Bounds {
    /// The rate without probes, from so many hits in a window of so many nanoseconds. In these, probes took `cost`
    /// of the thread.
    fn rate(hits: u64, length: f64, cost: f64) -> Bounds {
        let hits = hits as f64;
        // A number of chance events is off by twice its root at most, nearly always.
        let chance = 2.0 * hits.sqrt();
        let least = (hits - chance).max(0.0) / (length * DISTURBED);
        let most = (hits + chance + 3.0) / left(hits, length, cost * DEAREST) * DISTURBED;
        Bounds { least, about: (hits / left(hits, length, cost)).min(most), most }
    }

    /// What holds if one or the other does.
    fn or(self, other: Bounds) -> Bounds {
        let about = f64::midpoint(self.about, other.about);
        Bounds { least: self.least.min(other.least), about, most: self.most.max(other.most) }
    }

    fn add(&mut self, rate: Bounds, time: f64) {
        self.least += rate.least * time;
        self.about += rate.about * time;
        self.most += rate.most * time;
    }
}

/// Nanoseconds of a window that were left to so many calls, at least.
fn left(hits: f64, length: f64, cost: f64) -> f64 {
    (length - cost).max(hits * SHORTEST_CALL).max(1.0)
}

/// What a window showed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    window: Window,
    rate: Bounds,
}

/// Calls of one region on one thread.
#[derive(Clone, Debug, Default)]
struct Calls {
    counted: u64,
    /// The last windows, since the region was throttled.
    seen: VecDeque<Seen>,
    /// All windows so far, and the greatest rate at which calls may have come in one of them.
    windows: u32,
    fastest: f64,
    /// Windows since the region was throttled: how many; hits, and nanoseconds that were left to them.
    recent: u32,
    hits: f64,
    left: f64,
    /// Calls in gaps between windows of which all that are near are known, and nanoseconds of gaps.
    settled: Bounds,
    unseen: f64,
}

impl Calls {
    fn add(&mut self, seen: Seen) {
        self.windows += 1;
        self.fastest = self.fastest.max(seen.rate.most);
        self.seen.push_back(seen);
        match self.seen.len() {
            0..3 => {}
            // The first gap has no window before it, the others have one.
            3 => self.settle(0),
            _ => self.settle(1),
        }
        if self.seen.len() == NEAR {
            self.seen.pop_front();
        }
    }

    fn settle(&mut self, index: usize) {
        let (rate, time) = self.gap(index);
        self.settled.add(rate, time);
        self.unseen += time;
    }

    /// The rate between this window of the last ones and the next, and its time.
    fn gap(&self, index: usize) -> (Bounds, f64) {
        let near = self.seen.iter().skip(index.saturating_sub(1)).take(if index == 0 { NEAR - 1 } else { NEAR });
        let rate = near.map(|seen| seen.rate).reduce(Bounds::or).unwrap_or_default();
        let about = f64::midpoint(self.seen[index].rate.about, self.seen[index + 1].rate.about);
        let time = self.seen[index + 1].window.from.saturating_sub(self.seen[index].window.to);
        (Bounds { about, ..rate }, time as f64)
    }

    /// The gaps that are not settled, those of a region of which nothing is seen from then on too.
    fn rest(&self, until: Option<u64>) -> (Bounds, f64) {
        let (mut calls, mut unseen) = (Bounds::default(), 0.0);
        let first = if self.seen.len() >= NEAR - 1 { self.seen.len() - 2 } else { 0 };
        for index in first..self.seen.len().saturating_sub(1) {
            let (rate, time) = self.gap(index);
            calls.add(rate, time);
            unseen += time;
        }
        if let (Some(last), Some(until)) = (self.seen.back(), until) {
            let time = until.saturating_sub(last.window.to) as f64;
            let rate = self.seen.iter().map(|seen| seen.rate).reduce(Bounds::or).unwrap_or_default();
            // It may have called no more.
            calls.add(Bounds { least: 0.0, about: last.rate.about, most: rate.most }, time);
            unseen += time;
        }
        (calls, unseen)
    }

    /// From now on nothing goes unseen.
    fn close(&mut self, time: u64) {
        let (calls, unseen) = self.rest(Some(time));
        self.settled.add(calls, 1.0);
        self.unseen += unseen;
        self.seen.clear();
        (self.recent, self.hits, self.left) = (0, 0.0, 0.0);
    }

    /// Calls that were not seen until then.
    fn unseen(&self, until: u64) -> Bounds {
        let (mut calls, unseen) = self.rest(Some(until));
        calls.add(self.settled, 1.0);
        calls.most += (self.unseen + unseen) * self.fastest * (UNMET / f64::from(self.windows.max(1))).min(1.0);
        calls
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
    /// Regions that threads may have called of which too little is known.
    unbounded: HashSet<u32>,
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

    /// Calls of the region are seen from that time on.
    pub fn restore(&mut self, region: RegionId, time: u64) {
        self.throttled.remove(&region.0);
        self.calls.iter_mut().filter(|((_, of), _)| *of == region.0).for_each(|(_, calls)| calls.close(time));
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
                calls.seen.push_back(Seen { window: before, rate: Bounds::rate(0, length, 0.0) });
            }
            let hits = hits.get(&(*location, *region)).copied().unwrap_or_default();
            let cost = costs.get(location).copied().unwrap_or_default();
            calls.recent += 1;
            calls.hits = calls.hits * KEPT + hits as f64;
            calls.left = calls.left * KEPT + left(hits as f64, length, cost * DEAREST);
            calls.add(Seen { window, rate: Bounds::rate(hits, length, cost) });
        }
    }

    /// A thread has ended, all of whose counts were taken in.
    pub fn end(&mut self, ended: &Ended) {
        let location = ended.location.0;
        let mut of_thread = self.calls.iter().filter(|((of, _), _)| *of == location);
        if of_thread.all(|(_, calls)| calls.windows < ENOUGH_WINDOWS) {
            self.unbounded.extend(self.throttled.keys());
        }
        for ((_, region), mut calls) in self.calls.extract_if(|&(of, _), _| of == location).collect::<Vec<_>>() {
            calls.close(ended.time.0);
            let estimate = estimate(location, region, &calls, ended.time.0);
            self.ended.push(estimate);
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

    /// All estimates at that time, by location and region.
    pub fn estimates(&self, now: u64) -> Vec<Estimate> {
        let until = |region: &u32| if self.throttled.contains_key(region) { now } else { 0 };
        let running =
            self.calls.iter().map(|((location, region), calls)| estimate(*location, *region, calls, until(region)));
        let bounded = |estimate: Estimate| match self.unbounded.contains(&estimate.region.0) {
            true => Estimate { estimated: estimate.least, most: None, ..estimate },
            false => estimate,
        };
        // Any thread stands for all those that may have called them.
        let location = self.places().map(|(location, _)| LocationId(location)).min().unwrap_or(NO_LOCATION);
        let unmet = self.unmet.iter().map(|&region| {
            let region = RegionId(region);
            Estimate { location, region, counted: 0, estimated: 0, least: 0, most: None }
        });
        running.chain(self.ended.iter().copied()).map(bounded).chain(unmet).collect()
    }
}

fn estimate(location: u32, region: u32, calls: &Calls, until: u64) -> Estimate {
    let Bounds { least, about, most } = calls.unseen(until);
    let is_known = calls.windows >= ENOUGH_WINDOWS && most <= least * WIDEST || most == 0.0;
    let [least, about, most] = [least.floor(), about.round(), most.ceil()].map(|calls| calls as u64);
    Estimate {
        location: LocationId(location),
        region: RegionId(region),
        counted: calls.counted,
        estimated: if is_known { about } else { least },
        least,
        most: is_known.then_some(most),
    }
}

#[cfg(test)]
mod tests;
