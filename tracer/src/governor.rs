//! Keeps the cost of tracing below a budget: watches what calls cost, and takes probes out and places
//! them again, as `controller` decides. Of what goes unseen, `estimate` says how much it was.
//!
//! It runs on a thread of its own, because the kernel lets it wait for each link that it closes. A
//! region is lowered in an order that leaves no call counted twice or not at all: the probe that counts
//! is placed, then listened to instead of the other, and only then does that go. The returns of calls that
//! ran then are still detected.

mod controller;
mod estimate;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_bpf::{Counted, Error, Probes, Programs, Role, Site};
use rtrace_model::{CallCost, Estimate, Level, Percent, Region, RegionId, Timestamp};

use self::controller::{Controller, Observed};
pub use self::estimate::Ended;
use self::estimate::{Estimator, Window};
use crate::attach::{Apart, detach};
use crate::host;
use crate::overhead::{self, CpuMeter};

/// Time between two decisions.
const TICK: Duration = Duration::from_millis(100);

/// Length of a window in which a region without probes has one.
const WINDOW: Duration = Duration::from_millis(1);

/// A window goes on for so long while threads do not run that were called in before.
const LONGEST_WINDOW: Duration = Duration::from_millis(20);

/// Time between the two windows of a look, on average.
const PAUSE: Duration = Duration::from_micros(1_500);

/// Windows take this part of the budget at most, and looks come this often at most.
const WINDOWS_SHARE: f64 = 0.1;
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// Its multiples, without their whole part, are spread evenly.
const GOLDEN_RATIO: f64 = 0.618_034;

/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);

/// Weight of the last tick in what is taken to go on.
const WEIGHT: f64 = 0.5;

/// What the governor tells.
pub enum Told {
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

/// What the governor is given.
pub struct Given<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// The processes whose calls are traced.
    pub pids: &'a [u32],
    /// What calls cost here.
    pub costs: &'a [CallCost],
    /// The budget.
    pub budget: Percent,
    /// Regions whose cost counts.
    pub inbox: Receiver<Governable>,
    /// Whom it tells.
    pub outbox: Sender<Told>,
    /// What runs now.
    pub living: &'a Mutex<Living>,
    /// Set where other functions are recorded than before, as return sites are to follow.
    pub levels_changed: &'a AtomicBool,
}

/// Regions with probes.
pub struct Governable {
    /// Those that come under its control.
    pub apart: Vec<Apart>,
    /// The others.
    pub fixed: Vec<Region>,
}

/// What the recorder knows of processes and threads.
#[derive(Debug, Default)]
pub struct Living {
    /// The processes that are traced now.
    pub pids: Vec<u32>,
    /// Threads that have ended since this was last looked at.
    pub ended: Vec<Ended>,
}

/// How it was when the governor left off.
pub struct Left {
    /// The probes that are in place.
    pub probes: Vec<Probes>,
    /// When recording was switched off.
    pub disarmed: Timestamp,
}

/// A region that cannot be lowered: its probes go only with those of others.
struct Fixed {
    cost: f64,
    enters: u64,
    rate: f64,
}

struct Governed {
    apart: Apart,
    level: Level,
    /// The probe that counts, while it is in place.
    counting: Option<Probes>,
    full: f64,
    count: f64,
    /// Enters seen, and how many per second of late.
    enters: u64,
    rate: f64,
}

/// The governor.
pub struct Governor<'a> {
    given: Given<'a>,
    controller: Controller,
    estimator: Estimator,
    regions: BTreeMap<RegionId, Governed>,
    fixed: BTreeMap<RegionId, Fixed>,
    meter: CpuMeter,
    /// CPU seconds per second, and the cost of tracing in these.
    cpu: f64,
    begin: Instant,
    ticked: Instant,
    looked: Instant,
    looks: u32,
    reported: Instant,
}

