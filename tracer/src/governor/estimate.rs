//! How many calls were made while no probe was in place, from the windows before and after.
//!
//! Three ways. A caller in a loop keeps a number over its calls, in a register that callees save or on
//! its stack, that goes up by the same step with each: its difference from window to window, divided
//! by the step, is the number of calls. It is taken only if it is possible at all by the time that
//! went by, and if the rate that follows agrees with the one before or after, because a loop may have
//! begun anew. Over a short gap the same number tells how fast the caller calls, its pace. That proves
//! what the number says over a long one, or else is taken to go on. Where there is no such number, it
//! is the rate in the windows, less what all probes of its thread cost there: of a function of some
//! nanoseconds that says little, and the bounds say so.

use std::collections::{HashMap, VecDeque};

use rtrace_bpf::Counted;
use rtrace_bpf::wire::{CountedCallsRecord, CountedKey, Limit, MomentRecord, SightingRecord};
use rtrace_model::{Estimate, LocationId, RegionId, Timestamp};

/// So much slower a machine may be than it was a moment ago, for seconds, or so much quicker: by what else
/// runs on it, or beside a virtual one.
const SPEEDS: f64 = 2.0;

/// A hit costs these parts of what was measured, at least and at most.
const LEAST_COST: f64 = 1.0 / SPEEDS;
const MOST_COST: f64 = SPEEDS;

/// A call takes so many nanoseconds at least.
const SHORTEST_CALL: f64 = 1.0;

/// Sightings that it takes to trust a step.
const ENOUGH: usize = 4;

/// How far rates may be apart that agree, as a part.
const AGREEMENT: f64 = 0.15;

/// The scheduler's account of a thread's time is so many nanoseconds old at the most.
const ACCOUNT_AGE: f64 = 4e6;

/// A loop seldom begins anew in a gap of up to so many nanoseconds.
const SHORT: u64 = 10_000_000;

/// So many short gaps are remembered, of which so many and such a part have to agree, up to a factor.
const REMEMBERED: usize = 8;
const AGREEING: usize = 3;
const AGREEING_PART: f64 = 0.75;
const AGREEMENT_OF_SHORT: f64 = 1.5;

/// Nanoseconds of running that tell a pace, if they are most of the gap.
const LEAST_RUN: f64 = 1e5;

/// So many gaps may wait until a pace is known.
const MOST_UNKNOWN: usize = 16;

/// After so many windows in a row that showed nothing, calls are taken to have ended.
const LONG_SILENCE: u32 = 8;

/// A window, in which calls are counted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its number.
    pub number: u32,
    /// When its probes were in place, and when they went, in ns of `CLOCK_MONOTONIC`.
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
    /// The CPU time that it had used, in nanoseconds.
    pub cpu_time: u64,
}

/// How fast callers call by their own count over short gaps.
#[derive(Clone, Debug, Default)]
struct Pacing {
    /// Calls per nanosecond over the last short gaps; `None` where a count went backwards.
    outcomes: VecDeque<Option<f64>>,
    /// What they agree on: about, at least, at most. By chance those of a loop that begins anew within
    /// each gap may agree once, and half of them go backwards.
    pace: Option<[f64; 3]>,
}

impl Pacing {
    fn add(&mut self, outcome: Option<f64>) {
        self.outcomes.push_front(outcome);
        self.outcomes.truncate(REMEMBERED);
        let mut rates: Vec<f64> = self.outcomes.iter().copied().flatten().collect();
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        rates.retain(|rate| (median / AGREEMENT_OF_SHORT..=median * AGREEMENT_OF_SHORT).contains(rate));
        let agree = rates.len() >= AGREEING && rates.len() as f64 >= self.outcomes.len() as f64 * AGREEING_PART;
        let fastest = self.fastest();
        self.pace = rates.first().filter(|_| agree).map(|&least| [median, least, fastest]);
    }

    fn fastest(&self) -> f64 {
        self.outcomes.iter().copied().flatten().fold(0.0, f64::max)
    }

    fn proves(&self, rate: f64) -> bool {
        self.pace.is_some_and(|pace| is_proven(rate, pace))
    }

    /// Whether calls over a long gap may come at such a rate.
    fn allows(&self, rate: f64) -> bool {
        self.fastest() / 2.0 <= rate && self.pace.is_none_or(|[_, _, most]| rate <= most * SPEEDS)
    }
}

