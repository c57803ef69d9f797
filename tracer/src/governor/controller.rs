//! Which regions' calls are recorded how, so that tracing costs less than its budget. Pure logic:
//! told what calls cost now, it says what to change.
//!
//! While the cost is above the budget, those regions are lowered that cost most; what costs nothing
//! is never touched. A region is only counted where that is enough, else its probes go. When the load
//! falls, one region at a time is raised, if what it will cost then leaves room to spare. A region
//! that has to be lowered soon after it was raised has to wait twice as long the next time.

use std::collections::HashMap;
use std::time::Duration;

use rtrace_model::{Level, RegionId};

/// Parts of the budget: above the first, regions are lowered until the cost is below the second, or
/// below the third where it is enough to count one; regions are raised while it stays below the last.
const LOWER_ABOVE: f64 = 0.85;
const LOWER_TO: f64 = 0.5;
const COUNT_TO: f64 = 0.75;
const RAISE_TO: f64 = 0.4;

/// Programs are taken to use so many CPUs at least: of one that hardly runs even what is called rarely would
/// be above the budget, and to record that hurts nobody.
const LEAST_CPU: f64 = 0.04;

/// How long a region stays lowered at least, the first time and at most.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// A region that stays raised for this many times its hold may be raised quickly again.
const PROVEN: u32 = 4;

/// What is known of a region.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Which.
    pub region: RegionId,
    /// How it is recorded.
    pub level: Level,
    /// Calls per second: as they are seen, or as estimated where no probe is in place.
    pub calls: f64,
    /// Nanoseconds that a call costs when it is recorded.
    pub full: f64,
    /// Nanoseconds that a call costs when it is only counted.
    pub count: f64,
    /// Whether its probes can be taken out alone.
    pub can_change: bool,
}

impl Observed {
    /// What its calls cost at that level, in CPU seconds per second.
    fn cost(&self, level: Level) -> f64 {
        let of_call = match level {
            Level::Full => self.full,
            Level::Count => self.count,
            Level::Off => 0.0,
        };
        self.calls * of_call / 1e9
    }
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    changed: Duration,
    hold: Duration,
}

/// Decides by what it was told.
#[derive(Debug)]
pub struct Controller {
    /// Part of the CPU time.
    budget: f64,
    memory: HashMap<RegionId, Memory>,
}

impl Controller {
    /// One that keeps the cost below this part of the programs' CPU time.
    pub fn new(budget: f64) -> Controller {
        Controller { budget, memory: HashMap::new() }
    }

    /// What to change now. `cpu` are CPU seconds that the programs use per second, tracing included.
    pub fn decide(&mut self, now: Duration, cpu: f64, regions: &[Observed]) -> Vec<(RegionId, Level)> {
        if cpu <= 0.0 {
            return Vec::new();
        }
        let cpu = cpu.max(LEAST_CPU);
        let cost: f64 = regions.iter().map(|region| region.cost(region.level)).sum();
        if cost > self.budget * LOWER_ABOVE * cpu {
            return self.lower(now, cpu, cost, regions);
        }
        self.raise(now, cpu, cost, regions).into_iter().collect()
    }

    /// The programs are taken to use the time that they gain.
    fn lower(&mut self, now: Duration, cpu: f64, mut cost: f64, regions: &[Observed]) -> Vec<(RegionId, Level)> {
        let can_be_lowered = |region: &&Observed| region.can_change && region.cost(region.level) > 0.0;
        let mut dearest: Vec<&Observed> = regions.iter().filter(can_be_lowered).collect();
        dearest.sort_by(|a, b| b.cost(b.level).total_cmp(&a.cost(a.level)));
        let mut changes = Vec::new();
        for region in dearest {
            if cost <= self.budget * LOWER_TO * cpu || changes.last().is_some_and(|(_, level)| *level == Level::Count) {
                break;
            }
            let after = |level| cost - region.cost(region.level) + region.cost(level);
            let is_enough = region.level == Level::Full && after(Level::Count) <= self.budget * COUNT_TO * cpu;
            let level = if is_enough { Level::Count } else { Level::Off };
            cost = after(level);
            self.note_lowered(now, region.region);
            changes.push((region.region, level));
        }
        changes
    }

    fn note_lowered(&mut self, now: Duration, region: RegionId) {
        let hold = match self.memory.get(&region) {
            Some(before) if now.saturating_sub(before.changed) < before.hold * PROVEN => {
                (before.hold * 2).min(LONGEST_HOLD)
            }
            _ => FIRST_HOLD,
        };
        self.memory.insert(region, Memory { changed: now, hold });
    }

