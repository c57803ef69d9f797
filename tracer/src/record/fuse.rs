//! Finds out which functions are called too often while the probes of others are placed: what works in bursts, as garbage
//! collectors do, was perhaps not seen before, and nothing governs it yet.

use std::collections::{HashMap, HashSet};

use rtrace_bpf::{Error, Programs};
use rtrace_model::{LEAST_CPU, Region, RegionId};

use crate::record::limit::{Limit, too_costly};
use crate::record::overhead::{self, CpuMeter};

/// Nanoseconds of CPU time of which a few calls are no large part.
const ENOUGH: f64 = 1e6;

/// Counts calls while nothing is recorded.
pub struct Fuse<'a> {
    programs: &'a Programs,
    limit: Limit<'a>,
    pids: &'a [u32],
    meter: CpuMeter,
    /// Nanoseconds that the processes have used since calls were looked at.
    used: f64,
    before: Vec<u64>,
}

impl<'a> Fuse<'a> {
    /// Begins to count the calls in these processes.
    pub fn new(programs: &'a Programs, limit: Limit<'a>, pids: &'a [u32]) -> Fuse<'a> {
        programs.set_window(true);
        let mut meter = CpuMeter::default();
        meter.since_last(pids);
        Fuse { programs, limit, pids, meter, used: 0.0, before: Vec::new() }
    }

    /// What is to be kept.
    pub fn limit(&self) -> Limit<'a> {
        self.limit
    }

    /// Those of the regions whose calls since the last time cost too much.
    pub fn too_costly<'r>(&mut self, regions: impl Iterator<Item = &'r Region>) -> HashSet<RegionId> {
        self.used += self.meter.since_last(self.pids) as f64;
        if self.used < ENOUGH {
            return HashSet::new();
        }
        let used = std::mem::take(&mut self.used);
        let entries = self.programs.entries();
        let before = std::mem::replace(&mut self.before, entries);
        let now = &self.before;
        let costs: HashMap<RegionId, f64> = regions
            .filter_map(|region| {
                let place = region.id.index() % now.len();
                let calls = now[place] - before.get(place).unwrap_or(&0);
                (calls > 0).then(|| (region.id, calls as f64 * overhead::of_call(self.limit.costs, region, false)))
            })
            .collect();
        let own = (used - costs.values().sum::<f64>()).max(used * LEAST_CPU).max(1.0);
        too_costly(&costs.into_iter().map(|(region, cost)| (region, cost / own)).collect(), self.limit.most())
    }

    /// Ends it: what is recorded is counted from 0.
    ///
    /// # Errors
    /// The counts cannot be written.
    pub fn end(self) -> Result<(), Error> {
        let programs = self.programs;
        drop(self);
        programs.forget_entries()
    }
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        self.programs.set_window(false);
    }
}
