//! What a page shows of calls beside the tables that `rtrace report` has: when, how long, and on which thread. It is
//! gathered in bounded memory while the calls are read.

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{Call, FoldedPath, LocationId, RegionId};

use super::axis::Axis;
use super::heat::Heat;
use super::kept::Kept;
use super::lanes::Lanes;
use crate::walk::{Caller, Visitor};

/// Slices of time of the lanes, of the map of durations, and of the sample of calls.
const SLICES: [usize; 3] = [720, 180, 240];

/// Gathers all of it.
pub(super) struct Picture {
    pub(super) lanes: Lanes,
    pub(super) heat: Heat,
    pub(super) kept: Kept,
}

/// Calls, timed calls and exclusive time by function and thread.
#[derive(Default)]
pub(super) struct Shares(pub(super) HashMap<(RegionId, LocationId), [u64; 3]>);

impl Picture {
    pub(super) fn new(trace: &TraceSet) -> Picture {
        let begin = trace.header().begin.monotonic;
        let length = trace.summary().map(|summary| summary.end.monotonic.since(begin) + 1);
        let [lanes, heat, kept] = SLICES.map(|slices| Axis::new(begin, length, slices));
        Picture { lanes: Lanes::new(trace, lanes), heat: Heat::new(heat, begin, length), kept: Kept::new(kept) }
    }

    /// Adds a call; `outermost` unless its time is part of another one's.
    pub(super) fn add(&mut self, call: &Call, outermost: bool) {
        self.heat.add(call);
        self.kept.add(call);
        self.lanes.add(call, outermost);
    }
}

impl Visitor for Picture {
    type Mark = ();

    fn visit(&mut self, call: &Call, caller: Caller<'_, ()>) {
        self.add(call, caller.timed().next().is_none());
    }

    fn visit_path(&mut self, _: &FoldedPath, _: Caller<'_, ()>) {}
}

impl Shares {
    fn add(&mut self, region: RegionId, location: LocationId, sums: [u64; 3]) {
        let share = self.0.entry((region, location)).or_default();
        share.iter_mut().zip(sums).for_each(|(sum, of)| *sum = sum.saturating_add(of));
    }
}

impl Visitor for Shares {
    type Mark = ();

    fn visit(&mut self, call: &Call, _: Caller<'_, ()>) {
        let timed = u64::from(call.is_timed());
        self.add(call.region, call.location, [1, timed, call.exclusive().unwrap_or(0)]);
    }

    fn visit_path(&mut self, path: &FoldedPath, _: Caller<'_, ()>) {
        let timed = path.calls.saturating_sub(path.unseen);
        self.add(path.region, path.location, [path.calls, timed, path.exclusive]);
    }
}