/// What the estimate of a time without probes is made of.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// When it began, and the CPU time of its thread then.
    since: u64,
    since_cpu: u64,
    /// Nanoseconds without probes, and for how many of them its thread ran.
    wall: f64,
    time: f64,
    /// Of these its thread may have called in this part only, as the windows on the way showed nothing.
    called: f64,
    is_short: bool,
    /// Whether the scheduler's account tells for how long its thread ran.
    is_timed: bool,
    /// The caller's pace before it, where that is known.
    pace: Option<[f64; 3]>,
    /// Calls by the caller's own count.
    progress: Option<f64>,
    /// Calls per nanosecond: about, at least, at most.
    rate: [f64; 3],
    /// Calls per nanosecond that calls in a row show at least, while their thread runs.
    slowest: f64,
}

impl Gap {
    /// Its thread had ended before the window after it.
    fn cut(&mut self, ended: &Ended) {
        let wall = ended.time.0.saturating_sub(self.since) as f64;
        let on_cpu = ended.cpu_time.saturating_sub(self.since_cpu) as f64;
        self.wall = self.wall.min(wall);
        self.time = self.time.min(wall).min(on_cpu);
        self.called = self.called.min(self.time);
        self.rate[1] = 0.0;
    }

    /// For how long its thread ran: about, at least, at most.
    fn times(&self) -> [f64; 3] {
        if !self.is_timed && !self.is_short {
            return [self.time, 0.0, self.wall];
        }
        let age = if self.time < self.wall { ACCOUNT_AGE } else { 0.0 };
        [self.time, (self.time - age).max(0.0), (self.time + age).min(self.wall)]
    }

    /// The rate that follows from the caller's own count.
    fn progress_rate(&self) -> Option<f64> {
        self.progress.map(|calls| calls / self.time.max(1.0))
    }

    /// Its caller's pace before and after it.
    fn pace_around(&self, after: Option<[f64; 3]>) -> Option<[f64; 3]> {
        self.pace.into_iter().chain(after).filter(|[about, ..]| self.allows(*about)).reduce(between)
    }

    /// The rate by the caller's own count, if that is right; `pace` is the caller's after it.
    fn counted_rate(&self, is_believed: bool, pace: Option<[f64; 3]>) -> Option<f64> {
        let is_right = |rate: &f64| is_believed || self.pace_around(pace).is_some_and(|pace| is_proven(*rate, pace));
        self.progress_rate().filter(is_right)
    }

    /// About, at least, at most so many calls; `pace` is the caller's after it.
    fn settle(&self, is_believed: bool, pace: Option<[f64; 3]>) -> [f64; 3] {
        if let (Some(calls), Some(_)) = (self.progress, self.counted_rate(is_believed, pace)) {
            return [calls; 3];
        }
        let pace = self.pace_around(pace);
        let [about, least, most] = pace.unwrap_or(self.rate);
        let [_, least_time, most_time] = self.times();
        let at_least = if self.called < self.time { 0.0 } else { least / SPEEDS * least_time };
        // A virtual machine that is not run goes on to count its threads' time, but no calls.
        let at_least = at_least.min(self.progress.unwrap_or(at_least));
        [about * self.called, at_least, most * SPEEDS * most_time]
    }

    /// Whether a caller's own count is: those before and after agree, as far as there are any.
    fn is_believed(&self, rate: f64, near: &[f64]) -> bool {
        let apart = (AGREEMENT + ACCOUNT_AGE / self.time.max(1.0)).min(0.5);
        !near.is_empty() && near.iter().all(|&other| (rate - other).abs() <= apart * rate.max(other))
    }

    /// Whether calls by the caller's own count may come at such a rate. What probes cost does not bound
    /// it from above: where that was measured too low, calls would seem too slow.
    fn allows(&self, rate: f64) -> bool {
        self.slowest.max(self.rate[1] / 2.0) <= rate && rate <= 1.0 / SHORTEST_CALL
    }
}

/// Whether its pace proves that a caller's own count is right: one that has begun anew on the way tells less
/// than half of the calls, since the loop was gone through once more than it tells.
fn is_proven(rate: f64, [_, _, most]: [f64; 3]) -> bool {
    (most / 2.0..=most * SPEEDS).contains(&rate)
}

/// What holds if one or the other does.
fn between(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [f64::midpoint(a[0], b[0]), a[1].min(b[1]), a[2].max(b[2])]
}

fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= AGREEMENT * a.max(b)
}

/// The calls made from one place.
#[derive(Clone, Debug, Default)]
struct Site {
    calls: u64,
    before: Option<Seen>,
    /// The last gap, which waits for the next to agree.
    waiting: Option<Gap>,
    /// The rate by the caller's own count that was last trusted.
    trusted: Option<f64>,
    /// The rate in the last gap of which the caller's own count told the calls.
    latest: Option<f64>,
    /// The last gaps of which nothing was known, not even a pace.
    unknown: VecDeque<Gap>,
    pacing: Pacing,
    settled: [f64; 3],
    /// The part of the last gap for which its thread ran.
    share: Option<f64>,
    /// The time before it was first seen, until it is known for which part of it its thread ran.
    appeared: Option<Gap>,
    /// Windows in a row that showed nothing, and the nanoseconds from the last one that did.
    silent: u32,
    unheard: f64,
}

/// What one window showed of a place.
#[derive(Clone, Debug)]
struct Seen {
    to: u64,
    /// Calls counted before the first sighting, and when the last of them was.
    before: u64,
    left: MomentRecord,
    /// The last call that it showed.
    last: MomentRecord,
    /// Calls in the window, per nanosecond without the probe.
    rate: [f64; 3],
    slowest: f64,
    sightings: Vec<SightingRecord>,
}

/// Since when a place may have gone unseen.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    /// Calls are possible since then, and likely since the last window, for that part of the time.
    since: u64,
    last_window: u64,
    likely: f64,
}

impl Site {
    /// A window has ended, in which its thread had so much to do; a hit costs so many nanoseconds. Calls
    /// of a place that is new may have been made since the time given.
    fn add(&mut self, counted: &Counted, window: Window, work: &Work, cost: f64, unseen: Option<Unseen>) {
        let is_seen = counted.calls.window == window.number;
        let is_bridged = |before: &Seen| !is_seen && before.sightings.len() >= ENOUGH;
        if let Some(before) = self.before.as_ref().filter(|before| is_bridged(before)) {
            // Its thread may only not have run: the next window that shows something tells.
            self.silent += 1;
            self.unheard = window.to.saturating_sub(before.to) as f64;
            return;
        }
        let silent = std::mem::take(&mut self.silent);
        self.unheard = 0.0;
        let CountedCallsRecord { calls, before, last, left, .. } = counted.calls;
        let (before, left) = if is_seen { (before, left) } else { (calls, last) };
        let (from, to) = span(counted, window);
        let sightings = if is_seen { counted.calls.sighting[..sightings(counted)].to_vec() } else { Vec::new() };
        let rate = rate(hits(counted, window), work);
        let slowest = typical_distance(&sightings).map_or(0.0, |distance| 1.0 / longest_own(distance, cost));
        let seen = Seen { to, before, left, last, rate, slowest, sightings };
        self.calls = calls;
        match (self.before.take(), unseen) {
            (Some(last), _) => self.push(gap(&last, &seen, from, silent)),
            (None, Some(unseen)) => self.appear(&seen, from, unseen),
            (None, None) => {}
        }
        self.before = Some(seen);
    }

    /// It is seen for the first time. Its thread cannot have called for longer than it ran at all.
    fn appear(&mut self, seen: &Seen, from: u64, unseen: Unseen) {
        let ran = seen.sightings.first().map_or(f64::INFINITY, |first| first.moment.cpu_time as f64 + ACCOUNT_AGE);
        let time = |since: u64| (from.saturating_sub(since) as f64).min(ran);
        let (wall, time) = (time(unseen.since), time(unseen.last_window));
        self.appeared = Some(Gap {
            since: unseen.since,
            since_cpu: 0,
            wall,
            time,
            called: time * unseen.likely,
            is_short: false,
            is_timed: false,
            pace: None,
            progress: None,
            rate: seen.rate,
            slowest: seen.slowest,
        });
    }

    fn push(&mut self, mut gap: Gap) {
        if gap.is_short {
            if gap.is_timed && gap.time >= LEAST_RUN.max(gap.wall / 2.0) {
                self.pacing.add(gap.progress_rate());
            }
            self.settle_by(gap, false);
            return;
        }
        if gap.is_timed {
            self.share = Some(gap.time / gap.wall.max(1.0));
        }
        let share = self.share.unwrap_or(1.0);
        if !gap.is_timed {
            gap.time *= share;
            gap.called = gap.called.min(gap.time);
        }
        if let Some(mut appeared) = self.appeared.take() {
            appeared.time *= share;
            appeared.called *= share;
            self.settle_by(appeared, false);
        }
        if let Some(waiting) = self.waiting.replace(Gap { pace: self.pace(), ..gap }) {
            self.settle(waiting, gap.progress_rate());
        }
    }

