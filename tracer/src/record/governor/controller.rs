//! Decides which regions are recorded, so that tracing costs less than its budget. Pure logic: from what calls cost
//! now, it derives what to change.
//!
//! While the cost is above the budget, the regions that cost most are throttled, as many at once as necessary; a region
//! that costs nothing is never touched. The program is faster afterwards and calls the others more often, which the
//! decision takes into account. When the load falls, regions are restored, provided that their expected cost leaves a
//! reserve. A region that has to be throttled soon after it was restored waits twice as long the next time, and none is
//! restored until a part of the budget has made up for what that cost.

use std::collections::HashMap;
use std::time::Duration;

use rtrace_model::{LEAST_CPU, Level, RegionId};

/// Parts of the budget: above the first, regions are throttled until the cost is below the second; regions are restored
/// while it stays below the last.
const LOWER_ABOVE: f64 = 0.75;
pub const LOWER_TO: f64 = 0.45;
const RESTORE_TO: f64 = 0.4;

/// CPU seconds by which the cost may be above the budget for a moment, once nothing was for a while: what a program does
/// in bursts is recorded.
const BURST: f64 = 0.02;

/// What is the program's own of the CPU time is at least this part: where calls cost most of it, what they cost is not
/// known well enough to tell.
const LEAST_OWN: f64 = 0.1;

/// Hits that record nothing leave at least this part of the CPU time: what they cost is not known well enough to
/// tell more.
const LEAST_LEFT: f64 = 0.2;

/// Time between two times that regions are restored, so that what they cost shows before.
const RESTORE_PERIOD: Duration = Duration::from_millis(500);

/// Regions that are restored at a time, at most: some of them may only have seemed to be quiet.
const MOST_RESTORED: usize = 8;

/// The part of the budget that makes up for regions which had to be throttled soon after they were restored.
const TRIED: f64 = 0.2;

/// What a region costs when it is throttled, it has cost for this long at most: else it would have been throttled.
const SHOWN: Duration = Duration::from_millis(200);

/// How long a region stays throttled at least, the first time and at most.
const FIRST_HOLD: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// A region that stays restored for this many times its hold may be restored quickly again.
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
    pub cost: f64,
    /// Whether its probes can be taken out alone, or placed again.
    pub can_change: bool,
}

impl Observed {
    /// What its calls cost where they are recorded, in CPU seconds per second.
    fn full(&self) -> f64 {
        self.calls * self.cost / 1e9
    }

    fn now(&self) -> f64 {
        if self.level == Level::Full { self.full() } else { 0.0 }
    }
}

/// What is left of CPU seconds per second once those hits are over that take so much of it and record nothing.
pub fn left_by_vain(cpu: f64, vain: f64) -> f64 {
    (cpu - vain).max(cpu * LEAST_LEFT)
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
    restored: Duration,
    /// CPU seconds that regions cost which were restored too soon, as far as nothing has made up for them.
    debt: f64,
    /// CPU seconds that the cost may be above the budget.
    spare: f64,
    decided: Duration,
}

impl Controller {
    /// One that keeps the cost below this part of the programs' CPU time.
    pub fn new(budget: f64) -> Controller {
        let (restored, decided) = (Duration::ZERO, Duration::ZERO);
        Controller { budget, memory: HashMap::new(), restored, debt: 0.0, spare: BURST, decided }
    }

    /// What to change now. `cpu` are CPU seconds that the programs use per second, tracing included, but what will
    /// soon be over.
    pub fn decide(&mut self, now: Duration, cpu: f64, regions: &[Observed]) -> Vec<(RegionId, Level)> {
        if cpu <= 0.0 {
            return Vec::new();
        }
        let time = now.saturating_sub(std::mem::replace(&mut self.decided, now)).as_secs_f64();
        self.debt = (self.debt - TRIED * self.budget * cpu.max(LEAST_CPU) * time).max(0.0);
        let cost: f64 = regions.iter().map(Observed::now).sum();
        let limit = self.budget * LOWER_ABOVE * cpu.max(LEAST_CPU);
        self.spare = (self.spare + (limit - cost) * time).clamp(0.0, BURST);
        if cost > limit {
            return if self.spare > 0.0 { Vec::new() } else { self.throttle(now, cpu, cost, regions) };
        }
        self.restore(now, cpu, cost, regions)
    }

