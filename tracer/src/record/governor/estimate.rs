//! How many calls were made while no probe was in place: estimated from windows in which calls were counted.
//!
//! Windows come at random times. Between two of them, a function is taken to be called at the mean of their rates. How far
//! that may be from the truth follows from how much neighbouring windows differ, from how few calls they met, and from how
//! well it is known what the windows' own probes took of the program's time: an interval that holds the true number 95
//! times of 100. Where probes leave a program too little of its time, there were at least as many calls as at the pace that it
//! had with them. Where too few windows met a call, nothing is known, as calls in bursts may fall between windows.

use std::collections::HashMap;

use rtrace_bpf::Counted;
use rtrace_bpf::wire::CountedKey;
use rtrace_model::{Estimate, LocationId, RegionId};

/// A window in which hits have left a thread less than this part of its time tells too little of its pace, and of what such windows
/// met, an estimate may have no more than this part.
const LEAST_LEFT: f64 = 0.7;
const MOST_UNCLEAR: f64 = 0.1;

/// So many windows must have met calls, or fewer if all have.
const ENOUGH: u32 = 8;
const ENOUGH_OF_ALL: u32 = 4;

/// So many windows tell sudden changes of the pace from chance. Where there are none, the smaller of two variances is too small by this
/// factor.
const ENOUGH_FOR_CHANGES: u32 = 20;
const SOMETIMES_LESS: f64 = 1.2;

/// The normal distribution has 95 % of its values within so many standard deviations of the mean.
const NORMAL_95: f64 = 1.96;

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

/// What a window showed of a region, on all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    hits: f64,
    /// Calls per nanosecond, and how far that may be off because of what the window's probes cost.
    rate: f64,
    error: f64,
}

/// How much two neighbouring windows differ.
#[derive(Clone, Copy, Debug, Default)]
struct PaceChange {
    /// The time between them.
    gap: f64,
    /// The square of the difference of their rates, and of the two windows before.
    square: f64,
    before: f64,
}

impl PaceChange {
    /// The variance of the calls between them, where the next two windows differ by that. What differs much more than its
    /// neighbours do is a sudden change, at any time between the two windows with the same chance: a twelfth is its
    /// variance. To this comes what neighbours differ by without any.
    fn variance(self, next: f64) -> f64 {
        let change = self.square / 12.0 + self.before.max(next) / 2.0;
        SOMETIMES_LESS * self.gap.powi(2) * change.min(self.square / 2.0)
    }
}

/// Calls between windows.
#[derive(Clone, Debug, Default)]
struct Between {
    /// When the last window ended, or since when the region is throttled; `None` while it is recorded.
    last: Option<u64>,
    /// What that window showed.
    seen: Option<Seen>,
    windows: u32,
    /// Of these, those that met a call, and the calls.
    met: u32,
    hits: f64,
    /// Calls between windows, the variance of their number, and how far it may be off because of what probes cost.
    calls: f64,
    variance: f64,
    error: f64,
    /// The variance if changes may be sudden, but for what depends on the next window.
    settled: f64,
    difference: PaceChange,
}

impl Between {
    /// Takes in the time since the last window, at the end of which another one has shown this.
    fn add(&mut self, window: Window, now: Seen) {
        let Some(last) = self.last.replace(window.to) else { return };
        let before = self.seen.replace(now);
        self.pass(window.from.saturating_sub(last), before.unwrap_or(now), now);
        self.windows += 1;
        self.met += u32::from(now.hits > 0.0);
        self.hits += now.hits;
    }

    fn pass(&mut self, gap: u64, before: Seen, after: Seen) {
        let gap = gap as f64;
        self.calls += gap * (before.rate + after.rate) / 2.0;
        self.error += gap * (before.error + after.error) / 2.0;
        // Neighbours differ by chance, and by a trend between them, which is none of the error.
        let square = (after.rate - before.rate).powi(2);
        self.variance += gap.powi(2) * square / 2.0;
        self.settled += self.difference.variance(square);
        self.difference = PaceChange { gap, square, before: self.difference.square };
    }