    /// How fast it calls: about, at least, at most.
    fn pace(&self) -> Option<[f64; 3]> {
        self.pacing.pace.or_else(|| self.trusted.map(|rate| [rate; 3]))
    }

    /// A gap between looks is over, and so is the next.
    fn settle(&mut self, gap: Gap, next: Option<f64>) {
        let near: Vec<f64> = self.trusted.into_iter().chain(next).collect();
        let is_believed = |rate| self.pacing.proves(rate) || gap.is_believed(rate, &near) && self.pacing.allows(rate);
        let believed = gap.progress_rate().filter(|&rate| is_believed(rate));
        self.trusted = believed.or(self.trusted);
        self.settle_by(gap, believed.is_some());
    }

    fn settle_by(&mut self, gap: Gap, is_believed: bool) {
        let pace = self.pace();
        let is_unknown = pace.is_none() && !is_believed;
        if is_unknown {
            self.unknown.push_back(gap);
        } else {
            self.latest = gap.counted_rate(is_believed, pace);
            self.add_settled(gap.settle(is_believed, pace));
        }
        let keeps = if is_unknown { MOST_UNKNOWN } else { 0 };
        for gap in self.unknown.drain(..self.unknown.len().saturating_sub(keeps)).collect::<Vec<_>>() {
            self.add_settled(gap.settle(false, pace));
        }
    }

    fn add_settled(&mut self, calls: [f64; 3]) {
        self.settled.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
    }

    /// About and at most so many calls in so many nanoseconds of which nothing is known, as far as it
    /// went on as before; after some silence that is not likely.
    fn since_silent(&self, before: &Seen, time: f64) -> [f64; 2] {
        if time <= 0.0 {
            return [0.0; 2];
        }
        let [about, _, most] = self.pace().unwrap_or(before.rate);
        let about = self.latest.unwrap_or(about);
        let most = most.max(about) * SPEEDS * (time + 2.0 * ACCOUNT_AGE);
        [if self.silent < LONG_SILENCE { about * time } else { 0.0 }, most]
    }

    /// Its thread has ended.
    fn end(&mut self, ended: &Ended) {
        let Some(last) = self.before.take() else { return };
        let wall = ended.time.0.saturating_sub(last.to) as f64;
        let time = wall.min(ended.cpu_time.saturating_sub(last.last.cpu_time) as f64);
        if let Some(mut waiting) = self.waiting.take() {
            if last.to > ended.time.0 {
                waiting.cut(ended);
            }
            self.settle(waiting, None);
        }
        self.unheard = 0.0;
        let [about, most] = self.since_silent(&last, time);
        self.settled[0] += about;
        self.settled[2] += most;
    }

    /// About, at least, at most so many calls without probes so far.
    fn unseen(&self) -> [f64; 3] {
        let [about, most] = self.before.as_ref().map_or([0.0; 2], |before| self.since_silent(before, self.unheard));
        let near = self.trusted.as_slice();
        let is_believed = |gap: &Gap| gap.progress_rate().is_some_and(|rate| gap.is_believed(rate, near));
        let waiting = self.waiting.iter().map(|gap| gap.settle(is_believed(gap), self.pace()));
        let unknown = self.unknown.iter().chain(&self.appeared).map(|gap| gap.settle(false, self.pace()));
        let parts = waiting.chain(unknown).chain([self.settled, [about, 0.0, most]]);
        parts.fold([0.0; 3], |sum, calls| [0, 1, 2].map(|bound| sum[bound] + calls[bound]))
    }
}

fn sightings(counted: &Counted) -> usize {
    (counted.calls.sightings as usize).min(Limit::RT_SIGHTINGS.0 as usize)
}

/// Nanoseconds between two calls in a row, mostly.
fn typical_distance(sightings: &[SightingRecord]) -> Option<f64> {
    let mut distances: Vec<u64> = sightings.windows(2).map(|pair| distance(&pair[0].moment, &pair[1].moment)).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).filter(|_| sightings.len() >= ENOUGH).map(|&distance| distance as f64)
}

