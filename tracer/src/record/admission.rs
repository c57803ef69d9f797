//! Learns before a recording which functions are called so often that recording them would cost more than the budget, so
//! that their probes are never placed.
//!
//! Functions are probed by small groups, for some milliseconds, in one process of each program: the one that is most
//! busy. The kernel side only counts. A pause after each group makes up for what it took from the process. What begins to be
//! called later is the governor's.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_bpf::{Error, Programs, Role};
use rtrace_model::{LEAST_CPU, RegionId};
use rtrace_plan::{Plan, PlannedRegion};

use crate::host;
use crate::record::attach::{self, Admitted, Closing};
use crate::record::limit::{Limit, too_costly};
use crate::record::overhead::{self, cpu_time};
use crate::record::pauses;
use crate::target;
use crate::target::files::Pinned;

/// Functions of the first group of a file, and of others at most: if all of them do nothing and are called in turn, the process
/// loses some milliseconds. Behind a group of which nothing is called, the next is larger: the kernel takes some
/// milliseconds for each, whatever it has.
const GROUP: usize = 32;
const MOST_GROUP: usize = 128;

/// A group is counted until the process has used so many nanoseconds of CPU time, from when all of it is placed, or until so
/// many calls: on a busy machine it may not run for a while.
const LOOK: f64 = 1e6;
const ENOUGH: u64 = 1_000;

/// Fewer calls than that say little of a function where a look was shorter: one call of a rare function in the 50 us that a
/// busy one took for a thousand would stand for 20,000 a second. Such functions are looked at again, without the busy ones,
/// at most so many times together.
const FEWEST: u64 = 16;
const MOST_LOOKS: usize = 4;

/// Not longer than this many times what that should take, and than this.
const LATE: f64 = 4.0;
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// Time between two looks at what was counted.
const STEP: Duration = Duration::from_micros(500);

/// For so long it is measured which processes run at all.
const MEASURED: Duration = Duration::from_millis(200);

/// A pause is not longer than that.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A process that stands for all of its program.
struct Representative {
    pid: u32,
    /// The part of the CPU time of all processes that its program uses.
    share: f64,
    /// CPUs that it uses itself.
    cpus: f64,
}

/// Looks at the functions of a plan in these processes.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn admit(programs: &Programs, plan: &Plan, pids: &[u32], limit: Limit<'_>) -> Result<Admitted, Error> {
    let mut admitted = Admitted::unknown(limit);
    let mut seen: HashMap<RegionId, f64> = HashMap::new();
    let mut closing = Closing::default();
    let ahead = host::run_first();
    programs.set_window(true);
    for representative in representatives(pids) {
        let mut looking = Looking { programs, representative: &representative, limit, closing: &mut closing };
        for library in &plan.libraries {
            let file = Pinned::open(&library.attach_path, library.stamp)?;
            for (region, cost) in looking.look_at_all(&file, &library.regions)? {
                *seen.entry(region).or_default() += cost * representative.share;
            }
        }
    }
    programs.set_window(false);
    drop(ahead);
    closing.finish();
    programs.forget_entries()?;
    admitted.left_out = too_costly(&seen, limit.most());
    admitted.called = seen.into_keys().collect();
    Ok(admitted)
}

/// The plan without the functions that get no probes at first.
pub fn within<'p>(plan: &'p Plan, admitted: Option<&Admitted>) -> Cow<'p, Plan> {
    let Some(admitted) = admitted.filter(|admitted| !admitted.left_out.is_empty()) else { return Cow::Borrowed(plan) };
    let mut plan = plan.clone();
    for library in &mut plan.libraries {
        library.regions.retain(|planned| !admitted.left_out.contains(&planned.region.id));
    }
    Cow::Owned(plan)
}

/// The busiest process of each program that runs at all.
fn representatives(pids: &[u32]) -> Vec<Representative> {
    let time = |pid: &u32| Some((*pid, cpu_time(*pid)?));
    let before: HashMap<u32, u64> = pids.iter().filter_map(time).collect();
    let begin = Instant::now();
    thread::sleep(MEASURED);
    let now = pids.iter().filter_map(time);
    let used: Vec<(u32, f64)> = now
        .filter_map(|(pid, now)| Some((pid, now.saturating_sub(*before.get(&pid)?) as f64)))
        .map(|(pid, used)| (pid, used / begin.elapsed().as_nanos() as f64))
        .collect();
    let all: f64 = used.iter().map(|(_, cpus)| cpus).sum();
    let mut programs: BTreeMap<_, (f64, (u32, f64))> = BTreeMap::new();
    for &(pid, cpus) in &used {
        let program = target::identity(&target::program_of(pid)).ok();
        let of_program = programs.entry(program).or_insert((0.0, (pid, 0.0)));
        of_program.0 += cpus;
        if cpus >= of_program.1.1 {
            of_program.1 = (pid, cpus);
        }
    }
    let runs = programs.into_values().filter(|(cpus, _)| *cpus > LEAST_CPU);
    runs.map(|(cpus, (pid, own))| Representative { pid, share: cpus / all, cpus: own.max(LEAST_CPU) }).collect()
}

/// What was counted of a function in all looks.
#[derive(Clone, Copy)]
struct CountedFunction<'p> {
    planned: &'p PlannedRegion,
    hits: u64,
    /// Nanoseconds of CPU time that the process had for itself meanwhile.
    own: f64,
}

impl CountedFunction<'_> {
    fn is_unsure(&self, is_cut_short: bool) -> bool {
        self.hits < FEWEST && self.own < LOOK && (self.hits > 0 || is_cut_short)
    }

    /// Calls per nanosecond of CPU time.
    fn rate(&self) -> f64 {
        self.hits as f64 / if self.hits < FEWEST { self.own.max(LOOK) } else { self.own }
    }
}