    /// From then on its calls are recorded, or nobody counts them.
    fn close(&mut self, now: u64) {
        if let (Some(last), Some(seen)) = (self.last.take(), self.seen.take()) {
            self.pass(now.saturating_sub(last), seen, seen);
        }
    }

    /// How many, and how far their true number may be from that; `None` where nothing is known.
    fn known(&self) -> Option<(f64, f64)> {
        if self.met < ENOUGH && (self.met < ENOUGH_OF_ALL || self.met < self.windows) {
            return None;
        }
        // Chance events vary by the root of their number.
        let least = self.hits * (self.calls / self.hits).powi(2);
        let variance = match self.windows {
            ENOUGH_FOR_CHANGES.. => self.settled + self.difference.variance(0.0),
            _ => self.variance,
        };
        let margin = student(self.windows - 1) * variance.max(least).sqrt();
        Some((self.calls, margin + self.error))
    }
}

/// What is known of a region that is or was throttled.
#[derive(Clone, Debug, Default)]
struct Region {
    /// At the pace of the time that windows left to the program.
    clear: Between,
    /// Calls that windows met which left too little. These windows are not left out: they are those in which the program called most.
    unclear: f64,
    /// At the pace that the program had in all windows: without their probes it is quicker.
    slowed: Between,
    /// Windows of late: how many, hits, and nanoseconds that were left to them.
    recent: u32,
    recent_hits: f64,
    recent_left: f64,
}

impl Region {
    fn begin(&mut self, since: u64) {
        self.close(since);
        (self.clear.last, self.slowed.last) = (Some(since), Some(since));
    }

    fn close(&mut self, now: u64) {
        self.clear.close(now);
        self.slowed.close(now);
        (self.recent, self.recent_hits, self.recent_left) = (0, 0.0, 0.0);
    }

    /// Calls outside of windows, and the margin; without a margin there were at least so many.
    fn missed(&self) -> Option<(f64, Option<f64>)> {
        let is_clear = self.unclear <= self.clear.hits * MOST_UNCLEAR;
        if let Some((calls, margin)) = self.clear.known().filter(|_| is_clear) {
            return Some((calls, Some(margin)));
        }
        let (calls, margin) = self.slowed.known()?;
        // A number of calls is not below 0, so its interval is one of its logarithm, as in A. Chao, Biometrics 43 (1987).
        Some((calls * (-margin / calls).exp(), None)).filter(|(least, _)| *least >= 1.0)
    }
}

