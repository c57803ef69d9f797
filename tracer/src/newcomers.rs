//! Libraries that traced processes load while they are recorded, by a path that nobody could know.
//!
//! A thread looks at what the processes map a few times a second, so that neither the traced
//! program nor the reader of the rings waits for it. Probes then come late: the time from the last
//! look that did not show the library to their placing is a blind window, and is recorded as one.

use std::collections::HashSet;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rtrace_model::{LibraryId, RegionId, Timestamp};

use crate::plan::{self, Plan};
use crate::{host, target};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// Libraries that were loaded since the last look.
pub struct Newcomer {
    /// Their probes.
    pub plan: Plan,
    /// The last look that did not show them.
    pub since: Timestamp,
}

/// Knows which libraries are wanted and which are known.
pub struct Newcomers {
    patterns: Vec<String>,
    options: plan::Options,
    known: HashSet<(u64, u64)>,
    next_library: LibraryId,
    next_region: RegionId,
}

impl Newcomers {
    /// Whatever the patterns name and `plan` does not have yet.
    pub fn beyond(plan: &Plan, patterns: &[String], options: plan::Options) -> Newcomers {
        let regions: usize = plan.libraries.iter().map(|library| library.regions.len()).sum();
        Newcomers {
            patterns: patterns.to_vec(),
            options,
            known: plan.libraries.iter().map(|library| (library.library.device, library.library.inode)).collect(),
            next_library: LibraryId(plan.libraries.len() as u32),
            next_region: RegionId(regions as u32),
        }
    }

    /// Looks until the watch is dropped.
    pub fn watch<'scope>(self, scope: &'scope Scope<'scope, '_>, pids: &[u32]) -> Watch {
        let (found, receiver) = unbounded();
        let (processes, changes) = bounded(1);
        let pids = pids.to_vec();
        scope.spawn(move || self.look_until_closed(pids, &changes, &found));
        Watch { found: receiver, processes }
    }

    fn look_until_closed(mut self, mut pids: Vec<u32>, changes: &Receiver<Vec<u32>>, found: &Sender<Newcomer>) {
        let mut since = host::now();
        loop {
            match changes.recv_timeout(PERIOD) {
                Ok(living) => pids = living,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = host::now();
            if let Some(plan) = self.look(&pids) {
                // Nobody listens any more once the recording is over.
                let _ = found.send(Newcomer { plan, since });
            }
            since = now;
        }
    }

    fn look(&mut self, pids: &[u32]) -> Option<Plan> {
        let target = target::newcomers(pids, &self.patterns, &mut self.known, self.next_library);
        if target.libraries.is_empty() {
            return None;
        }
        let plan = plan::plan(target.libraries, target.hazards, &self.options, self.next_region);
        self.next_library.0 += plan.libraries.len() as u32;
        self.next_region.0 += plan.libraries.iter().map(|library| library.regions.len() as u32).sum::<u32>();
        Some(plan)
    }
}

/// The recorder's end of the thread that looks.
pub struct Watch {
    found: Receiver<Newcomer>,
    processes: Sender<Vec<u32>>,
}

impl Watch {
    /// What was found since the last call.
    pub fn found(&self) -> impl Iterator<Item = Newcomer> {
        self.found.try_iter()
    }

    /// The processes to look at from now on.
    pub fn set_processes(&self, pids: Vec<u32>) {
        // While the last list is not taken yet, the next tick brings a newer one.
        let _ = self.processes.try_send(pids);
    }
}
