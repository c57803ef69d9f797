//! What is known of one function.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use rtrace_model::{
    Call, CallCost, Count, Ending, Estimate, ExitPolicy, LibraryId, LocationId, Missed, PathProfile, RegionId,
    Timestamp, Wait, is_mostly_tracing,
};
use rtrace_profile::Sums;

use super::counters::Counters;
use super::history::{CLASSES, History, class_of_bucket};

/// Slowest calls that are kept of each function.
const SLOWEST: usize = 8;

/// A region with its calls so far. Times in nanoseconds, as `rtrace report` defines them.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its id.
    pub region: RegionId,
    /// Its name, not escaped.
    pub name: Arc<str>,
    /// The same where its library is not told beside it.
    pub alone: Arc<str>,
    /// Its library.
    pub library: LibraryId,
    /// What its calls wait for, if they do.
    pub waits_for: Option<Wait>,
    /// How its exits are seen.
    pub exit: ExitPolicy,
    /// What a call costs the program, about, where that is known.
    pub cost: Option<CallCost>,
    /// Its calls. Of those that are nested in another one of them, the time is not in the inclusive time, as far as
    /// callers are known.
    pub sums: Sums,
    /// Calls without a record, beside these: counted, and about so many not seen.
    pub without_record: WithoutRecord,
    /// What tracing took of its exclusive time, in its calls and around those that they made, as far as it is known.
    tracing: u64,
    /// What its calls counted, by counter, under the same rules as the times; empty where nothing is counted.
    pub counts: Vec<Count>,
    /// Calls known to be lost.
    pub lost: u64,
    /// Its last minute.
    pub history: History,
    percentiles: Cell<Percentiles>,
    slowest: Vec<Slow>,
}

/// A call worth to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Its duration in nanoseconds.
    pub duration: u64,
    /// Of it, time in traced callees.
    pub child: u64,
    /// Its begin.
    pub start: Timestamp,
    /// Its thread.
    pub location: LocationId,
    /// Its id on that thread.
    pub call: u64,
    /// Its function.
    pub region: RegionId,
    /// Number of calls it is nested in.
    pub depth: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Percentiles {
    /// Number of durations they are of.
    timed: u64,
    p50: u64,
    p99: u64,
}

/// Calls without a record, because of a budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutRecord {
    /// Counted, exactly.
    pub counted: u64,
    /// Not seen; `None` where none was left out.
    pub missed: Option<Missed>,
}

impl WithoutRecord {
    /// Takes in those of a function on a thread.
    pub fn add(&mut self, estimate: &Estimate) {
        self.counted += estimate.counted;
        *self.missed.get_or_insert_default() += estimate.missed();
    }

    /// What stands before a number of calls that these are part of.
    pub fn mark(&self) -> &'static str {
        match self.missed {
            None => "",
            Some(Missed { has_unknown: true, .. }) => "≥",
            Some(_) => "~",
        }
    }
}

impl Deref for Function {
    type Target = Sums;

    fn deref(&self) -> &Sums {
        &self.sums
    }
}

impl Function {
    /// Calls with and without a record.
    pub fn all_calls(&self) -> u64 {
        let WithoutRecord { counted, missed } = self.without_record;
        self.calls + counted + missed.map_or(0, |missed| missed.estimated)
    }

    /// A region without calls.
    pub fn new(region: RegionId, name: &str, library: LibraryId, exit: ExitPolicy) -> Function {
        Function {
            region,
            name: Arc::from(name),
            alone: Arc::from(name),
            library,
            waits_for: None,
            exit,
            cost: None,
            sums: Sums::default(),
            without_record: WithoutRecord::default(),
            tracing: 0,
            counts: Vec::new(),
            lost: 0,
            history: History::default(),
            percentiles: Cell::default(),
            slowest: Vec::new(),
        }
    }

    /// Adds a call that ended in a slot of time; its inclusive time is added when its callers are
    /// known.
    pub fn add(&mut self, call: &Call, slot: u64) {
        self.sums.add_call(call, false);
        self.take_off(call.duration.filter(|&duration| duration > 0).and(self.cost).map_or(0, |cost| cost.inner));
        self.history.add(slot, ended_after(call));
        self.note(call);
    }

    /// Adds calls that were folded, in a slot of time if that is known; `is_outermost` unless they
    /// are nested in other calls of this function.
    pub fn fold(&mut self, more: &PathProfile, is_outermost: bool, slot: Option<u64>) {
        self.sums.add_profile(more, is_outermost);
        if is_outermost {
            Count::add_inclusive(&mut self.counts, more.counts.iter().copied());
        }
        Count::add_exclusive(&mut self.counts, more.counts.iter().copied());
        let timed = more.calls.saturating_sub(more.unseen);
        self.take_off(self.cost.map_or(0, |cost| cost.inner.saturating_mul(timed)));
        if let Some(slot) = slot {
            self.history.fold(slot, more.calls, &more.histogram);
        }
    }