    /// Relative to what is the program's own, which stays, each cost stays what it is when others go.
    fn throttle(&mut self, now: Duration, cpu: f64, mut cost: f64, regions: &[Observed]) -> Vec<(RegionId, Level)> {
        let own = (cpu - cost).max(cpu * LEAST_OWN);
        let can_be_throttled = |region: &&Observed| region.can_change && region.now() > 0.0;
        let mut costliest: Vec<&Observed> = regions.iter().filter(can_be_throttled).collect();
        costliest.sort_by(|a, b| b.now().total_cmp(&a.now()));
        let mut changes = Vec::new();
        for region in costliest {
            if cost <= self.budget * LOWER_TO * (own + cost).max(LEAST_CPU) {
                break;
            }
            cost -= region.now();
            self.note_throttled(now, region);
            changes.push((region.region, Level::Off));
        }
        changes
    }

    fn note_throttled(&mut self, now: Duration, region: &Observed) {
        let since = |before: &Memory| now.saturating_sub(before.changed);
        let hold = match self.memory.get(&region.region).filter(|before| since(before) < before.hold * PROVEN) {
            Some(before) => {
                self.debt += region.now() * since(before).min(SHOWN).as_secs_f64();
                (before.hold * 2).min(LONGEST_HOLD)
            }
            None => FIRST_HOLD,
        };
        self.memory.insert(region.region, Memory { changed: now, hold });
    }

