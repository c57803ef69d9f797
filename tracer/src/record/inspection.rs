//! Checks, while calls are recorded, that calls still hit the probes.
//!
//! A program, or a tool in it, may overwrite a probe or the code in front of it. Calls are missed then, and the kernel
//! reports nothing. A process that has ended cannot be checked any more, and the kernel reports its end only when its
//! memory is gone. So each process is checked from time to time, and all of them at the end. What is overwritten
//! shortly before a process ends goes unnoticed.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rtrace_bpf::Error;

use crate::record::family::Followed;
use crate::record::family::withdrawn::Overwritten;
use crate::record::pauses::timed;

/// Shortest time between two looks at a process.
const PERIOD: Duration = Duration::from_secs(2);

/// A look is followed by so many times the processor time that it took: a thousandth of a CPU is spent on looks.
const REST: u32 = 1000;

/// Whose turn it is to be looked at.
pub struct Turns {
    waiting: Vec<u32>,
    /// When their turns began.
    begun: Instant,
    due: Instant,
    /// The number of changes of code that were known then.
    changes: u64,
}

impl Turns {
    /// None has been looked at.
    pub fn new() -> Turns {
        let now = Instant::now();
        Turns { waiting: Vec::new(), begun: now, due: now + PERIOD, changes: 0 }
    }

    /// Looks at the next of all processes when it is time, and at each of them soon after more `changes` of code are
    /// known.
    pub fn go_on<T>(&mut self, changes: u64, all: impl FnOnce() -> Vec<u32>, look: impl FnOnce(u32) -> T) -> Option<T> {
        let now = Instant::now();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.waiting.clear();
            self.due = now;
        }
        if now < self.due {
            return None;
        }
        if self.waiting.is_empty() {
            self.waiting = all();
            self.begun = now;
        }
        let (found, took) = timed(|| self.waiting.pop().map(look));
        self.due = now + took.saturating_mul(REST);
        if self.waiting.is_empty() {
            self.due = self.due.max(self.begun + PERIOD);
        }
        found
    }
}

/// Probes in processes, by device and inode of their files, and offset.
type ProbedSites = HashSet<(u32, (u64, u64), u64)>;

/// Return sites of a file that a process has lost.
pub struct LostSites {
    /// The process.
    pub pid: u32,
    /// Device and inode of the file.
    pub file: (u64, u64),
    /// The file as the process sees it.
    pub path: PathBuf,
    /// File offsets, in bytes.
    pub offsets: Vec<u64>,
}

/// Looks at processes in turn.
pub struct Inspection {
    told: ProbedSites,
    turns: Turns,
}

impl Inspection {
    /// None has been looked at.
    pub fn new() -> Inspection {
        Inspection { told: HashSet::new(), turns: Turns::new() }
    }

    /// Looks at the next process when it is time; gives the probes that calls were not known to miss.
    ///
    /// # Errors
    /// As [`Followed::overwritten`].
    pub fn go_on(&mut self, followed: &Followed<'_>) -> Result<Vec<Overwritten>, Error> {
        let turn = self.turns.go_on(followed.changes(), || followed.inspected(), |pid| followed.overwritten(pid));
        let found = turn.transpose()?;
        Ok(self.untold(found.into_iter().flatten().chain(followed.take_overwritten())))
    }

    /// Looks at all processes that are there at the end.
    ///
    /// # Errors
    /// As [`Followed::overwritten`].
    pub fn finish(&mut self, followed: &Followed<'_>) -> Result<Vec<Overwritten>, Error> {
        let mut found = Vec::new();
        for pid in followed.inspected() {
            found.extend(followed.overwritten(pid)?);
        }
        followed.give_up_withdrawn();
        Ok(self.untold(found.into_iter().chain(followed.take_overwritten())))
    }

    /// The same without what was told before.
    fn untold(&mut self, found: impl IntoIterator<Item = Overwritten>) -> Vec<Overwritten> {
        let mut found: Vec<_> = found.into_iter().collect();
        for Overwritten { pid, library, offsets } in &mut found {
            offsets.retain(|&offset| self.told.insert((*pid, (library.device, library.inode), offset)));
        }
        found
    }

    /// Those of these probes, which are gone, that calls were not known to miss, if there are any.
    pub fn learn(&mut self, mut gone: LostSites) -> Option<LostSites> {
        gone.offsets.retain(|&offset| self.told.insert((gone.pid, gone.file, offset)));
        (!gone.offsets.is_empty()).then_some(gone)
    }
}