/// When the window began and ended at this place. Many calls tell better than the clock when the
/// probes were there.
fn span(counted: &Counted, window: Window) -> (u64, u64) {
    if counted.calls.window != window.number {
        return (window.from, window.to);
    }
    let first = (sightings(counted) >= ENOUGH).then(|| counted.calls.sighting[0].moment.time);
    (first.unwrap_or(window.from), window.to.max(counted.calls.last.time))
}

fn hits(counted: &Counted, window: Window) -> u64 {
    if counted.calls.window == window.number { counted.calls.calls - counted.calls.before } else { 0 }
}

/// What a thread did in a window, at all places together: each probe takes time from all calls.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Nanoseconds of the window, and how many of them it ran, as far as calls show.
    length: f64,
    running: f64,
    /// Calls, and what their probes took, in nanoseconds.
    hits: f64,
    cost: f64,
}

impl Work {
    fn add(&mut self, counted: &Counted, window: Window, cost: f64) {
        let (from, to) = span(counted, window);
        let hits = hits(counted, window) as f64;
        let distance = typical_distance(&counted.calls.sighting[..sightings(counted)]).filter(|_| hits > 0.0);
        self.length = self.length.max(to.saturating_sub(from) as f64);
        // Its thread may not have run in all of it, so that calls may have been apart so much all the time.
        self.running = self.running.max(distance.map_or(0.0, |distance| hits * distance));
        self.hits += hits;
        self.cost += hits * cost;
    }

    /// For how long its thread ran, as far as calls show.
    fn ran(&self) -> f64 {
        if self.running > 0.0 { self.running.min(self.length) } else { self.length }
    }

    /// Nanoseconds that were left of so many, if probes cost this part of what was measured.
    fn own(&self, of: f64, part: f64) -> f64 {
        (of - self.cost * part).max(self.hits * SHORTEST_CALL).max(1.0)
    }
}

/// Calls per nanosecond without probes, about, at least and at most, from so many in a window.
fn rate(hits: u64, work: &Work) -> [f64; 3] {
    let hits = hits as f64;
    let running = work.ran();
    // A number of chance events is off by twice its root at most, nearly always.
    let chance = 2.0 * hits.sqrt();
    let least = (hits - chance).max(0.0) / longest_own(work.length, work.cost);
    let most = (hits + chance + 3.0) / work.own(running, MOST_COST);
    // Where calls take less than the cost may be off, only the bounds are known, and they are far apart.
    let is_known = running - work.cost > work.cost * (1.0 - LEAST_COST);
    let about = if is_known { (hits / work.own(running, 1.0)).clamp(least, most) } else { (least * most).sqrt() };
    [about, least, most]
}

/// Nanoseconds that were left at most of so many, in which probes took about `cost`. Where that cannot be, as
/// nothing would be left, half of them were left.
fn longest_own(of: f64, cost: f64) -> f64 {
    of - (cost * LEAST_COST).min(of / 2.0)
}

fn distance(from: &MomentRecord, to: &MomentRecord) -> u64 {
    to.time.saturating_sub(from.time)
}

/// Nanoseconds that a thread ran between two calls; `exact`: not by the scheduler's account, which may be old.
fn ran(from: &MomentRecord, to: &MomentRecord, exact: bool) -> Option<f64> {
    if from.cpu == to.cpu {
        let away = to.away.wrapping_sub(from.away);
        return Some(distance(from, to).saturating_sub(away) as f64);
    }
    (!exact).then(|| to.cpu_time.saturating_sub(from.cpu_time) as f64)
}

/// What lies between two windows, the last of them from `from` on, with `silent` windows on the way, two
/// at a time.
fn gap(last: &Seen, seen: &Seen, from: u64, silent: u32) -> Gap {
    // The probes of a window go some time after its end.
    let since = last.to.max(seen.left.time);
    let length = from.saturating_sub(since);
    let (wall, is_short) = (length as f64, length <= SHORT);
    let watched = (since - seen.left.time) as f64;
    // The scheduler's account is too old for a short one.
    let on_cpu = |first: &SightingRecord| Some((ran(&seen.left, &first.moment, is_short)? - watched).clamp(0.0, wall));
    let (time, is_timed) = seen.sightings.first().and_then(on_cpu).map_or((wall, false), |time| (time, true));
    let called = time.min(wall / (1.0 + f64::from(silent) / 2.0));
    let rate =
        [f64::midpoint(last.rate[0], seen.rate[0]), last.rate[1].min(seen.rate[1]), last.rate[2].max(seen.rate[2])];
    let slowest = last.slowest.min(seen.slowest);
    let (since_cpu, progress, pace) = (seen.left.cpu_time, None, None);
    let mut gap = Gap { since, since_cpu, wall, time, called, is_short, is_timed, pace, progress, rate, slowest };
    gap.progress = self::progress(last, seen).filter(|calls| gap.allows(calls / gap.time.max(1.0)));
    gap
}