    /// The region that costs least among those that have waited, if there is room for it.
    fn raise(&mut self, now: Duration, cpu: f64, cost: f64, regions: &[Observed]) -> Option<(RegionId, Level)> {
        let has_waited = |region: &&Observed| {
            let memory = self.memory.get(&region.region);
            region.level != Level::Full && memory.is_none_or(|memory| now >= memory.changed + memory.hold)
        };
        let cheapest =
            regions.iter().filter(has_waited).min_by(|a, b| a.cost(Level::Full).total_cmp(&b.cost(Level::Full)))?;
        let fits = |level: Level| {
            let more = cheapest.cost(level) - cheapest.cost(cheapest.level);
            cost + more <= self.budget * RAISE_TO * (cpu + more)
        };
        let higher = match cheapest.level {
            Level::Off => [Level::Full, Level::Count].into_iter().find(|&level| fits(level)),
            _ => Some(Level::Full).filter(|&level| fits(level)),
        }?;
        if let Some(memory) = self.memory.get_mut(&cheapest.region) {
            memory.changed = now;
        }
        Some((cheapest.region, higher))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const FULL: f64 = 1_100.0;
    const COUNT: f64 = 700.0;

    /// A thread that calls functions in turn, as fast as tracing lets it.
    struct Simulated {
        /// Of each region: calls per pass of the loop, and how they are recorded.
        regions: Vec<(f64, Level)>,
        /// Nanoseconds of a pass without tracing, of which so many are spent on a CPU.
        pass: f64,
        busy: f64,
        now: Duration,
        controller: Controller,
        changes: usize,
    }

    impl Simulated {
        fn new(pass: f64, calls: &[f64]) -> Simulated {
            let regions = calls.iter().map(|&calls| (calls, Level::Full)).collect();
            let (controller, changes) = (Controller::new(0.05), 0);
            Simulated { regions, pass, busy: pass, now: Duration::ZERO, controller, changes }
        }

        fn cost(&self) -> f64 {
            let of = |&(calls, level): &(f64, Level)| {
                calls
                    * [(Level::Full, FULL), (Level::Count, COUNT)]
                        .iter()
                        .find(|(of, _)| *of == level)
                        .map_or(0.0, |(_, cost)| *cost)
            };
            self.regions.iter().map(of).sum()
        }

        fn run(&mut self, time: Duration) -> &mut Simulated {
            let end = self.now + time;
            while self.now < end {
                self.now += TICK;
                let passes = 1e9 / (self.pass + self.cost());
                let observed: Vec<Observed> = (0..)
                    .zip(&self.regions)
                    .map(|(id, &(calls, level))| Observed {
                        region: RegionId(id),
                        level,
                        calls: passes * calls,
                        full: FULL,
                        count: COUNT,
                        can_change: true,
                    })
                    .collect();
                let cpu = passes * (self.busy + self.cost()) / 1e9;
                for (region, level) in self.controller.decide(self.now, cpu, &observed) {
                    self.regions[region.index()].1 = level;
                    self.changes += 1;
                }
            }
            self
        }

        fn levels(&self) -> Vec<Level> {
            self.regions.iter().map(|&(_, level)| level).collect()
        }

        fn share(&self) -> f64 {
            self.cost() / (self.busy + self.cost())
        }
    }

    #[test]
    fn a_hot_function_goes_and_rare_ones_stay() {
        let mut target = Simulated::new(50_000.0, &[1_000.0, 0.5, 0.0]);
        target.run(Duration::from_secs(1));
        assert_eq!(target.levels(), [Level::Off, Level::Full, Level::Full]);
        assert!(target.share() < 0.05);
    }

    #[test]
    fn what_is_cheap_is_left_alone_and_nothing_oscillates() {
        assert_eq!(Simulated::new(100_000.0, &[3.0]).run(Duration::from_secs(20)).changes, 0);
        let mut hot = Simulated::new(50.0, &[1.0]);
        assert_eq!(hot.run(Duration::from_secs(60)).changes, 1, "it stays off while it is hot");
    }

    #[test]
    fn where_counting_is_enough_calls_are_counted() {
        // Recorded it takes 5.2 %; one of two counted is enough.
        let mut target = Simulated::new(40_000.0, &[0.3, 1.6]);
        target.run(Duration::from_secs(2));
        assert!(target.share() < 0.05, "{}", target.share());
        assert_eq!(target.levels()[0], Level::Full);
        let mut target = Simulated::new(37_000.0, &[1.0, 0.6]);
        target.run(Duration::from_secs(1));
        assert_eq!(target.levels(), [Level::Count, Level::Full]);
    }

    #[test]
    fn when_the_load_falls_it_is_recorded_again_and_a_load_that_returns_makes_it_wait() {
        let mut target = Simulated::new(50.0, &[1.0]);
        target.run(Duration::from_secs(3));
        target.pass = 1e6;
        target.busy = 5e5;
        target.run(Duration::from_secs(3));
        assert_eq!(target.levels(), [Level::Full]);
        let before = target.changes;
        for _ in 0..20 {
            (target.pass, target.busy) = (50.0, 50.0);
            target.run(Duration::from_secs(1));
            (target.pass, target.busy) = (1e6, 5e5);
            target.run(Duration::from_secs(1));
        }
        assert!(target.changes - before <= 8, "{} changes in 40 s", target.changes - before);
    }

    fn observed(id: u32, calls: f64, can_change: bool) -> Observed {
        Observed { region: RegionId(id), level: Level::Full, calls, full: FULL, count: COUNT, can_change }
    }

    /// Else functions that are called a few hundred times a second would be estimated while other
    /// programs keep this one from running.
    #[test]
    fn of_a_program_that_hardly_runs_what_is_rare_stays() {
        let mut controller = Controller::new(0.05);
        assert_eq!(controller.decide(TICK, 0.002, &[observed(0, 300.0, true), observed(1, 600.0, true)]), []);
        assert_eq!(controller.decide(TICK, 0.002, &[observed(0, 9_000.0, true)]), [(RegionId(0), Level::Off)]);
    }

    #[test]
    fn a_region_that_cannot_change_is_no_reason_to_take_others_out_that_cost_nothing() {
        let mut controller = Controller::new(0.05);
        let regions = [observed(0, 900_000.0, false), observed(1, 0.0, true)];
        assert_eq!(controller.decide(TICK, 1.0, &regions), []);
        assert_eq!(controller.decide(TICK, 0.0, &regions), [], "a program that does not run has no share");
    }
}