    /// Those regions that cost least among those that have waited, while there is room for them.
    fn restore(&mut self, now: Duration, cpu: f64, mut cost: f64, regions: &[Observed]) -> Vec<(RegionId, Level)> {
        if now < self.restored + RESTORE_PERIOD || self.debt > 0.0 {
            return Vec::new();
        }
        let has_waited = |region: &&Observed| {
            let memory = self.memory.get(&region.region);
            region.can_change
                && region.level == Level::Off
                && memory.is_none_or(|memory| now >= memory.changed + memory.hold)
        };
        let mut cheapest: Vec<&Observed> = regions.iter().filter(has_waited).collect();
        cheapest.sort_by(|a, b| a.full().total_cmp(&b.full()));
        let mut changes = Vec::new();
        for region in cheapest.into_iter().take(MOST_RESTORED) {
            let more = cost + region.full();
            if more > self.budget * RESTORE_TO * cpu.max(LEAST_CPU) {
                break;
            }
            cost = more;
            self.restored = now;
            if let Some(memory) = self.memory.get_mut(&region.region) {
                memory.changed = now;
            }
            changes.push((region.region, Level::Full));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const COST: f64 = 1_100.0;

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
            self.regions.iter().filter(|(_, level)| *level == Level::Full).map(|(calls, _)| calls * COST).sum()
        }

        fn run(&mut self, time: Duration) -> &mut Simulated {
            let end = self.now + time;
            while self.now < end {
                self.now += TICK;
                let passes = 1e9 / (self.pass + self.cost());
                let of = |(id, &(calls, level)): (u32, &(f64, Level))| Observed {
                    region: RegionId(id),
                    level,
                    calls: passes * calls,
                    cost: COST,
                    can_change: true,
                };
                let observed: Vec<Observed> = (0..).zip(&self.regions).map(of).collect();
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

    /// Each of them alone would be within the budget as long as the others hold up the program.
    #[test]
    fn functions_that_are_too_many_go_at_once() {
        let mut target = Simulated::new(50_000.0, &[4.0; 100]);
        target.run(TICK * 2);
        assert!(target.share() < 0.05, "{}", target.share());
    }

    #[test]
    fn what_is_cheap_is_left_alone_and_nothing_oscillates() {
        assert_eq!(Simulated::new(100_000.0, &[3.0]).run(Duration::from_secs(20)).changes, 0);
        let mut hot = Simulated::new(50.0, &[1.0]);
        assert_eq!(hot.run(Duration::from_secs(60)).changes, 1, "it stays off while it is hot");
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

    /// Windows may miss what a function does in bursts, as long as it is throttled.
    #[test]
    fn functions_that_only_seem_to_be_quiet_are_not_tried_one_after_the_other() {
        let mut controller = Controller::new(0.05);
        let (mut levels, mut cost, mut now) = (vec![Level::Full; 100], 0.0, Duration::ZERO);
        while now < Duration::from_secs(60) {
            now += TICK;
            let of = |(id, &level): (u32, &Level)| {
                let calls = if level == Level::Off { 100.0 } else { 500_000.0 };
                Observed { level, ..observed(id, calls, true) }
            };
            let regions: Vec<Observed> = (0..).zip(&levels).map(of).collect();
            if now > TICK {
                cost += regions.iter().map(Observed::now).sum::<f64>() * TICK.as_secs_f64();
            }
            for (region, level) in controller.decide(now, 1.0, &regions) {
                levels[region.index()] = level;
            }
        }
        assert!(cost > 0.0, "they are tried");
        assert!(cost < 60.0 * 0.05 / 2.0, "{cost} s in 60 s");
    }

    fn observed(id: u32, calls: f64, can_change: bool) -> Observed {
        Observed { region: RegionId(id), level: Level::Full, calls, cost: COST, can_change }
    }

    /// Else functions that are called a few hundred times a second would go unseen while other programs keep this
    /// one from running.
    #[test]
    fn of_a_program_that_hardly_runs_what_is_rare_stays() {
        let mut controller = Controller::new(0.05);
        assert_eq!(controller.decide(TICK, 0.002, &[observed(0, 300.0, true), observed(1, 600.0, true)]), []);
        let mut at = |seconds| controller.decide(Duration::from_secs(seconds), 0.002, &[observed(0, 9_000.0, true)]);
        assert_eq!((at(1), at(4)), (vec![], vec![(RegionId(0), Level::Off)]));
    }

    /// Else a program that answers a question now and then would lose the calls that it makes for that.
    #[test]
    fn a_burst_is_recorded() {
        let mut controller = Controller::new(0.25);
        let regions = |calls| [observed(0, calls, true)];
        assert_eq!(controller.decide(TICK, 0.05, &regions(20_000.0)), []);
        for second in 1..10 {
            assert_eq!(controller.decide(Duration::from_secs(second), 0.01, &regions(0.0)), []);
        }
        let burst = controller.decide(Duration::from_secs(9) + TICK, 0.05, &regions(100_000.0));
        assert_eq!(burst, []);
        let lasting = controller.decide(Duration::from_secs(9) + TICK * 3, 0.05, &regions(100_000.0));
        assert_eq!(lasting, [(RegionId(0), Level::Off)]);
    }

    /// Else functions would seem to be within the budget while hits in vain slow the program down, and would have to go
    /// one after the other when those are over.
    #[test]
    fn what_costs_too_much_once_hits_in_vain_are_over_goes_at_once() {
        let regions = [observed(0, 20_000.0, true), observed(1, 100.0, true)];
        let decide = |vain| Controller::new(0.05).decide(Duration::from_secs(9), left_by_vain(1.0, vain), &regions);
        assert_eq!(decide(0.0), []);
        assert_eq!(decide(0.6), [(RegionId(0), Level::Off)]);
        assert!((left_by_vain(1.0, 5.0) - LEAST_LEFT).abs() < 1e-9, "more than there is is a wrong guess");
    }

    #[test]
    fn a_region_that_cannot_change_is_no_reason_to_take_others_out_that_cost_nothing() {
        let mut controller = Controller::new(0.05);
        let regions = [observed(0, 900_000.0, false), observed(1, 0.0, true)];
        assert_eq!(controller.decide(TICK, 1.0, &regions), []);
        assert_eq!(controller.decide(TICK, 0.0, &regions), [], "a program that does not run has no share");
    }

    #[test]
    fn a_region_of_which_nothing_is_known_is_not_restored() {
        let unknown = Observed { level: Level::Off, ..observed(0, f64::INFINITY, true) };
        assert_eq!(Controller::new(0.05).decide(Duration::from_secs(9), 1.0, &[unknown]), []);
    }

    #[test]
    fn a_region_whose_probe_is_on_its_way_out_is_not_restored() {
        let mut controller = Controller::new(0.05);
        let quiet = |can_change| Observed { level: Level::Off, ..observed(0, 10.0, can_change) };
        let now = Duration::from_secs(9);
        assert_eq!(controller.decide(now, 1.0, &[quiet(false)]), []);
        assert_eq!(controller.decide(now, 1.0, &[quiet(true)]), [(RegionId(0), Level::Full)]);
    }
}