impl<'a> Governor<'a> {
    /// A governor that has not begun.
    pub fn new(given: Given<'a>) -> Governor<'a> {
        let now = Instant::now();
        Governor {
            controller: Controller::new(given.budget.share()),
            estimator: Estimator::default(),
            regions: BTreeMap::new(),
            fixed: BTreeMap::new(),
            meter: CpuMeter::default(),
            cpu: 0.0,
            begin: now,
            ticked: now,
            looked: now,
            looks: 0,
            reported: now,
            given,
        }
    }

    /// Governs until `is_over`, and switches recording off with the last window.
    ///
    /// # Errors
    /// A map of the programs cannot be read or written.
    pub fn run(mut self, is_over: &AtomicBool) -> Result<Left, Error> {
        self.adopt();
        self.meter.since_last(&self.pids());
        (self.begin, self.ticked) = (Instant::now(), Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            self.adopt();
            self.tick()?;
            if self.looked.elapsed() >= self.look_period() {
                self.look()?;
            }
            if self.reported.elapsed() >= REPORT {
                self.report()?;
            }
        }
        let disarmed = self.look_and(true)?;
        self.report()?;
        let regions = self.regions.into_values();
        let probes = regions.flat_map(|region| region.apart.probes.into_iter().chain(region.counting)).collect();
        Ok(Left { probes, disarmed })
    }

    fn adopt(&mut self) {
        let placed: Vec<Governable> = self.given.inbox.try_iter().collect();
        for region in placed.iter().flat_map(|placed| &placed.fixed) {
            let cost = overhead::of_call(self.given.costs, region, true);
            self.fixed.insert(region.id, Fixed { cost, enters: 0, rate: 0.0 });
        }
        for apart in placed.into_iter().flat_map(|placed| placed.apart) {
            let cost = |is_recorded| overhead::of_call(self.given.costs, &apart.region, is_recorded);
            let governed = Governed {
                full: cost(true),
                count: cost(false),
                level: Level::Full,
                counting: None,
                enters: 0,
                rate: 0.0,
                apart,
            };
            self.regions.insert(governed.apart.region.id, governed);
        }
    }

    fn living(&self) -> MutexGuard<'_, Living> {
        self.given.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pids(&self) -> Vec<u32> {
        self.living().pids.clone()
    }

    fn look_period(&self) -> Duration {
        let windows = 2 * WINDOW;
        let period = LOOK_PERIOD.max(windows.div_f64(WINDOWS_SHARE * self.given.budget.share()));
        period.mul_f64(0.7 + self.varied() * 0.6)
    }

    /// Evenly from 0 to 1 over all looks, so that these do not beat with what the program does.
    fn varied(&self) -> f64 {
        (f64::from(self.looks) * GOLDEN_RATIO).fract()
    }

    /// Measures what calls cost, and changes what has to be.
    fn tick(&mut self) -> Result<(), Error> {
        let time = self.ticked.elapsed().as_secs_f64();
        self.ticked = Instant::now();
        let pids = self.pids();
        let cpu = self.meter.since_last(&pids) as f64 / 1e9 / time;
        let weigh = |before: f64, now: f64| if before == 0.0 { now } else { before + WEIGHT * (now - before) };
        self.cpu = weigh(self.cpu, cpu);
        let last = [self.regions.keys().next_back(), self.fixed.keys().next_back()].into_iter().flatten().max();
        let enters = self.given.programs.enters(last.map_or(0, |region| region.0 + 1))?;
        let changing = self.regions.iter_mut().map(|(id, region)| (id, &mut region.enters, &mut region.rate));
        let fixed = self.fixed.iter_mut().map(|(id, region)| (id, &mut region.enters, &mut region.rate));
        for (id, before, rate) in changing.chain(fixed) {
            let now = enters.get(id.index()).copied().unwrap_or(*before);
            let calls = now.saturating_sub(std::mem::replace(before, now));
            *rate = weigh(*rate, calls as f64 / time);
        }
        let fixed = self.fixed.iter().map(|(&region, Fixed { cost, rate, .. })| Observed {
            region,
            level: Level::Full,
            calls: *rate,
            full: *cost,
            count: *cost,
            can_change: false,
        });
        let changing = self.regions.iter().map(|(id, region)| self.observed(*id, region));
        let observed: Vec<Observed> = changing.chain(fixed).collect();
        let changes = self.controller.decide(self.begin.elapsed(), self.cpu, &observed);
        let (lowered, raised): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|&(region, to)| self.is_lower(region, to));
        if !lowered.is_empty() {
            self.lower(&lowered)?;
        }
        raised.into_iter().try_for_each(|(region, to)| self.raise(region, to))
    }

