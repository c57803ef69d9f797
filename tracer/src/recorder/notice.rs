//! Says once, where no budget was given, that tracing slows a program down more than most would want.

use std::collections::HashMap;

use rtrace_bpf::{Error, Programs};
use rtrace_model::{CallCost, Region, RegionId, SLOWDOWN_AT_LEAST};

use crate::overhead::{self, CpuMeter, Surcharge};

/// Percent by which the program's time is longer. Of calls that are rare, and find nothing in the caches, the cost is known
/// to half of it only: less is not said.
const WORTH_SAYING: f64 = 50.0;

/// The most that is said. What calls cost is known to about a tenth, and the program's own time is what they leave
/// of all: where they take two thirds of it, the slowdown is right within a third, beyond that it can be anything.
const MOST_KNOWN: f64 = SLOWDOWN_AT_LEAST as f64;

/// What is known of the cost so far.
#[derive(Default)]
pub struct Notice {
    /// Nanoseconds of a call.
    costs: HashMap<RegionId, f64>,
    /// Calls as of the last look, by region.
    before: Vec<u64>,
    meter: CpuMeter,
    surcharge: Option<Surcharge>,
    is_said: bool,
}

impl Notice {
    /// Learns what calls of these regions cost.
    pub fn learn(&mut self, programs: &Programs, costs: &[CallCost], regions: &[Region]) {
        self.surcharge.get_or_insert_with(|| Surcharge::new(costs, programs.calm_hit_times()));
        self.costs.extend(regions.iter().map(|region| (region.id, overhead::of_call(costs, region, true))));
    }

    /// The slowdown in percent, the first time that it is worth saying. `calls` are those so far, by
    /// region.
    ///
    /// # Errors
    /// A map of the programs cannot be read.
    pub fn look(&mut self, programs: &Programs, calls: &[u64], pids: &[u32]) -> Result<Option<u32>, Error> {
        if self.is_said {
            return Ok(None);
        }
        let cpu = self.meter.since_last(pids) as f64;
        let (times, stepped) = (programs.hit_times()?, programs.stepped_returns());
        let more = calls.iter().sum::<u64>() - self.before.iter().sum::<u64>();
        let extra = self.surcharge.as_mut().map_or(0.0, |of| of.since_last(times, stepped, more));
        let Some(percent) = self.slowdown(calls, cpu, extra) else { return Ok(None) };
        self.is_said = percent > WORTH_SAYING;
        Ok(self.is_said.then_some(percent.round() as u32))
    }

    /// `extra`: nanoseconds that each call costs beyond what was measured.
    fn slowdown(&mut self, calls: &[u64], cpu: f64, extra: f64) -> Option<f64> {
        self.before.resize(calls.len(), 0);
        let cost_of = |region| self.costs.get(&RegionId(region)).map_or(0.0, |cost| cost + extra);
        let more = calls.iter().zip(&self.before).map(|(now, before)| (now - before) as f64);
        let cost: f64 = (0..).zip(more).map(|(region, more)| more * cost_of(region)).sum();
        self.before.copy_from_slice(calls);
        let own = (cpu - cost).max(cost * 100.0 / MOST_KNOWN);
        (cpu > 0.0).then(|| cost / own * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowdown_is_that_of_the_time_since_the_last_look() {
        let region = RegionId(3);
        let mut notice = Notice { costs: HashMap::from([(region, 1_000.0)]), ..Notice::default() };
        let calls = |count| [0, 0, 0, count];
        assert_eq!(notice.slowdown(&calls(100_000), 1.1e9, 0.0), Some(10.0));
        assert_eq!(notice.slowdown(&calls(100_000), 1e9, 0.0), Some(0.0));
        assert_eq!(notice.slowdown(&calls(600_000), 1e9, 0.0), Some(100.0));
        assert_eq!(notice.slowdown(&calls(700_000), 1.2e9, 1_000.0), Some(20.0));
        // More would be a guess, whether anything is left to the program or not.
        assert_eq!(notice.slowdown(&calls(1_500_000), 1e9, 0.0), Some(200.0));
        assert_eq!(notice.slowdown(&calls(2_100_000), 0.1e9, 0.0), Some(200.0));
        assert_eq!(notice.slowdown(&calls(2_100_000), 0.0, 0.0), None);
    }
}