/// Standard deviations within which 95 % of the values of Student's distribution lie, with so many degrees of freedom: two terms of its
/// expansion at the normal distribution (Abramowitz and Stegun, 26.7.5).
fn student(freedom: u32) -> f64 {
    let (z, n) = (NORMAL_95, f64::from(freedom.max(1)));
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

/// Estimates for all regions that are throttled or have been.
#[derive(Debug, Default)]
pub struct Estimator {
    /// Calls that were counted, by thread and region.
    counted: HashMap<(u32, u32), u64>,
    regions: HashMap<u32, Region>,
}

impl Estimator {
    /// These regions are throttled from that time on.
    pub fn throttle(&mut self, regions: impl Iterator<Item = RegionId>, since: u64) {
        for RegionId(region) in regions {
            self.regions.entry(region).or_default().begin(since);
        }
    }

    /// Calls of the region are seen from that time on.
    pub fn restore(&mut self, region: RegionId, since: u64) {
        self.regions.entry(region.0).and_modify(|region| region.close(since));
    }

    /// Takes in what was counted so far, at the end of a window in which regions were probed for which `cost_of` gives
    /// the nanoseconds of a hit.
    pub fn add(&mut self, counted: &[Counted], window: Window, cost_of: impl Fn(RegionId) -> Option<f64>) {
        let mut hits: HashMap<u32, Vec<(u32, f64)>> = HashMap::new();
        let mut costs: HashMap<u32, f64> = HashMap::new();
        for Counted { key: CountedKey { location, region }, calls: now, .. } in counted {
            let more = now.saturating_sub(self.counted.insert((*location, *region), *now).unwrap_or_default());
            if more > 0 {
                hits.entry(*region).or_default().push((*location, more as f64));
                *costs.entry(*location).or_default() += more as f64 * cost_of(RegionId(*region)).unwrap_or_default();
            }
        }
        let length = window.to.saturating_sub(window.from).max(1) as f64;
        for (id, region) in &mut self.regions {
            if cost_of(RegionId(*id)).is_none() {
                continue;
            }
            let (mut seen, mut slowed, mut is_clear) = (Seen::default(), Seen::default(), true);
            for (location, hits) in hits.get(id).into_iter().flatten() {
                let cost = costs.get(location).copied().unwrap_or_default();
                is_clear &= length - cost >= length * LEAST_LEFT;
                let left = (length - cost).max(length * LEAST_LEFT);
                slowed.rate += hits / length;
                seen.hits += hits;
                seen.rate += hits / left;
                // A program that waits part of its time may lose nothing by the hits, and a busy machine twice as much.
                seen.error += hits / left * cost / left;
            }
            region.recent += 1;
            let left = if seen.hits > 0.0 { seen.hits / seen.rate } else { length };
            region.recent_hits = region.recent_hits * KEPT + seen.hits;
            region.recent_left = region.recent_left * KEPT + left;
            region.slowed.add(window, Seen { hits: seen.hits, ..slowed });
            region.clear.add(window, seen);
            if !is_clear {
                region.unclear += seen.hits;
            }
        }
    }

    /// Calls per second of each throttled region, at most, as the last windows tell; none of those that too few have
    /// met.
    pub fn rates(&self) -> HashMap<RegionId, f64> {
        let known = self.regions.iter().filter(|(_, region)| region.recent >= ENOUGH_FOR_PACE);
        let rate = |region: &Region| (region.recent_hits + 2.0 * region.recent_hits.sqrt() + 3.0) / region.recent_left;
        known.map(|(&id, region)| (RegionId(id), rate(region) * 1e9)).collect()
    }

    /// Calls per second of a throttled region, about, as the last windows tell; `None` before the first.
    pub fn pace(&self, region: RegionId) -> Option<f64> {
        let region = self.regions.get(&region.0).filter(|region| region.recent > 0)?;
        Some(region.recent_hits / region.recent_left * 1e9)
    }

    /// All estimates at that time, by location and region: a thread has the part of a region's estimate that it has of its
    /// counted calls.
    pub fn estimates(&self, now: u64) -> Vec<Estimate> {
        let mut all: HashMap<u32, u64> = HashMap::new();
        for (&(_, region), &calls) in self.counted.iter().filter(|(_, calls)| **calls > 0) {
            *all.entry(region).or_default() += calls;
        }
        let missed = |region: u32| {
            let mut region = self.regions.get(&region).cloned().unwrap_or_default();
            region.close(now);
            region.missed()
        };
        let missed: HashMap<u32, Option<(f64, Option<f64>)>> =
            all.keys().map(|&region| (region, missed(region))).collect();
        let of_thread = |(&(location, region), &counted): (&(u32, u32), &u64)| {
            let all = all.get(&region).copied().filter(|_| counted > 0)?;
            let part = counted as f64 / all as f64;
            let (calls, margin) = missed[&region].unzip();
            let estimated = calls.map(|calls| (calls * part) as u64);
            let margin = margin.flatten().map(|margin| (margin * part).ceil() as u64);
            Some(Estimate { location: LocationId(location), region: RegionId(region), counted, estimated, margin })
        };
        // Any thread stands for all those that may have called what was never met.
        let location = self.counted.keys().map(|&(location, _)| LocationId(location)).min().unwrap_or(NO_LOCATION);
        let unmet = self.regions.keys().filter(|region| !all.contains_key(region));
        let unmet = unmet.map(|&region| Estimate { location, region: RegionId(region), ..Estimate::default() });
        self.counted.iter().filter_map(of_thread).chain(unmet).collect()
    }
}

#[cfg(test)]
mod tests;