    fn observed(&self, id: RegionId, region: &Governed) -> Observed {
        let calls = match region.level {
            Level::Off => self.estimator.rate(id).unwrap_or(f64::INFINITY),
            Level::Full | Level::Count => region.rate,
        };
        Observed { region: id, level: region.level, calls, full: region.full, count: region.count, can_change: true }
    }

    fn is_lower(&self, region: RegionId, to: Level) -> bool {
        self.regions.get(&region).is_some_and(|region| region.level == Level::Full || to == Level::Off)
    }

    /// What tracing costs now, as a part of the programs' CPU time.
    fn overhead(&self) -> f64 {
        let cost = |region: &Governed| {
            region.rate * if region.level == Level::Full { region.full } else { region.count } / 1e9
        };
        let fixed = self.fixed.values().map(|region| region.rate * region.cost / 1e9);
        self.regions.values().map(cost).chain(fixed).sum::<f64>() / self.cpu.max(1e-9)
    }

    fn lower(&mut self, changes: &[(RegionId, Level)]) -> Result<(), Error> {
        let programs = self.given.programs;
        let mut window = Window { number: programs.begin_window(), from: host::now().0, to: 0 };
        let mut lowered = Vec::new();
        for &(id, to) in changes {
            let Some(region) = self.regions.get_mut(&id) else { continue };
            if region.counting.is_none() {
                // The program may end meanwhile, and its file with it: then there is nothing to lower.
                let placed =
                    place_counting(programs, self.given.pids, &region.apart.path(), &[region.apart.counting_site()]);
                let Ok(probes) = placed else { continue };
                region.counting = Some(probes);
            }
            programs.set_counted(id.0, true)?;
            lowered.push((id, to));
        }
        self.given.levels_changed.store(true, Ordering::Relaxed);
        let time = host::now();
        // They give a first window.
        let ids: Vec<RegionId> = lowered.iter().map(|&(id, _)| id).collect();
        self.wait_while(|counted, estimator| estimator.misses(counted, window.number, &ids))?;
        let mut gone = Vec::new();
        window.to = host::now().0;
        for &(id, to) in &lowered {
            let Some(region) = self.regions.get_mut(&id) else { continue };
            if region.level == Level::Full {
                gone.append(&mut region.apart.probes);
            }
            if to == Level::Off {
                gone.extend(region.counting.take());
            }
        }
        detach(gone);
        self.take_in(window, |id| lowered.contains(&(id, Level::Off)))?;
        for (id, to) in lowered {
            if to == Level::Off {
                self.estimator.is_off(id, window.to);
            }
            self.set_level(id, to, time);
        }
        Ok(())
    }

    fn raise(&mut self, id: RegionId, to: Level) -> Result<(), Error> {
        let (programs, pids) = (self.given.programs, self.given.pids);
        let Some(region) = self.regions.get_mut(&id) else { return Ok(()) };
        let was_off = region.level == Level::Off;
        let mut window = Window { number: programs.begin_window(), from: 0, to: 0 };
        if was_off {
            let site = region.apart.counting_site();
            let Ok(probes) = place_counting(programs, pids, &region.apart.path(), &[site]) else { return Ok(()) };
            region.counting = Some(probes);
            window.from = host::now().0;
            self.wait(window.number, |of| of == id)?;
        }
        let Some(region) = self.regions.get_mut(&id) else { return Ok(()) };
        let mut gone = None;
        let time = host::now();
        if to == Level::Full {
            self.given.levels_changed.store(true, Ordering::Relaxed);
            let Ok(probes) = region.apart.place(programs, pids) else { return Ok(()) };
            region.apart.probes = probes;
            programs.set_counted(id.0, false)?;
            gone = region.counting.take();
        }
        window.to = host::now().0;
        detach(gone.into_iter().collect());
        self.take_in(window, |of| was_off && of == id)?;
        self.estimator.is_seen_again(id);
        self.set_level(id, to, time);
        Ok(())
    }

    fn set_level(&mut self, id: RegionId, to: Level, time: Timestamp) {
        let Some(region) = self.regions.get_mut(&id) else { return };
        let from = std::mem::replace(&mut region.level, to);
        region.rate = 0.0;
        let name = region.apart.region.name.clone();
        // Who does not listen any more does not want to know.
        let _ = self.given.outbox.send(Told::Level { time, region: id, name, from, to });
    }

    /// Has a look at all regions without probes.
    fn look(&mut self) -> Result<(), Error> {
        self.look_and(false).map(|_| ())
    }

