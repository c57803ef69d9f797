//! How long processes are left alone while probes are placed in them, and taken out: the kernel locks their memory for
//! each, and who hits another probe waits.

use std::thread;
use std::time::Duration;

use rtrace_model::Percent;

use crate::record::overhead;

/// For so long the kernel locks the memory of a process to place a probe, and again to take it out: between 15 and 50 us
/// were measured. A process that hits another probe meanwhile waits.
const LOCKED: Duration = Duration::from_micros(25);

/// For how long a process is locked by placing so many probes and taking them out again.
pub fn locked_by(sites: usize) -> Duration {
    LOCKED * 2 * u32::try_from(sites).unwrap_or(u32::MAX)
}

/// The part of the time for which probes of processes that run may be placed and taken out, at most and at least: with a small
/// budget, pauses would be long.
const MOST_TAKEN: f64 = 0.15;
const LEAST_TAKEN: f64 = 0.05;

/// At the end it is this part at least. With 5 %, an nginx with 847 functions waited 9 s for its end.
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

    /// The same at the end, for which somebody waits.
    pub fn at_end(budget: Percent) -> Pauses {
        Pauses { part: Pauses::within(budget).part.max(TAKEN_AT_END) }
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
    pub fn around<T>(self, work: impl FnOnce() -> T) -> T {
        let (done, worked) = timed(work);
        thread::sleep(self.beyond(worked));
        done
    }
}

/// What is done, and how much CPU time that took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = overhead::thread_time();
    let done = work();
    (done, Duration::from_nanos(overhead::thread_time() - begin))
}
