//! Checks, while calls are recorded, that calls still hit the probes.
//!
//! A program, or a tool in it, may overwrite a probe or the code in front of it. Calls are missed then, and the kernel
//! reports nothing. A process that has ended cannot be checked any more, and the kernel reports its end only when its
//! memory is gone. So each process is checked from time to time, and all of them at the end. What is overwritten
//! shortly before a process ends goes unnoticed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rtrace_model::LibraryId;
use rustix::time::{ClockId, clock_gettime};

use crate::followed::{Followed, Overwritten};

/// Shortest time between two looks at a process.
const PERIOD: Duration = Duration::from_secs(2);

/// A look is followed by so many times the processor time that it took: a thousandth of a CPU is spent on looks.
const REST: u32 = 1000;

/// Looks at processes in turn.
pub struct Inspection {
    told: HashSet<(u32, LibraryId, u64)>,
    /// Whose turn comes.
    waiting: Vec<u32>,
    /// When their turns began.
    begun: Instant,
    due: Instant,
}

impl Inspection {
    /// None has been looked at.
    pub fn new() -> Inspection {
        let now = Instant::now();
        Inspection { told: HashSet::new(), waiting: Vec::new(), begun: now, due: now + PERIOD }
    }

    /// Looks at the next process when it is time; gives the probes that calls were not known to miss. `named`: as for
    /// [`Followed::inspected`].
    pub fn go_on(&mut self, followed: &Followed<'_>, named: &[u32]) -> Vec<Overwritten> {
        let now = Instant::now();
        if now < self.due {
            return Vec::new();
        }
        if self.waiting.is_empty() {
            self.waiting = followed.inspected(named);
            self.begun = now;
        }
        let before = processor_time();
        let found = self.waiting.pop().map(|pid| self.look(followed, pid)).unwrap_or_default();
        self.due = now + (processor_time().saturating_sub(before)).saturating_mul(REST);
        if self.waiting.is_empty() {
            self.due = self.due.max(self.begun + PERIOD);
        }
        found
    }

    /// Looks at all processes that are there at the end.
    pub fn finish(&mut self, followed: &Followed<'_>, named: &[u32]) -> Vec<Overwritten> {
        followed.inspected(named).into_iter().flat_map(|pid| self.look(followed, pid)).collect()
    }

    fn look(&mut self, followed: &Followed<'_>, pid: u32) -> Vec<Overwritten> {
        let mut found = followed.overwritten(pid);
        for Overwritten { library, offsets, .. } in &mut found {
            offsets.retain(|&offset| self.told.insert((pid, library.id, offset)));
        }
        found
    }
}

/// What this thread has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
