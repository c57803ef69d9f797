//! Finds out which functions are called too often while the probes of others are placed: what works in bursts, as garbage
//! collectors do, was perhaps not seen before, and nothing governs it yet.

use std::collections::{HashMap, HashSet};

use rtrace_bpf::{Error, Programs};
use rtrace_model::{CallCost, LEAST_CPU, Region, RegionId};

use crate::record::overhead::{self, CpuMeter};
use crate::record::pauses::Pauses;

/// Nanoseconds of CPU time of which a few calls are no large part.
const ENOUGH: f64 = 1e6;

/// Counts calls while nothing is recorded.
pub struct Fuse<'a> {
    programs: &'a Programs,
    costs: &'a [CallCost],
    /// The part of the time that all calls together may take.
    most: f64,
    pauses: Pauses,
    pids: &'a [u32],
    meter: CpuMeter,
    /// Nanoseconds that the processes have used since calls were looked at.
    used: f64,
    before: Vec<u64>,
}

impl<'a> Fuse<'a> {
    /// Begins to count the calls in these processes, which may take that part of their time; they are left alone in `pauses`.
    pub fn new(programs: &'a Programs, costs: &'a [CallCost], most: f64, pauses: Pauses, pids: &'a [u32]) -> Fuse<'a> {
        programs.set_window(true);
        let mut meter = CpuMeter::default();
        meter.since_last(pids);
        Fuse { programs, costs, most, pauses, pids, meter, used: 0.0, before: Vec::new() }
    }

    /// Pauses between probes that are placed.
    pub fn pauses(&self) -> Pauses {
        self.pauses
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
                (calls > 0).then(|| (region.id, calls as f64 * overhead::of_call(self.costs, region, false)))
            })
            .collect();
        let own = (used - costs.values().sum::<f64>()).max(used * LEAST_CPU).max(1.0);
        too_costly(&costs.into_iter().map(|(region, cost)| (region, cost / own)).collect(), self.most)
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

/// Those that cost most, so that the others take this part of the time at most. Costs are parts of the time that the processes use without.
pub fn too_costly(costs: &HashMap<RegionId, f64>, most: f64) -> HashSet<RegionId> {
    let mut cheapest: Vec<(RegionId, f64)> = costs.iter().map(|(&region, &cost)| (region, cost)).collect();
    cheapest.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut sum = 0.0;
    let fits = |&&(_, cost): &&(RegionId, f64)| {
        sum += cost;
        // Tracing is a part of the time that it makes longer.
        sum / (1.0 + sum) <= most
    };
    let number = cheapest.iter().take_while(fits).count();
    cheapest.into_iter().skip(number).map(|(region, _)| region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_most_is_left_out_until_the_rest_fits() {
        let costs = HashMap::from([(RegionId(1), 5.0), (RegionId(2), 0.01), (RegionId(3), 0.001), (RegionId(4), 0.02)]);
        assert_eq!(too_costly(&costs, 0.02), HashSet::from([RegionId(1), RegionId(4)]));
        assert_eq!(too_costly(&costs, 0.11), HashSet::from([RegionId(1)]));
        assert_eq!(too_costly(&HashMap::new(), 0.02), HashSet::new());
    }
}