    /// Takes off nanoseconds that are in its exclusive time, but tracing's.
    pub fn take_off(&mut self, tracing: u64) {
        self.tracing = self.tracing.saturating_add(tracing);
    }

    /// Exclusive time without tracing, as far as it is known what that took: what it has in the order of functions, and
    /// what shares are of.
    pub fn own(&self) -> u64 {
        self.exclusive.saturating_sub(self.tracing)
    }

    /// The same where it is work: time in which a function waits is none, and what shares are of.
    pub fn work(&self) -> u64 {
        if self.waits_for.is_some() { 0 } else { self.own() }
    }

    /// Whether tracing took so much of its exclusive time that this says little of the program.
    pub fn is_mostly_tracing(&self) -> bool {
        self.exclusive > 0 && is_mostly_tracing(self.exclusive, self.tracing)
    }

    /// Keeps a call if it is among the slowest, without counting it.
    pub fn note(&mut self, call: &Call) {
        let Some(duration) = ended_after(call) else { return };
        let is_slow = self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| last.duration < duration);
        if is_slow {
            self.note_slow(call, duration);
        }
    }

    #[cold]
    fn note_slow(&mut self, call: &Call, duration: u64) {
        let Call { child, start, location, id, region, depth, .. } = *call;
        let place = self.slowest.partition_point(|slow| slow.duration >= duration);
        self.slowest.insert(place, Slow { duration, child, start, location, call: id, region, depth });
        self.slowest.truncate(SLOWEST);
    }

    /// Time of its calls with their callees. Of calls whose callers still run, that is known later than their exclusive time,
    /// which is a part of it.
    pub fn inclusive(&self) -> u64 {
        self.sums.inclusive.max(self.exclusive)
    }

    /// One of its sums over times in nanoseconds; absent where none of its calls was timed.
    pub fn time(&self, sum: u64) -> Option<u64> {
        (self.calls > self.untimed()).then_some(sum)
    }

    /// The part of its time without traced callees, from 0 to 1, in which its threads were on no CPU, where that is known.
    pub fn off_cpu(&self, counters: &Counters) -> Option<f64> {
        let on_cpu = counters.on_cpu(&self.counts)?.exclusive;
        (self.exclusive > 0).then(|| 1.0 - on_cpu.min(self.exclusive) as f64 / self.exclusive as f64)
    }

    /// Whether percentiles are upper bounds, as durations are known to a power of two.
    pub fn has_bounds(&self) -> bool {
        self.sums.latency.is_folded()
    }

    /// Calls with a duration, by class of durations.
    pub fn durations(&self) -> [u64; CLASSES] {
        let mut classes = [0; CLASSES];
        for (bucket, calls) in self.sums.latency.buckets() {
            classes[class_of_bucket(bucket)] += calls;
        }
        classes
    }

    /// The duration that half of the calls do not exceed.
    pub fn p50(&self) -> Option<u64> {
        self.percentiles(0).map(|of| of.p50)
    }

    /// The duration that one call in a hundred exceeds.
    pub fn p99(&self) -> Option<u64> {
        self.percentiles(0).map(|of| of.p99)
    }

    /// About [`p50`](Function::p50), to sort by: not computed anew for each call.
    pub fn about_p50(&self) -> Option<u64> {
        self.percentiles(self.timed() / 32).map(|of| of.p50)
    }

    /// About [`p99`](Function::p99), to sort by: not computed anew for each call.
    pub fn about_p99(&self) -> Option<u64> {
        self.percentiles(self.timed() / 32).map(|of| of.p99)
    }

    /// Percentiles that miss at most so many of the last durations.
    fn percentiles(&self, missing: u64) -> Option<Percentiles> {
        let max = self.max?;
        let known = self.percentiles.get();
        if self.timed() - known.timed <= missing {
            return Some(known);
        }
        let of = |percent| self.sums.latency.percentile(percent).unwrap_or(max).min(max);
        let fresh = Percentiles { timed: self.timed(), p50: of(50.0), p99: of(99.0) };
        self.percentiles.set(fresh);
        Some(fresh)
    }

    /// The calls that took longest, the longest first.
    pub fn slowest(&self) -> &[Slow] {
        &self.slowest
    }
}

/// The duration of a call that has ended, if it was timed.
fn ended_after(call: &Call) -> Option<u64> {
    call.duration.filter(|_| call.ending != Ending::Open)
}
