//! How long processes are left alone while probes are placed in them, and taken out: the kernel locks their memory for
//! each, and who hits another probe waits.

use std::thread;
use std::time::{Duration, Instant};

use rtrace_model::Percent;

use crate::record::overhead::{self, CpuMeter};

/// For so long the kernel locks the memory of a process to place a probe, and again to take it out: between 15 and 50 us
/// were measured. A process that hits another probe meanwhile waits.
const LOCKED: Duration = Duration::from_micros(25);

/// For how long a process is locked by placing so many probes and taking them out again.
pub fn locked_by(sites: usize) -> Duration {
    LOCKED * 2 * u32::try_from(sites).unwrap_or(u32::MAX)
}

/// The part of the time for which probes of processes that run may be placed and taken out, at most and at least: with a small
/// budget, pauses would be long. At 15 % a redis kept 72 % of its requests while rtrace attached, at 8 % 83 %.
const MOST_TAKEN: f64 = 0.08;
const LEAST_TAKEN: f64 = 0.05;

/// At the end it is this part. With 5 %, an nginx with 847 functions waited 9 s for its end.
const TAKEN_AT_END: f64 = 0.1;

/// What is placed may be hit a million times a second: it is looked at so often.
const UNWATCHED: Duration = Duration::from_millis(2);

/// Pauses in which processes are left alone between probes that are placed or taken out.
#[derive(Clone, Copy)]
pub struct Pauses {
    part: f64,
}

impl Pauses {
    /// Those that a budget leaves.
    pub fn within(budget: Percent) -> Pauses {
        Pauses { part: budget.share().clamp(LEAST_TAKEN, MOST_TAKEN) }
    }

    /// Those at the end, for which somebody waits.
    pub fn at_end() -> Pauses {
        Pauses { part: TAKEN_AT_END }
    }

    /// How long the processes are left alone where they were kept from their work for so long.
    pub fn after(self, taken: Duration) -> Duration {
        taken.div_f64(self.part)
    }

    /// Leaves the processes alone after so much work, and looks at them at the end and now and then.
    pub fn watched(self, worked: Duration, mut look: impl FnMut()) {
        let mut rest = self.beyond(worked);
        while !rest.is_zero() {
            let slice = rest.min(UNWATCHED);
            thread::sleep(slice);
            rest -= slice;
            look();
        }
    }

    fn beyond(self, worked: Duration) -> Duration {
        self.after(worked).saturating_sub(worked)
    }

    /// Does this, and leaves the processes alone: they wait for this thread at most as long as it works.
    pub fn around<T>(self, busy: &mut Busy<'_>, work: impl FnOnce() -> T) -> T {
        let (done, worked) = timed(work);
        thread::sleep(self.beyond(worked.mul_f64(busy.part())));
        done
    }
}

/// Work that locks the memory of processes may take so many seconds without a pause.
const AT_ONCE: f64 = 0.005;

/// How busy processes are is measured over so long at least.
const MEASURED: Duration = Duration::from_millis(10);

/// Weight of what a site took last in what the next is expected to take.
const WEIGHT: f64 = 0.1;

/// How busy processes are. Who does not run does not wait for a lock.
pub struct Busy<'a> {
    pids: &'a [u32],
    meter: CpuMeter,
    /// The part of one CPU that they used when it was measured, at most 1.
    part: f64,
    measured: Instant,
}

impl<'a> Busy<'a> {
    /// These processes, which are taken to be busy all the time until that is measured.
    pub fn new(pids: &'a [u32]) -> Busy<'a> {
        let mut meter = CpuMeter::default();
        meter.since_last(pids);
        Busy { pids, meter, part: 1.0, measured: Instant::now() }
    }

    /// The part of one CPU that they use, at most 1.
    pub fn part(&mut self) -> f64 {
        let passed = self.measured.elapsed();
        if passed >= MEASURED {
            let used = Duration::from_nanos(self.meter.since_last(self.pids));
            self.part = used.div_duration_f64(passed).min(1.0);
            self.measured = Instant::now();
        }
        self.part
    }
}

/// The pace of work that several threads do, of which each piece is known to have taken its time only when it is done.
pub struct Pace<'a> {
    pauses: Pauses,
    busy: Busy<'a>,
    /// Seconds of work that may be done now, and since when. What has begun is taken off, so it may be below 0.
    left: f64,
    since: Instant,
    /// Seconds that a site is expected to take.
    of_site: f64,
}

impl<'a> Pace<'a> {
    /// The pace that these pauses allow in these processes.
    pub fn new(pauses: Pauses, pids: &'a [u32]) -> Pace<'a> {
        let (busy, of_site) = (Busy::new(pids), LOCKED.as_secs_f64());
        Pace { pauses, busy, left: AT_ONCE, since: Instant::now(), of_site }
    }

    /// So many sites are next. Gives how many seconds these are expected to take, and how long the processes are left alone before.
    pub fn begin(&mut self, sites: usize) -> (f64, Duration) {
        let busy = self.busy.part();
        let since = std::mem::replace(&mut self.since, Instant::now());
        let earned = (self.since - since).as_secs_f64() * self.pauses.part / busy.max(self.pauses.part);
        self.left = (self.left + earned).min(AT_ONCE);
        self.take(sites, busy)
    }

    fn take(&mut self, sites: usize, busy: f64) -> (f64, Duration) {
        let expected = self.of_site * sites as f64;
        self.left -= expected;
        let pause = self.pauses.after(Duration::from_secs_f64((-self.left).max(0.0))).mul_f64(busy);
        (expected, pause)
    }

    /// They are done, and took this CPU time.
    pub fn end(&mut self, sites: usize, expected: f64, worked: Duration) {
        let worked = worked.as_secs_f64();
        self.left += expected - worked;
        self.of_site += WEIGHT * (worked / sites.max(1) as f64 - self.of_site);
    }
}

/// What is done, and how much CPU time that took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = overhead::thread_time();
    let done = work();
    (done, Duration::from_nanos(overhead::thread_time() - begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_is_taken_off_and_what_took_longer_is_made_up_for() {
        let mut pace = Pace::new(Pauses { part: 0.1 }, &[]);
        let rounded = |(expected, pause): (f64, Duration)| ((expected * 1e6).round(), pause.as_micros());
        assert_eq!(rounded(pace.take(200, 0.5)), (5_000.0, 0));
        assert_eq!(rounded(pace.take(40, 0.5)), (1_000.0, 5_000));
        pace.end(40, 0.001, Duration::from_millis(3));
        assert_eq!(rounded(pace.take(0, 0.5)), (0.0, 15_000));
        assert_eq!((pace.of_site * 1e6).round(), 30.0);
    }

    #[test]
    fn who_does_not_run_is_not_busy() {
        let mut busy = Busy::new(&[]);
        assert_eq!(busy.part, 1.0, "not measured yet");
        thread::sleep(MEASURED);
        assert_eq!(busy.part(), 0.0);
    }
}