    /// Has a look; if it `is_last`, nothing is recorded after it. Returns when it ended.
    ///
    /// A look is two windows, so near to each other that a loop seldom begins anew between them: what
    /// callers count themselves then tells how fast they call. They are not always so far apart: what
    /// a loop that has begun anew tells depends on it.
    fn look_and(&mut self, is_last: bool) -> Result<Timestamp, Error> {
        self.looked = Instant::now();
        self.looks += 1;
        let programs = self.given.programs;
        let off: HashSet<RegionId> =
            self.regions.iter().filter(|(_, region)| region.level == Level::Off).map(|(id, _)| *id).collect();
        thread::scope(|scope| {
            let (window, probes) = self.window(&off)?;
            scope.spawn(move || detach(probes));
            thread::sleep(PAUSE.mul_f64(self.varied() * 2.0));
            self.take_in(window, |id| off.contains(&id))?;
            let (mut window, probes) = self.window(&off)?;
            if is_last {
                programs.disarm()?;
                window.to = host::now().0;
            }
            detach(probes);
            self.take_in(window, |id| off.contains(&id))?;
            Ok(Timestamp(window.to))
        })
    }

    /// A window of regions without probes, and its probes, which are still in place.
    fn window(&self, off: &HashSet<RegionId>) -> Result<(Window, Vec<Probes>), Error> {
        let programs = self.given.programs;
        let mut sites: BTreeMap<PathBuf, Vec<Site>> = BTreeMap::new();
        for region in off.iter().filter_map(|id| self.regions.get(id)) {
            sites.entry(region.apart.path()).or_default().push(region.apart.counting_site());
        }
        let number = programs.begin_window();
        let place = |(path, sites): (&PathBuf, &Vec<Site>)| place_counting(programs, self.given.pids, path, sites).ok();
        let probes: Vec<Probes> = sites.iter().filter_map(place).collect();
        let from = host::now().0;
        if !probes.is_empty() {
            self.wait(number, |id| off.contains(&id))?;
        }
        Ok((Window { number, from, to: host::now().0 }, probes))
    }

    /// Waits until a window has shown what it can.
    fn wait(&self, window: u32, is_of_window: impl Fn(RegionId) -> bool) -> Result<(), Error> {
        self.wait_while(|counted, estimator| estimator.waits_for(counted, window, &is_of_window))
    }

    /// Waits as long as a window is, and on while what was counted is not enough.
    fn wait_while(&self, is_too_little: impl Fn(&[Counted], &Estimator) -> bool) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            thread::sleep(WINDOW);
            let counted = self.given.programs.counted_calls()?;
            if !is_too_little(&counted, &self.estimator) || begin.elapsed() >= LONGEST_WINDOW {
                return Ok(());
            }
        }
    }

    /// Takes in what was counted until the end of a window of some regions.
    fn take_in(&mut self, window: Window, is_of_window: impl Fn(RegionId) -> bool) -> Result<(), Error> {
        // In this order, so that of a thread that has ended all is counted.
        let ended = std::mem::take(&mut self.living().ended);
        let counted = self.given.programs.counted_calls()?;
        self.estimator.count(&counted);
        let gone: HashSet<u32> = ended.iter().map(|thread| thread.location.0).collect();
        let (past, running): (Vec<_>, Vec<_>) =
            counted.into_iter().partition(|place| gone.contains(&place.key.location));
        ended.iter().for_each(|thread| self.estimator.end(thread));
        self.given.programs.forget_counted(past.iter().map(|place| &place.key))?;
        let cost_of = |id| self.regions.get(&id).filter(|_| is_of_window(id)).map(|region| region.count);
        self.estimator.add(&running, window, cost_of);
        Ok(())
    }

    fn report(&mut self) -> Result<(), Error> {
        self.reported = Instant::now();
        self.estimator.count(&self.given.programs.counted_calls()?);
        let _ = self.given.outbox.send(Told::Overhead(self.overhead()));
        let _ = self.given.outbox.send(Told::Estimates(self.estimator.estimates()));
        Ok(())
    }
}

fn place_counting(programs: &Programs, pids: &[u32], path: &Path, sites: &[Site]) -> Result<Probes, Error> {
    programs.attach(Role::Enter, path, pids, sites)
}
