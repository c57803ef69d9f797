//! Libraries that traced processes load while they are recorded, by a path that nobody could know.
//!
//! The kernel tells every mapping with its time, and a thread of its own plans the probes, so that
//! neither the traced program nor the reader of the rings waits for it. Probes then come late: the
//! time from the mapping to their placing is a blind window, and is recorded as one.

use std::collections::HashSet;
use std::io;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use rtrace_model::{LibraryId, RegionId, Timestamp};
use rtrace_symbolizer::select;

use crate::host;
use crate::perf::mappings::{Mapping, Mappings};
use crate::plan::{self, Plan};
use crate::target::{self, Target};

/// Longest time without a look at what the recorder says.
const PERIOD: Duration = Duration::from_millis(20);

/// A process that maps something may be a child of which the recorder has not heard yet; it does
/// within this time.
const UNTIL_KNOWN_NS: u64 = 50_000_000;

/// Libraries that were loaded while recording.
pub struct Newcomer {
    /// Their probes.
    pub plan: Plan,
    /// When they were loaded, or a time shortly before.
    pub since: Timestamp,
}

/// Knows which libraries are wanted and which are known.
pub struct Newcomers {
    patterns: Vec<String>,
    /// Whether every mapping of the processes is told.
    tells_mappings: bool,
    options: plan::Options,
    known: HashSet<(u64, u64)>,
    next_library: LibraryId,
    next_region: RegionId,
}

impl Newcomers {
    /// Whatever the patterns name and `plan` does not have yet; `tells_mappings`: all that is mapped
    /// executable is [told](Lookout::mapped), too.
    pub fn beyond(plan: &Plan, patterns: &[String], options: plan::Options, tells_mappings: bool) -> Newcomers {
        let regions: usize = plan.libraries.iter().map(|library| library.regions.len()).sum();
        Newcomers {
            patterns: patterns.to_vec(),
            tells_mappings,
            options,
            known: plan.libraries.iter().map(|library| (library.library.device, library.library.inode)).collect(),
            next_library: LibraryId(plan.libraries.len() as u32),
            next_region: RegionId(regions as u32),
        }
    }

    /// Which libraries are wanted.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Looks until the lookout is dropped.
    ///
    /// # Errors
    /// The kernel does not tell us of mappings.
    pub fn look_out<'scope>(self, scope: &'scope Scope<'scope, '_>, pids: &[u32]) -> io::Result<Lookout> {
        let mappings = Mappings::open(&rtrace_bpf::online_cpus().map_err(io::Error::other)?)?;
        let (found, receiver) = unbounded();
        let (processes, changes) = unbounded();
        let (mapping, mapped) = unbounded();
        let pids = pids.to_vec();
        scope.spawn(move || self.look_until_closed(pids, mappings, &changes, &found, &mapping));
        Ok(Lookout { found: receiver, mapped, processes })
    }

    fn look_until_closed(
        mut self,
        mut pids: Vec<u32>,
        mut mappings: Mappings,
        changes: &Receiver<Vec<u32>>,
        found: &Sender<Newcomer>,
        mapped: &Sender<(u32, Timestamp)>,
    ) {
        // What was loaded after the plan was made and before the kernel was listened to.
        let mut looked = host::now();
        self.look(&pids, looked, found);
        let mut waiting = Vec::new();
        loop {
            match changes.try_recv() {
                Ok(living) => pids = living,
                Err(TryRecvError::Empty) => mappings.wait(PERIOD),
                Err(TryRecvError::Disconnected) => return,
            }
            let now = host::now();
            let (seen, lost) = mappings.read();
            if lost > 0 {
                self.look(&pids, looked, found);
                self.tell_mapped(pids.iter().map(|&pid| (pid, looked)), mapped);
            }
            looked = now;
            waiting.extend(seen.into_iter().filter(|mapping| self.tells_mappings || self.is_named(mapping)));
            waiting.retain(|mapping: &Mapping| {
                if pids.contains(&mapping.pid) {
                    if self.is_named(mapping) {
                        let target = target::mapped(mapping, &self.patterns, &mut self.known, self.next_library);
                        self.tell(target, mapping.time, found);
                    }
                    self.tell_mapped([(mapping.pid, mapping.time)], mapped);
                    return false;
                }
                now.since(mapping.time) < UNTIL_KNOWN_NS
            });
        }
    }

    /// Looks at all that the processes map.
    fn look(&mut self, pids: &[u32], since: Timestamp, found: &Sender<Newcomer>) {
        let target = target::newcomers(pids, &self.patterns, &mut self.known, self.next_library);
        self.tell(target, since, found);
    }

    fn is_named(&self, mapping: &Mapping) -> bool {
        self.patterns.iter().any(|pattern| select::matches(pattern, &mapping.path))
    }

    fn tell_mapped(&self, mappings: impl IntoIterator<Item = (u32, Timestamp)>, mapped: &Sender<(u32, Timestamp)>) {
        // As with newcomers, nobody may listen any more.
        let mut mappings = mappings.into_iter().take_while(|_| self.tells_mappings);
        let _ = mappings.try_for_each(|mapping| mapped.send(mapping));
    }

    fn tell(&mut self, target: Target, since: Timestamp, found: &Sender<Newcomer>) {
        if target.libraries.is_empty() {
            return;
        }
        let plan = plan::plan(&target.libraries, &self.options, self.next_region);
        self.next_library.0 += plan.libraries.len() as u32;
        self.next_region.0 += plan.libraries.iter().map(|library| library.regions.len() as u32).sum::<u32>();
        // Nobody listens any more once the recording is over.
        let _ = found.send(Newcomer { plan, since });
    }
}

/// The recorder's end of the thread that looks.
pub struct Lookout {
    found: Receiver<Newcomer>,
    mapped: Receiver<(u32, Timestamp)>,
    processes: Sender<Vec<u32>>,
}

impl Lookout {
    /// What was found since the last call.
    pub fn found(&self) -> impl Iterator<Item = Newcomer> {
        self.found.try_iter()
    }

    /// Which processes have mapped something since the last call, and when.
    pub fn mapped(&self) -> impl Iterator<Item = (u32, Timestamp)> {
        self.mapped.try_iter()
    }

    /// The processes to look at from now on.
    pub fn set_processes(&self, pids: Vec<u32>) {
        // The thread ends only when this end does.
        let _ = self.processes.send(pids);
    }
}