/// What was counted of a group of functions.
struct GroupCounts {
    /// Calls of each.
    hits: Vec<u64>,
    /// CPU time in nanoseconds that the process had for itself meanwhile.
    own: f64,
    /// Whether it ended early, as there were enough calls of all functions together.
    is_cut_short: bool,
}

fn since(before: &[u64], now: &[u64]) -> Vec<u64> {
    now.iter().zip(before).map(|(now, before)| now - before).collect()
}

struct Looking<'a> {
    programs: &'a Programs,
    representative: &'a Representative,
    limit: Limit<'a>,
    closing: &'a mut Closing,
}

impl Looking<'_> {
    /// Counts the calls of the functions of a file. Gives what recording those that are called would cost, as a part of the
    /// CPU time that the process would use without.
    fn look_at_all(&mut self, file: &Pinned, regions: &[PlannedRegion]) -> Result<Vec<(RegionId, f64)>, Error> {
        let mut costs = Vec::new();
        let mut left: Vec<CountedFunction<'_>> =
            regions.iter().map(|planned| CountedFunction { planned, hits: 0, own: 0.0 }).collect();
        for looks in 1..=MOST_LOOKS {
            let mut unsure = Vec::new();
            let (mut rest, mut size) = (left.as_mut_slice(), GROUP);
            while !rest.is_empty() && !self.limit.is_stopped() {
                let group;
                (group, rest) = rest.split_at_mut(size.min(rest.len()));
                let look = self.look(file, group)?;
                let is_quiet = look.hits.iter().sum::<u64>() < FEWEST;
                size = if is_quiet { (size * 2).min(MOST_GROUP) } else { GROUP };
                for (counted, hits) in group.iter_mut().zip(look.hits) {
                    counted.hits += hits;
                    counted.own += look.own;
                    if looks < MOST_LOOKS && counted.is_unsure(look.is_cut_short) {
                        unsure.push(*counted);
                    } else if counted.hits > 0 && !counted.planned.is_needed() {
                        costs.push((counted.planned.region.id, counted.rate() * self.recorded(counted.planned)));
                    }
                }
            }
            if unsure.is_empty() {
                break;
            }
            // A function that has two probes would be counted twice.
            self.closing.finish();
            left = unsure;
        }
        Ok(costs)
    }

    /// Counts the calls of some functions of a file.
    fn look(&mut self, file: &Pinned, group: &[CountedFunction<'_>]) -> Result<GroupCounts, Error> {
        let Representative { pid, cpus, .. } = *self.representative;
        let regions: Vec<_> = group.iter().map(|counted| counted.planned).collect();
        let regions = regions.as_slice();
        let sites: Vec<_> = regions.iter().copied().map(attach::entry_of).collect();
        let begin = self.counted(regions);
        let attach = |sites: &[_]| self.programs.attach(Role::Enter, &file.path(), &[pid], sites);
        // What the kernel refuses is told of when the rest is placed.
        let placed = attach::place(&sites, &attach, &mut |_, _| {})?;
        let (before, from, used_before) = (self.counted(regions), Instant::now(), cpu_time(pid).unwrap_or(0));
        let longest = Duration::from_secs_f64(LATE * LOOK / cpus / 1e9).min(LONGEST_LOOK);
        let (mut hits, mut time) = (vec![0; regions.len()], 0.0);
        while from.elapsed() < longest && time < LOOK && hits.iter().sum::<u64>() < ENOUGH {
            thread::sleep(STEP);
            hits = since(&before, &self.counted(regions));
            time = cpu_time(pid).map_or(0, |used| used.saturating_sub(used_before)) as f64;
        }
        self.closing.close(placed.into_iter().map(|(_, probes)| probes).collect());
        let hit = |hits: &[u64]| -> f64 {
            regions.iter().zip(hits).map(|(planned, &hits)| hits as f64 * self.counted_only(planned)).sum()
        };
        let own = (time - hit(&hits)).max(time * LEAST_OWN).max(1.0);
        let all = since(&begin, &self.counted(regions));
        let harm = hit(&all) + all.iter().sum::<u64>() as f64 * overhead::after(self.limit.costs);
        // Who does not run does not wait for a lock.
        let locked = pauses::locked_by(sites.len()).as_nanos() as f64 * cpus.min(1.0);
        thread::sleep(self.pause(harm / cpus + locked));
        Ok(GroupCounts { is_cut_short: time < LOOK && hits.iter().sum::<u64>() >= ENOUGH, hits, own })
    }

    /// Nanoseconds that a call of a function costs which is counted only.
    fn counted_only(&self, planned: &PlannedRegion) -> f64 {
        overhead::of_call(self.limit.costs, &planned.region, false)
    }

    /// Nanoseconds that a recorded call costs.
    fn recorded(&self, planned: &PlannedRegion) -> f64 {
        overhead::of_call(self.limit.costs, &planned.region, true) + overhead::after(self.limit.costs)
    }

    /// The hits of these regions so far.
    fn counted(&self, regions: &[&PlannedRegion]) -> Vec<u64> {
        regions.iter().map(|planned| self.programs.entries_of(planned.region.id.index())).collect()
    }

    /// How long the process is left alone after that many nanoseconds of harm.
    fn pause(&self, harm: f64) -> Duration {
        self.limit.pauses().after(Duration::from_secs_f64(harm / 1e9)).min(LONGEST_PAUSE)
    }
}

/// At least this part of the time is taken to be the process's own while its calls are counted.
const LEAST_OWN: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_run_stands_for_none() {
        let mut idle = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        thread::sleep(MEASURED);
        let found = representatives(&[idle.id()]);
        idle.kill().expect("it sleeps");
        idle.wait().expect("it is ours");
        assert!(found.is_empty());
    }
}
