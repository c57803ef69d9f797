//! Keeps the cost of tracing below a budget: measures what calls cost, and removes and restores probes as `controller`
//! decides. `estimate` says how many calls were not recorded.
//!
//! A region has one probe, and the kernel side knows whether the region is throttled. So throttling a region changes
//! one word in a map. From then on its hits do next to nothing, and threads that nobody waits for remove the probe. The
//! returns of calls that were running are still detected.
//!
//! Probes that were placed together are removed together. Regions that lose theirs because of another get them back as
//! soon as the old ones are gone.

pub(crate) mod controller;
mod estimate;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_bpf::{Error, Probes, Programs, Role, Site};
use rtrace_model::{CallCost, Estimate, LEAST_CPU, Level, LocationId, Percent, RegionId, Timestamp};

use self::controller::{Controller, Observed};
pub use self::estimate::NO_LOCATION;
use self::estimate::{Estimator, Window};
use crate::host;
use crate::record::attach::{self, Closing, Governable, Throttleable};
use crate::record::family::Followed;
use crate::record::overhead::{self, CpuMeter, Surcharge};
use crate::record::pauses::{self, timed};
use crate::record::returns::{Exchange, Warmth};
use crate::target::overlays;

/// Time between two decisions.
const TICK: Duration = Duration::from_millis(100);

/// The same for some time after levels have changed.
const SHORT_TICK: Duration = Duration::from_millis(25);
const UNSETTLED: Duration = Duration::from_secs(1);

/// Probes that come back together, at most.
const MOST_BACK: usize = 64;

/// Length of a window in which throttled regions are counted, at least and at most: as the budget allows.
const WINDOW: Duration = Duration::from_millis(1);
const LONGEST_WINDOW: Duration = Duration::from_millis(20);

/// Regions of a window, at most, and of the first. Those that are placed are hit while others are, which takes
/// some microseconds each, and much longer where others make the kernel wait: so there are as many as are placed
/// in this time.
const MOST_IN_WINDOW: usize = 256;
const FIRST_IN_WINDOW: usize = 32;
const PLACING: Duration = Duration::from_millis(4);

/// The part of the programs' time that the hits of a window may take: the more they take, the less is known of the pace without them.
const MOST_SLOWED: f64 = 0.15;

/// So many windows may have probes on their way out: the kernel takes some 50 ms for those of each.
const MOST_PAST: usize = 8;

/// Windows take what calls that are recorded leave of this part of the budget, at least the second, and come so often at most
/// and at least.
const USED: f64 = 0.7;
const WINDOWS_SHARE: f64 = 0.15;
/// Not more of the programs' time than this, whatever the budget: probes that come and go make threads change their CPUs, which
/// no account has. A redis that leaves no CPU idle kept 63 to 70 % of its requests at a budget of 15 % without a limit. At 5 %,
/// it kept 88 % with 3.5 % of the time for windows, 90 % with 1.5 %, and 93 % without windows.
const MOST_IN_WINDOWS: f64 = 0.02;
const WINDOW_PERIOD: Duration = Duration::from_millis(20);
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

/// Its multiples, without their whole part, are spread evenly.
const GOLDEN_RATIO: f64 = 0.618_034;

/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);

/// Weight of the last tick in what is taken to go on.
const WEIGHT: f64 = 0.5;

/// What the governor reports.
pub enum Report {
    /// A region is recorded otherwise.
    Level {
        /// Since when.
        time: Timestamp,
        /// Which.
        region: RegionId,
        /// Its name.
        name: String,
        /// How it was.
        from: Level,
        /// How it is.
        to: Level,
    },
    /// Calls without a record so far.
    Estimates(Vec<Estimate>),
    /// What tracing takes of the programs' CPU time, as a part of it.
    Overhead(f64),
}

/// What the governor works with.
pub struct GovernorContext<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// The probes.
    pub followed: &'a Followed<'a>,
    /// What calls cost here.
    pub costs: &'a [CallCost],
    /// The budget.
    pub budget: Percent,
    /// Regions whose cost counts.
    pub inbox: Receiver<Governable>,
    /// Whom it tells.
    pub outbox: Sender<Report>,
    /// What runs now.
    pub living: &'a Mutex<Living>,
    /// What it and the return sites tell each other.
    pub exchange: &'a Exchange,
}