/// Calls between two windows by the caller's own count: those of all words that count must agree.
fn progress(last: &Seen, seen: &Seen) -> Option<f64> {
    let counted = seen.before.checked_sub(last.before)?;
    let mut found: Option<u64> = None;
    for lane in Lane::all() {
        let (Some(step), Some(again)) = (lane.step(&last.sightings), lane.step(&seen.sightings)) else { continue };
        let passed = lane.difference(&last.sightings[0], &seen.sightings[0]);
        if step != again || passed % step != 0 || passed / step < 0 {
            continue;
        }
        let Some(unseen) = (passed / step).cast_unsigned().checked_sub(counted) else { continue };
        if found.is_some_and(|other| !agree(other as f64, unseen as f64)) {
            return None;
        }
        found = Some(found.map_or(unseen, |other| other.max(unseen)));
    }
    found.map(|calls| calls as f64)
}

/// A number in a sighting: a word, or either half of one.
#[derive(Clone, Copy, Debug)]
struct Lane {
    word: usize,
    /// Bits from its end, and its length.
    shift: u32,
    bits: u32,
}

impl Lane {
    fn all() -> impl Iterator<Item = Lane> {
        let words = 0..Limit::RT_SIGHTED.0 as usize;
        words.flat_map(|word| [(0, 64), (0, 32), (32, 32)].map(|(shift, bits)| Lane { word, shift, bits }))
    }

    fn difference(self, from: &SightingRecord, to: &SightingRecord) -> i64 {
        let of = |sighting: &SightingRecord| sighting.words[self.word] >> self.shift;
        let difference = of(to).wrapping_sub(of(from)).cast_signed();
        let unused = 64 - self.bits;
        difference << unused >> unused
    }

    /// What it goes up or down by with each call, if it is the same each time.
    fn step(self, sightings: &[SightingRecord]) -> Option<i64> {
        if sightings.len() < ENOUGH {
            return None;
        }
        let mut steps = sightings.windows(2).map(|pair| self.difference(&pair[0], &pair[1]));
        let first = steps.next().filter(|&step| step != 0)?;
        steps.all(|step| step == first).then_some(first)
    }
}

/// Calls counted, and about, at least, at most so many that went unseen.
type Sum = (u64, [f64; 3]);

/// Estimates for all regions without probes.
#[derive(Debug, Default)]
pub struct Estimator {
    sites: HashMap<(u32, u32, u64), Site>,
    /// Of threads that have ended, by location and region.
    ended: HashMap<(u32, u32), Sum>,
    /// By region: since when its probes are gone.
    off: HashMap<u32, u64>,
    /// By thread: the end of the last window that showed it.
    threads: HashMap<u32, u64>,
    last_window: u64,
}

impl Estimator {
    /// Takes in what was counted so far, at the end of a window in which probes of the regions for
    /// which `cost_of` gives the cost of a hit, in nanoseconds, were in place.
    pub fn add(&mut self, counted: &[Counted], window: Window, cost_of: impl Fn(RegionId) -> Option<f64>) {
        let of_window = || counted.iter().filter_map(|place| Some((place, cost_of(RegionId(place.key.region))?)));
        let mut threads: HashMap<u32, Work> = HashMap::new();
        for (place, cost) in of_window() {
            threads.entry(place.key.location).or_default().add(place, window, cost);
        }
        for (place, cost) in of_window() {
            let CountedKey { location, region, .. } = place.key;
            let unseen = self.off.get(&region).map(|&off| self.unseen(location, off));
            self.site(place).add(place, window, &threads[&location], cost, unseen);
        }
        let ran = threads.into_iter().filter(|(_, work)| work.hits > 0.0);
        self.threads.extend(ran.map(|(location, _)| (location, window.to)));
        self.last_window = window.to;
    }

