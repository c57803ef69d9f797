//! Says once, where no budget was given, that tracing slows a program down more than most would want.

use std::collections::HashMap;

use rtrace_bpf::{Error, Programs};
use rtrace_model::{CallCost, Overhead, Region, RegionId, Timestamp};

use crate::host;
use crate::record::overhead::{self, CpuMeter, Surcharge};

/// Percent by which the program's time is longer. Of calls that are rare, and find nothing in the caches, the cost is known
/// to half of it only: less is not said.
const WORTH_SAYING: f64 = 50.0;

/// What is known of the cost so far.
#[derive(Default)]
pub struct Notice {
    /// Nanoseconds of a call, and of one that is counted only.
    costs: HashMap<RegionId, (f64, f64)>,
    /// Calls as of the last look, by region.
    before: Vec<u64>,
    /// Nanoseconds of all calls so far that were counted only, as of the last look.
    outside: f64,
    looked: Option<Timestamp>,
    meter: CpuMeter,
    surcharge: Option<Surcharge>,
    is_said: bool,
}

impl Notice {
    /// Learns what calls of these regions cost.
    pub fn learn(&mut self, programs: &Programs, costs: &[CallCost], regions: &[Region]) {
        self.surcharge.get_or_insert_with(|| Surcharge::new(costs, programs.calm_hit_times()));
        let cost = |region, is_recorded| overhead::of_call(costs, region, is_recorded);
        self.costs.extend(regions.iter().map(|region| (region.id, (cost(region, true), cost(region, false)))));
    }

    /// What tracing costs since the last look; nothing at the first. `calls` are those so far, by region, and `outside` those
    /// that were counted only.
    ///
    /// # Errors
    /// A map of the programs cannot be read.
    pub fn look(
        &mut self,
        programs: &Programs,
        calls: &[u64],
        outside: &foldhash::HashMap<u32, u64>,
        pids: &[u32],
    ) -> Result<Option<Overhead>, Error> {
        let now = host::now();
        let time = self.looked.replace(now).map(|then| now.since(then) as f64);
        let cpu = self.meter.since_last(pids) as f64;
        let (times, stepped) = (programs.hit_times()?, programs.stepped_returns());
        let more = calls.iter().sum::<u64>() - self.before.iter().sum::<u64>();
        let extra = self.surcharge.as_mut().map_or(0.0, |of| of.since_last(times, stepped, more));
        let cost = self.cost(calls, extra) + self.cost_outside(outside);
        Ok(time.filter(|_| cpu > 0.0).map(|time| Overhead::of(cost, cpu - cost, time)))
    }

    /// In percent, the first time that it is worth saying.
    pub fn worth_saying(&mut self, overhead: Overhead) -> Option<u32> {
        let percent = overhead.in_percent();
        let is_new = percent > WORTH_SAYING && !self.is_said;
        self.is_said |= is_new;
        is_new.then_some(percent.round() as u32)
    }

    fn cost_outside(&mut self, calls: &foldhash::HashMap<u32, u64>) -> f64 {
        let cost_of = |region: u32| self.costs.get(&RegionId(region)).map_or(0.0, |(_, counted)| *counted);
        let now = calls.iter().map(|(&region, &calls)| calls as f64 * cost_of(region)).sum();
        now - std::mem::replace(&mut self.outside, now)
    }

    /// Nanoseconds that the calls since the last look took. `extra`: what each costs beyond what was measured.
    fn cost(&mut self, calls: &[u64], extra: f64) -> f64 {
        self.before.resize(calls.len(), 0);
        let cost_of = |region| self.costs.get(&RegionId(region)).map_or(0.0, |(cost, _)| cost + extra);
        let more = calls.iter().zip(&self.before).map(|(now, before)| (now - before) as f64);
        let cost: f64 = (0..).zip(more).map(|(region, more)| more * cost_of(region)).sum();
        self.before.copy_from_slice(calls);
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_calls_since_the_last_look() {
        let region = RegionId(3);
        let mut notice = Notice { costs: HashMap::from([(region, (1_000.0, 400.0))]), ..Notice::default() };
        let calls = |count| [0, 0, 0, count];
        assert_eq!(notice.cost(&calls(100_000), 0.0), 1e8);
        assert_eq!(notice.cost(&calls(100_000), 0.0), 0.0);
        assert_eq!(notice.cost(&calls(200_000), 1_000.0), 2e8);
        let outside = |calls| [(region.0, calls)].into_iter().collect();
        assert_eq!(notice.cost_outside(&outside(1_000)), 4e5);
        assert_eq!(notice.cost_outside(&outside(1_500)), 2e5);
    }

    #[test]
    fn what_is_worth_saying_is_said_once() {
        let mut notice = Notice::default();
        let percent = |percent| Overhead::percent(percent);
        assert_eq!(notice.worth_saying(percent(49.0)), None);
        assert_eq!(notice.worth_saying(percent(80.4)), Some(80));
        assert_eq!(notice.worth_saying(percent(10.0)), None);
        assert_eq!(notice.worth_saying(percent(90.0)), None);
    }
}