/// What the recorder knows of processes and threads.
#[derive(Debug, Default)]
pub struct Living {
    /// The processes that are traced now.
    pub pids: Vec<u32>,
    /// Threads that have ended since this was last looked at.
    pub ended: Vec<LocationId>,
}

/// A region that cannot be throttled: its probes go only with those of others.
struct Fixed {
    cost: f64,
    enters: u64,
    rate: f64,
}

struct Governed {
    throttleable: Throttleable,
    /// Its probe was taken out because of another's, and is to come back at once.
    is_innocent: bool,
    level: Level,
    full: f64,
    count: f64,
    /// Enters recorded, and how many per second of late.
    enters: u64,
    rate: f64,
}

/// The governor.
pub struct Governor<'a> {
    context: GovernorContext<'a>,
    controller: Controller,
    estimator: Estimator,
    regions: BTreeMap<RegionId, Governed>,
    fixed: BTreeMap<RegionId, Fixed>,
    meter: CpuMeter,
    surcharge: Surcharge,
    /// Nanoseconds that a call costs more than was measured.
    extra: f64,
    /// CPU seconds per second, and those that hits take by which nothing is recorded: of throttled regions, and of
    /// return sites in vain. They go on until the probes have gone.
    cpu: f64,
    vain: f64,
    /// Nanoseconds of such hits so far.
    vain_before: f64,
    begin: Instant,
    ticked: Instant,
    /// When levels last changed.
    changed: Instant,
    /// When the next window is due, and how many there were.
    window_at: Instant,
    windows: u32,
    /// How long the next one is.
    window: Duration,
    /// When the last window began, after which the next is not due yet, and what hits by which nothing is recorded had taken
    /// when one was chosen last.
    looked: Option<Instant>,
    paced: u64,
    /// Seconds for which the probes of the last window locked each process.
    stalled: f64,
    /// What windows have taken of rtrace's CPU time since one was chosen last, with that for probes that are gone since.
    worked: Duration,
    /// Makes the kernel ready for windows.
    warmth: Warmth<'a>,
    /// Windows that are over, whose probes are on their way out.
    past: Vec<(HashSet<RegionId>, Closing)>,
    /// How many regions the next one has, and the first of them.
    in_window: usize,
    first_in_window: RegionId,
    /// Probes that are on their way out.
    closing: Closing,
    reported: Instant,
}