    /// The region's probes are gone from that time on.
    pub fn is_off(&mut self, region: RegionId, since: u64) {
        self.off.insert(region.0, since);
    }

    /// A thread that the last window showed has begun to call after it; another one may not have run.
    fn unseen(&self, location: u32, off: u64) -> Unseen {
        let last_window = self.last_window.max(off);
        match self.threads.get(&location) {
            Some(&shown) if shown >= off => Unseen { since: shown, last_window: last_window.max(shown), likely: 0.5 },
            _ => Unseen { since: off, last_window, likely: 1.0 },
        }
    }

    /// A thread has ended, all of whose counts were taken in. It may have called on until then, or no more.
    pub fn end(&mut self, ended: &Ended) {
        let location = ended.location.0;
        self.threads.remove(&location);
        for ((_, region, _), mut site) in self.sites.extract_if(|&(of, _, _), _| of == location) {
            site.end(ended);
            add(self.ended.entry((location, region)).or_default(), &site);
        }
    }

    /// Whether a place at which the window before had enough calls to tell a step has fewer in this
    /// one: its thread may have been kept from running.
    pub fn waits_for(&self, counted: &[Counted], window: u32, is_of_window: impl Fn(RegionId) -> bool) -> bool {
        counted.iter().filter(|place| is_of_window(RegionId(place.key.region))).any(|place| {
            let key = (place.key.location, place.key.region, place.key.site);
            let before = self.sites.get(&key).and_then(|site| site.before.as_ref());
            let had_enough = before.is_some_and(|before| before.sightings.len() >= ENOUGH);
            had_enough && (place.calls.window != window || sightings(place) < ENOUGH)
        })
    }

    /// Whether no place of one of these regions was called in this window.
    pub fn misses(&self, counted: &[Counted], window: u32, regions: &[RegionId]) -> bool {
        let is_seen = |region: &RegionId| {
            counted.iter().any(|place| place.key.region == region.0 && place.calls.window == window)
        };
        !regions.iter().all(is_seen)
    }

    /// Takes in what was counted where nothing goes unseen.
    pub fn count(&mut self, counted: &[Counted]) {
        for place in counted {
            self.site(place).calls = place.calls.calls;
        }
    }

    /// From now on calls of the region are seen: the next window is not compared with the last.
    pub fn is_seen_again(&mut self, region: RegionId) {
        self.off.remove(&region.0);
        for (_, site) in self.sites.iter_mut().filter(|((_, of, _), _)| *of == region.0) {
            let Some(before) = site.before.take() else { continue };
            let unheard = std::mem::take(&mut site.unheard);
            let [about, most] = site.since_silent(&before, unheard);
            site.settled[0] += about;
            site.settled[2] += most;
        }
    }

    fn site(&mut self, place: &Counted) -> &mut Site {
        self.sites.entry((place.key.location, place.key.region, place.key.site)).or_default()
    }

    /// Calls per second of the region without probes, as of the last gap; `None` before there is one.
    pub fn rate(&self, region: RegionId) -> Option<f64> {
        let of_region = self.sites.iter().filter(|((_, of, _), _)| *of == region.0);
        let rate = |site: &Site| {
            if site.silent >= LONG_SILENCE {
                return Some(0.0);
            }
            let gap = site.waiting?;
            let pace = site.pace().map(|[about, ..]| about);
            let mut known = pace.into_iter().chain(gap.progress_rate());
            Some(known.find(|rate| gap.allows(*rate)).unwrap_or(gap.rate[0]) * 1e9)
        };
        of_region.filter_map(|(_, site)| rate(site)).reduce(|a, b| a + b)
    }

    /// All estimates so far, by location and region.
    pub fn estimates(&self) -> Vec<Estimate> {
        let mut sums = self.ended.clone();
        for (&(location, region, _), site) in &self.sites {
            add(sums.entry((location, region)).or_default(), site);
        }
        let estimate = |((location, region), (counted, calls)): ((u32, u32), Sum)| {
            let [estimated, least, most] = calls.map(|calls| calls.round() as u64);
            Estimate { location: LocationId(location), region: RegionId(region), counted, estimated, least, most }
        };
        sums.into_iter().map(estimate).collect()
    }
}

fn add(sum: &mut Sum, site: &Site) {
    sum.0 += site.calls;
    sum.1.iter_mut().zip(site.unseen()).for_each(|(sum, calls)| *sum += calls);
}

#[cfg(test)]
mod tests;