impl<'a> Governor<'a> {
    /// A governor that has not begun.
    pub fn new(context: GovernorContext<'a>) -> Governor<'a> {
        let now = Instant::now();
        Governor {
            controller: Controller::new(context.budget.share()),
            estimator: Estimator::default(),
            regions: BTreeMap::new(),
            fixed: BTreeMap::new(),
            meter: CpuMeter::default(),
            surcharge: Surcharge::new(context.costs, context.programs.calm_hit_times()),
            extra: 0.0,
            cpu: 0.0,
            vain: 0.0,
            vain_before: 0.0,
            begin: now,
            ticked: now,
            changed: now,
            window_at: now + WINDOW_PERIOD,
            windows: 0,
            window: WINDOW,
            looked: None,
            paced: 0,
            stalled: 0.0,
            worked: Duration::ZERO,
            warmth: Warmth::new(context.programs),
            past: Vec::new(),
            in_window: FIRST_IN_WINDOW,
            first_in_window: RegionId(0),
            closing: Closing::default(),
            reported: now,
            context,
        }
    }

    /// Governs until `is_over`, and switches recording off with the last window; gives when it did.
    ///
    /// # Errors
    /// A map of the programs cannot be read or written.
    pub fn run(mut self, is_over: &AtomicBool) -> Result<Timestamp, Error> {
        // Windows are short, and on a machine that is busy they would be long.
        let _ahead = host::run_first();
        self.adopt()?;
        self.meter.since_last(&self.pids());
        (self.begin, self.ticked) = (Instant::now(), Instant::now());
        self.paced = self.context.programs.throttled_cost()?;
        while !is_over.load(Ordering::Relaxed) {
            let tick = if self.changed.elapsed() < UNSETTLED { SHORT_TICK } else { TICK };
            let until_window = self.window_at.saturating_duration_since(Instant::now()).max(WINDOW);
            thread::sleep(tick.saturating_sub(self.ticked.elapsed()).min(until_window));
            if self.ticked.elapsed() >= tick {
                self.adopt()?;
                self.tick()?;
            }
            if self.closing.is_done() {
                self.bring_back()?;
            }
            let gone = self.past.extract_if(.., |(_, closing)| closing.is_done());
            self.worked += gone.map(|(_, closing)| closing.worked()).sum::<Duration>();
            if Instant::now() >= self.window_at && self.past.len() < MOST_PAST {
                match self.looked.take() {
                    Some(begin) => self.pace(begin)?,
                    None => self.look()?,
                }
            }
            if self.reported.elapsed() >= REPORT {
                self.report()?;
            }
        }
        self.context.programs.disarm()?;
        let disarmed = host::now();
        self.report()?;
        self.closing.finish();
        self.past.iter_mut().for_each(|(_, closing)| closing.finish());
        drop(self.warmth.into_probes());
        Ok(disarmed)
    }

    fn adopt(&mut self) -> Result<(), Error> {
        let placed: Vec<Governable> = self.context.inbox.try_iter().collect();
        for region in placed.iter().flat_map(|placed| &placed.fixed) {
            let cost = overhead::of_call(self.context.costs, region, true);
            self.fixed.insert(region.id, Fixed { cost, enters: 0, rate: 0.0 });
        }
        let mut left_out = Vec::new();
        for throttleable in placed.into_iter().flat_map(|placed| placed.throttleable) {
            let cost = |is_recorded| overhead::of_call(self.context.costs, &throttleable.region, is_recorded);
            let (full, count, id) = (cost(true), cost(false), throttleable.region.id);
            if !throttleable.is_placed {
                left_out.push(id);
            }
            let level = Level::Full;
            self.regions
                .insert(id, Governed { full, count, level, enters: 0, rate: 0.0, throttleable, is_innocent: false });
        }
        self.mark(&left_out, host::now())
    }

    fn living(&self) -> MutexGuard<'_, Living> {
        self.context.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pids(&self) -> Vec<u32> {
        self.living().pids.clone()
    }

    /// Measures what calls cost, and changes what has to be.
    fn tick(&mut self) -> Result<(), Error> {
        let time = self.ticked.elapsed().as_secs_f64();
        self.ticked = Instant::now();
        let pids = self.pids();
        let cpu = self.meter.since_last(&pids) as f64 / 1e9 / time;
        let weigh = |before: f64, now: f64| if before == 0.0 { now } else { before + WEIGHT * (now - before) };
        self.cpu = weigh(self.cpu, cpu);
        let vain = self.spent_in_vain()?;
        let more = vain - std::mem::replace(&mut self.vain_before, vain);
        self.vain = weigh(self.vain, more / 1e9 / time);
        let last = [self.regions.keys().next_back(), self.fixed.keys().next_back()].into_iter().flatten().max();
        let enters = self.context.programs.first_entries(last.map_or(0, |region| region.index() + 1));
        let changing = self.regions.iter_mut().map(|(id, region)| (id, &mut region.enters, &mut region.rate));
        let fixed = self.fixed.iter_mut().map(|(id, region)| (id, &mut region.enters, &mut region.rate));
        let mut all = 0;
        for (id, before, rate) in changing.chain(fixed) {
            let now = enters[id.index() % enters.len()];
            let calls = now.saturating_sub(std::mem::replace(before, now));
            *rate = weigh(*rate, calls as f64 / time);
            all += calls;
        }
        let GovernorContext { programs, exchange, .. } = &self.context;
        let stepped = programs.stepped_returns().saturating_sub(exchange.stepped_in_vain.load(Ordering::Relaxed));
        self.extra = weigh(self.extra, self.surcharge.since_last(programs.hit_times()?, stepped, all));
        let fixed = self.fixed.iter().map(|(&region, Fixed { cost, rate, .. })| Observed {
            region,
            level: Level::Full,
            calls: *rate,
            cost: *cost + self.extra,
            can_change: false,
        });
        let rates = self.estimator.rates();
        let changing = self.regions.iter().filter(|(_, region)| !region.is_innocent);
        let changing = changing.map(|(id, region)| self.observed(*id, region, &rates));
        let observed: Vec<Observed> = changing.chain(fixed).collect();
        let changes = self.controller.decide(self.begin.elapsed(), self.left_by_vain(), &observed);
        let of_level = |level| changes.iter().filter(move |change| change.1 == level).map(|change| change.0).collect();
        let (throttled, restored): (Vec<RegionId>, Vec<RegionId>) = (of_level(Level::Off), of_level(Level::Full));
        if !throttled.is_empty() {
            self.throttle(&throttled)?;
        }
        restored.chunks(1).try_for_each(|alone| self.restore(alone))
    }

    fn observed(&self, id: RegionId, region: &Governed, rates: &HashMap<RegionId, f64>) -> Observed {
        let calls = match region.level {
            Level::Off => rates.get(&id).copied().unwrap_or(f64::INFINITY),
            Level::Full => region.rate,
        };
        // Where its old probe is not gone yet, it would have two.
        let can_change = region.level == Level::Full || (self.closing.is_done() && !self.is_closing(id));
        Observed { region: id, level: region.level, calls, cost: region.full + self.extra, can_change }
    }

    /// What recorded calls cost now, in CPU seconds per second.
    fn recorded(&self) -> f64 {
        let cost = |region: &Governed| region.rate * (region.full + self.extra) / 1e9;
        let fixed = self.fixed.values().map(|region| region.rate * (region.cost + self.extra) / 1e9);
        self.regions.values().map(cost).chain(fixed).sum()
    }

    /// What tracing costs now, as a part of the programs' CPU time.
    fn overhead(&self) -> f64 {
        (self.recorded() + self.vain) / self.cpu.max(LEAST_CPU)
    }

    /// Nanoseconds that hits took so far by which nothing was recorded.
    fn spent_in_vain(&self) -> Result<f64, Error> {
        let GovernorContext { programs, exchange, costs, .. } = &self.context;
        let stepped = exchange.stepped_in_vain.load(Ordering::Relaxed) as f64;
        let emulated = exchange.in_vain.load(Ordering::Relaxed) as f64 - stepped;
        // What was measured is that of stacks with few calls.
        let spent = exchange.spent_in_vain.load(Ordering::Relaxed) as f64;
        let returns = emulated * overhead::of_return(costs, false) + stepped * overhead::of_return(costs, true) + spent;
        Ok(programs.throttled_cost()? as f64 + returns)
    }

    /// What will be left of the CPU time per second once such hits are over.
    fn left_by_vain(&self) -> f64 {
        controller::left_by_vain(self.cpu, self.vain)
    }

    /// Their hits do nothing from now on but to be counted in a first window, and their probes go.
    fn throttle(&mut self, ids: &[RegionId]) -> Result<(), Error> {
        let programs = self.context.programs;
        let time = host::now();
        // What these cost until their probes are gone is not that of windows.
        self.window_at = self.window_at.max(Instant::now() + WINDOW_PERIOD);
        programs.set_window(true);
        self.mark(ids, time)?;
        let (gone, mut all) = self.context.followed.take_out(&ids.iter().copied().collect());
        let is_innocent = |id: &RegionId| self.regions.get(id).is_some_and(|region| region.level == Level::Full);
        let innocent: Vec<RegionId> = all.iter().copied().filter(is_innocent).collect();
        self.mark(&innocent, time)?;
        for id in &innocent {
            self.regions.entry(*id).and_modify(|region| region.is_innocent = true);
        }
        self.closing.close(gone);
        thread::sleep(WINDOW);
        all.extend(ids);
        let window = self.end_window(time.0);
        self.take_in(window, &all)
    }

    /// These are throttled from now on; their probes are to go.
    fn mark(&mut self, ids: &[RegionId], time: Timestamp) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        for &id in ids {
            let Some(region) = self.regions.get(&id) else { continue };
            let cost = NonZeroU32::new(region.count as u32).unwrap_or(NonZeroU32::MIN);
            self.context.programs.throttle(id.0, cost)?;
            self.set_level(id, Level::Off, time);
        }
        self.estimator.throttle(ids.iter().copied(), time.0);
        self.changed = Instant::now();
        self.context.exchange.levels_changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Places the probes that others had to go with.
    fn bring_back(&mut self) -> Result<(), Error> {
        let mut files: BTreeMap<PathBuf, Vec<RegionId>> = BTreeMap::new();
        for (id, region) in self.regions.iter_mut().filter(|(_, region)| region.is_innocent) {
            region.is_innocent = false;
            files.entry(region.throttleable.path()).or_default().push(*id);
        }
        let groups: Vec<&[RegionId]> = files.values().flat_map(|ids| ids.chunks(MOST_BACK)).collect();
        groups.into_iter().try_for_each(|group| self.restore(group))
    }

    /// Their probes, which are of one file, are placed, and then they are recorded again.
    fn restore(&mut self, ids: &[RegionId]) -> Result<(), Error> {
        let GovernorContext { programs, followed, exchange, .. } = &self.context;
        let regions: Vec<&Throttleable> =
            ids.iter().filter_map(|id| self.regions.get(id)).map(|region| &region.throttleable).collect();
        // The program may end meanwhile, and its file with it: then there is nothing to restore.
        if followed.attach(|pids| attach::place_again(programs, pids, &regions)).is_err() {
            return Ok(());
        }
        exchange.levels_changed.store(true, Ordering::Relaxed);
        let time = host::now();
        for &id in ids {
            self.context.programs.restore(id.0)?;
            self.estimator.restore(id, time.0);
            self.set_level(id, Level::Full, time);
        }
        self.changed = Instant::now();
        Ok(())
    }

    fn set_level(&mut self, id: RegionId, to: Level, time: Timestamp) {
        let Some(region) = self.regions.get_mut(&id) else { return };
        let from = std::mem::replace(&mut region.level, to);
        region.rate = 0.0;
        let name = region.throttleable.region.name.clone();
        // Who does not listen any more does not want to know.
        let _ = self.context.outbox.send(Report::Level { time, region: id, name, from, to });
    }

    /// Counts calls of throttled regions for a moment.
    fn look(&mut self) -> Result<(), Error> {
        self.window_at = Instant::now() + WINDOW_PERIOD;
        let throttled = self.next_in_window();
        if throttled.is_empty() {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let (counted, worked) = timed(|| self.count_for_a_moment(throttled));
        self.worked += worked;
        counted
    }

    fn count_for_a_moment(&mut self, throttled: HashSet<RegionId>) -> Result<(), Error> {
        let programs = self.context.programs;
        let mut sites: BTreeMap<PathBuf, Vec<Site>> = BTreeMap::new();
        for region in throttled.iter().filter_map(|id| self.regions.get(id)) {
            sites.entry(region.throttleable.path()).or_default().push(region.throttleable.entry());
        }
        let pids = self.context.followed.pids();
        // The program may end meanwhile, and its file with it.
        let place = |(path, sites): (&PathBuf, &Vec<Site>)| {
            programs.attach(Role::Enter, path, &overlays::reaching(path, &pids), sites).ok()
        };
        // Else the first would be hit while the others wait for it.
        self.warmth.make_ready();
        let placing = Instant::now();
        let probes: Vec<Probes> = sites.iter().filter_map(place).collect();
        let placed = placing.elapsed();
        self.stalled = pauses::locked_by(throttled.len()).as_secs_f64();
        programs.set_window(true);
        let from = host::now().0;
        thread::sleep(self.window);
        let window = self.end_window(from);
        // As long as the probes are there, they are hit.
        let mut closing = Closing::default();
        closing.close_first(probes);
        self.take_in(window, &throttled)?;
        self.past.push((throttled, closing));
        let wider = if placed > PLACING { self.in_window / 2 } else { self.in_window * 2 };
        self.in_window = wider.clamp(1, MOST_IN_WINDOW);
        Ok(())
    }

    /// Chooses when the next window is due, by what was spent in and after the last one, which began then: by hits, and by
    /// placing and taking out probes, for which the processes wait and rtrace works.
    fn pace(&mut self, begin: Instant) -> Result<(), Error> {
        let spent = self.context.programs.throttled_cost()?;
        let hits = spent.saturating_sub(std::mem::replace(&mut self.paced, spent)) as f64 / 1e9;
        let placing = self.stalled * self.cpu + std::mem::take(&mut self.worked).as_secs_f64();
        let more = hits + placing;
        let budget = self.context.budget.share();
        let left = USED * budget - self.recorded() / self.cpu.max(LEAST_CPU);
        let share = left.max(WINDOWS_SHARE * budget).min(MOST_IN_WINDOWS);
        let pause = more / (share * self.left_by_vain().max(0.1));
        // Hits say something, placing says nothing. But half of the calls of few long windows say less than those of many short ones,
        // and only where the budget is not the limit there may be more.
        let spare = WINDOW_PERIOD.as_secs_f64() / pause.max(f64::MIN_POSITIVE);
        let longer = (placing / hits.max(f64::MIN_POSITIVE)).max(spare).clamp(0.5, 2.0);
        self.window = self.window.mul_f64(longer).clamp(WINDOW, LONGEST_WINDOW);
        let pause = Duration::from_secs_f64(pause.min(LONGEST_PERIOD.as_secs_f64())).max(WINDOW_PERIOD);
        // Evenly spread, so that windows do not beat with what the program does.
        self.windows += 1;
        let varied = (f64::from(self.windows) * GOLDEN_RATIO).fract();
        self.window_at = begin + pause.mul_f64(0.7 + varied * 0.6);
        Ok(())
    }

    /// Whether a probe of the region may still be there, from a window.
    fn is_closing(&self, id: RegionId) -> bool {
        self.past.iter().any(|(regions, closing)| regions.contains(&id) && !closing.is_done())
    }

    /// The throttled regions whose turn it is.
    fn next_in_window(&mut self) -> HashSet<RegionId> {
        let first = self.first_in_window;
        let of = self.regions.range(first..).chain(self.regions.range(..first));
        let throttled = of.filter(|(_, region)| region.level == Level::Off && !region.is_innocent);
        let throttled = throttled.filter(|(id, _)| !self.is_closing(**id));
        let most = MOST_SLOWED * self.left_by_vain().max(LEAST_CPU);
        let (mut chosen, mut slowed) = (HashSet::new(), 0.0);
        for (&id, region) in throttled {
            // What is not known yet is taken to be as much as as many such regions may be.
            let pace = self.estimator.pace(id).map(|pace| pace * region.count / 1e9);
            slowed += pace.unwrap_or(most / FIRST_IN_WINDOW as f64);
            if !chosen.is_empty() && (chosen.len() >= self.in_window || slowed > most) {
                self.first_in_window = id;
                break;
            }
            chosen.insert(id);
        }
        chosen
    }

    /// Ends a window, which began then.
    fn end_window(&self, from: u64) -> Window {
        self.context.programs.set_window(false);
        Window { from, to: host::now().0 }
    }

    /// Takes in what a window of these regions showed.
    fn take_in(&mut self, window: Window, regions: &HashSet<RegionId>) -> Result<(), Error> {
        // In this order, so that of a thread that has ended all is counted.
        let ended = std::mem::take(&mut self.living().ended);
        let counted = self.context.programs.counted_calls();
        let cost_of = |id| self.regions.get(&id).filter(|_| regions.contains(&id)).map(|region| region.count);
        self.estimator.add(&counted, window, cost_of);
        let gone: HashSet<u32> = ended.iter().map(|location| location.0).collect();
        let past = counted.iter().filter(|counted| gone.contains(&counted.key.location));
        self.context.programs.forget_counted(past)
    }

    fn report(&mut self) -> Result<(), Error> {
        self.reported = Instant::now();
        let _ = self.context.outbox.send(Report::Overhead(self.overhead()));
        let _ = self.context.outbox.send(Report::Estimates(self.estimator.estimates(host::now().0)));
        Ok(())
    }
}
