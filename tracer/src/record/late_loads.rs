//! Libraries that traced processes load while they are recorded, by a path that nobody could know.
//!
//! The kernel reports every mapping with its time, and a thread of its own plans the probes, so that
//! neither the traced program nor the reader of the rings waits for it. Probes then come late: the
//! time from the mapping to their placing is a blind window, and is recorded as one. So is that of a
//! process which ends before anybody could look at it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Scope;
use std::time::Duration;

use rtrace_bpf::Programs;
use rtrace_bpf::journal::Probed;
use rtrace_model::{LibraryId, RegionId, Timestamp, text_of_os};
use rtrace_plan as plan;
use rtrace_plan::Plan;
use rtrace_signatures::Book;
use rtrace_symbolizer::open_regular;

use crate::host;
use crate::perf::mappings::{CodeMapping, Doorbell, MappingRecords, Mappings};
use crate::record::signatures;
use crate::target::copies::{Likeness, Originals};
use crate::target::files::open_path;
use crate::target::mapped_files::MappedFiles;
use crate::target::mapping_history::MappingHistory;
use crate::target::privilege;
use crate::target::source_files;
use crate::target::{self, LibraryChoice, Target};

/// Longest time without a look at what the recorder says.
const PERIOD: Duration = Duration::from_millis(20);

/// A process that maps something may be a child of which the recorder has not heard yet; it does
/// within this time. Mappings of one that has ended are told within it, too.
const UNTIL_KNOWN_NS: u64 = 500_000_000;

/// Libraries that were loaded while recording.
pub struct LateLoad {
    /// Their probes.
    pub plan: Plan,
    /// When they were loaded, or a time shortly before.
    pub since: Timestamp,
    /// By these they are in reach, though the process that has loaded them may have ended.
    _files: Vec<File>,
}

/// A library that was loaded, and not probed before the recording was over.
pub struct MissedLibrary {
    /// Its path.
    pub library: String,
    /// When it was loaded, or a time shortly before.
    pub since: Timestamp,
}

/// What the recorder knows of the traced processes.
struct KnownProcesses {
    living: Vec<u32>,
    /// Those that have begun since it last said so; they may have ended.
    begun: Vec<u32>,
    /// Those that have joined since then, with what they have mapped already.
    joined: Vec<(u32, Timestamp)>,
    /// Nothing is recorded any more.
    is_last: bool,
}

/// The traced processes, and those that were traced lately.
struct TracedProcesses {
    /// Those that ran before the recording began. What a command maps before it executes its program is rtrace's.
    running: Vec<u32>,
    living: Vec<u32>,
    lately: HashMap<u32, Timestamp>,
}

impl TracedProcesses {
    fn learn(&mut self, living: Vec<u32>, begun: Vec<u32>, now: Timestamp) {
        self.lately.retain(|_, last| now.since(*last) < UNTIL_KNOWN_NS);
        let before = std::mem::replace(&mut self.living, living);
        self.lately.extend(before.into_iter().chain(begun).map(|pid| (pid, now)));
    }

    fn contains(&self, pid: u32) -> bool {
        self.living.contains(&pid) || self.lately.contains_key(&pid)
    }
}

/// Knows which libraries are wanted and which are known.
pub struct LateLoads {
    patterns: Vec<String>,
    /// Whether every mapping of the processes is told.
    tells_mappings: bool,
    options: plan::PlanOptions,
    known: HashSet<(u64, u64)>,
    originals: Originals,
    next_library: LibraryId,
    next_region: RegionId,
    /// What is known of functions, and programs that may call them, if values are recorded.
    book: Option<(Arc<Book>, Vec<PathBuf>)>,
    /// What was mapped.
    mapped: MappedFiles,
}

impl LateLoads {
    /// Whatever the patterns name and `plan` does not have yet; `tells_mappings`: all that is mapped
    /// executable is [told](LateLoadFeed::mapped), too.
    pub fn beyond(plan: &Plan, patterns: &[String], options: plan::PlanOptions, tells_mappings: bool) -> LateLoads {
        let regions: usize = plan.libraries.iter().map(|library| library.regions.len()).sum();
        LateLoads {
            patterns: patterns.to_vec(),
            tells_mappings,
            options,
            known: plan.libraries.iter().map(|library| (library.library.device, library.library.inode)).collect(),
            originals: Originals::of(plan, patterns),
            next_library: LibraryId(plan.libraries.len() as u32),
            next_region: RegionId(regions as u32),
            book: None,
            mapped: MappedFiles::default(),
        }
    }

    /// Tells there what the processes map.
    pub fn telling(mut self, mapped: MappedFiles) -> LateLoads {
        self.mapped = mapped;
        self
    }

    /// With values of calls, as the book says; `pids`: processes that run already.
    pub fn with_values(mut self, book: Option<Arc<Book>>, pids: &[u32]) -> LateLoads {
        self.book = book.map(|book| (book, signatures::callers(pids, &[])));
        self
    }

    /// Which libraries are wanted.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Looks until the feed is dropped. All that is mapped from now on is in the history. `running`: those of the processes
    /// that run already.
    ///
    /// # Errors
    /// The kernel does not tell us of mappings.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        history: &MappingHistory,
        pids: &[u32],
        running: &[u32],
        programs: &'scope Programs,
    ) -> io::Result<LateLoadFeed> {
        let mappings = Mappings::open(&rtrace_bpf::online_cpus().map_err(io::Error::other)?)?;
        let doorbell = mappings.doorbell()?;
        history.hear(mappings);
        let history = history.clone();
        let (found, receiver) = channel();
        let (processes, changes) = channel();
        let (mapping, mapped) = channel();
        let (missed, rest) = channel();
        let traced = TracedProcesses { running: running.to_vec(), living: pids.to_vec(), lately: HashMap::new() };
        let channels = Channels { found, mapping, missed };
        scope.spawn(move || self.look_until_closed(traced, &history, &doorbell, programs, &changes, &channels));
        Ok(LateLoadFeed { found: receiver, mapped, rest, processes })
    }

    fn look_until_closed(
        mut self,
        mut traced: TracedProcesses,
        history: &MappingHistory,
        doorbell: &Doorbell,
        programs: &Programs,
        changes: &Receiver<KnownProcesses>,
        channels: &Channels,
    ) {
        // What was loaded after the plan was made and before the kernel was listened to.
        let mut looked = host::now();
        self.look(&traced.running, looked, channels);
        let mut waiting: Vec<CodeMapping> = Vec::new();
        let (mut sifted, mut is_last) = (looked, false);
        while !is_last {
            let mut has_changed = match changes.try_recv() {
                Ok(known) => {
                    is_last = known.is_last;
                    traced.learn(known.living, known.begun, host::now());
                    if let Some(since) = known.joined.iter().map(|&(_, since)| since).min() {
                        let pids: Vec<u32> = known.joined.iter().map(|&(pid, _)| pid).collect();
                        self.look(&pids, since, channels);
                    }
                    true
                }
                Err(TryRecvError::Empty) => {
                    doorbell.wait(PERIOD);
                    false
                }
                Err(TryRecvError::Disconnected) => return,
            };
            let now = host::now();
            let MappingRecords { mappings: seen, lost } = history.take();
            if lost > 0 {
                self.mapped.miss();
            }
            has_changed |= lost > 0 || seen.iter().any(|mapping| traced.contains(mapping.pid));
            waiting.extend(seen);
            if is_last {
                return self.tell_missed(&traced, &waiting, history, channels);
            }
            // Each mapping of any process ends the waiting, and most are of others.
            if !has_changed && now.since(sifted) < PERIOD.as_nanos() as u64 {
                continue;
            }
            sifted = now;
            if lost > 0 {
                self.look(&traced.living, looked, channels);
                self.tell_mapped(traced.living.iter().map(|&pid| (pid, looked)), channels);
            }
            looked = now;
            waiting.retain(|mapping: &CodeMapping| {
                if traced.contains(mapping.pid) {
                    tell_unprobed(programs, mapping, channels);
                    let target = self.wanted(mapping, history, channels);
                    self.tell(target, mapping.time, channels);
                    self.tell_mapped([(mapping.pid, mapping.time)], channels);
                    return false;
                }
                now.since(mapping.time) < UNTIL_KNOWN_NS
            });
        }
    }

    /// What was mapped last is not probed any more.
    fn tell_missed(
        &mut self,
        traced: &TracedProcesses,
        waiting: &[CodeMapping],
        history: &MappingHistory,
        channels: &Channels,
    ) {
        for mapping in waiting.iter().filter(|mapping| traced.contains(mapping.pid)) {
            for source in self.wanted(mapping, history, channels).libraries {
                let _ = channels.missed.send(MissedLibrary { library: source.library.path, since: mapping.time });
            }
        }
    }

    /// What a process has mapped, if it is to be traced and is not known yet. Nothing is in reach of a program that has
    /// ended and may have been a copy of the one that is traced: that it was there is all that is known.
    fn wanted(&mut self, mapping: &CodeMapping, history: &MappingHistory, channels: &Channels) -> Target {
        let names = |pattern: &&String| target::is_named(mapping, std::slice::from_ref(*pattern));
        let patterns: Vec<String> = self.patterns.iter().filter(names).cloned().collect();
        let target = match patterns.is_empty() {
            true => self.copied(mapping, history, channels),
            false => self.mapped(mapping, channels),
        };
        let is_recorded = self.known.contains(&mapping.file);
        self.mapped.add(mapping, patterns.iter().map(String::as_str), is_recorded);
        target
    }

    /// The copy of a program that is traced, which a process has mapped, if it is not known yet.
    fn copied(&mut self, mapping: &CodeMapping, history: &MappingHistory, channels: &Channels) -> Target {
        let mut target = Target::default();
        if self.known.contains(&mapping.file) {
            return target;
        }
        let likeness = self.originals.likeness(mapping, history);
        if likeness == Likeness::Copy {
            target = target::copied(mapping, self.options.statics, &mut self.known, self.next_library);
        }
        if likeness != Likeness::Other && target.libraries.is_empty() {
            let library = text_of_os(&mapping.path).into_owned();
            let _ = channels.missed.send(MissedLibrary { library, since: mapping.time });
        }
        target
    }

    /// The library that a process has mapped, if it is not known yet. Of one out of reach, as its process has ended, no
    /// more is known than that it was there.
    fn mapped(&mut self, mapping: &CodeMapping, channels: &Channels) -> Target {
        let wanted = LibraryChoice { patterns: &self.patterns, statics: self.options.statics };
        let target = target::mapped(mapping, wanted, &mut self.known, self.next_library);
        let is_gone = privilege::check_process(mapping.pid).is_err();
        if target.libraries.is_empty() && is_gone && !mapping.path.exists() {
            let library = text_of_os(&mapping.path).into_owned();
            let _ = channels.missed.send(MissedLibrary { library, since: mapping.time });
        }
        target
    }

    /// Looks at all that the processes map.
    fn look(&mut self, pids: &[u32], since: Timestamp, channels: &Channels) {
        let wanted = LibraryChoice { patterns: &self.patterns, statics: self.options.statics };
        let target = target::late_loads(pids, wanted, &mut self.known, self.next_library);
        self.tell(target, since, channels);
    }

    /// Keeps the files of the libraries in reach. Those that are not any more are told, and may come again.
    fn hold(&mut self, target: &mut Target, since: Timestamp, channels: &Channels) -> Vec<File> {
        let mut files = Vec::new();
        target.libraries.retain_mut(|source| match open_regular(&source.attach_path) {
            Ok(file) => {
                source.attach_path = open_path(&file);
                files.push(file);
                true
            }
            Err(_) => {
                self.known.remove(&(source.library.device, source.library.inode));
                let _ = channels.missed.send(MissedLibrary { library: source.library.path.clone(), since });
                false
            }
        });
        // Ids count up without holes.
        for (id, source) in (self.next_library.0..).zip(&mut target.libraries) {
            source.library.id = LibraryId(id);
        }
        files
    }

    fn tell_mapped(&self, mappings: impl IntoIterator<Item = (u32, Timestamp)>, channels: &Channels) {
        // As with late_loads, nobody may listen any more.
        let mut mappings = mappings.into_iter().take_while(|_| self.tells_mappings);
        let _ = mappings.try_for_each(|mapping| channels.mapping.send(mapping));
    }

    fn tell(&mut self, mut target: Target, since: Timestamp, channels: &Channels) {
        let files = self.hold(&mut target, since, channels);
        if target.libraries.is_empty() {
            return;
        }
        let plan = host::usually(|| self.plan(&mut target, since, channels));
        self.next_library.0 += plan.libraries.len() as u32;
        self.next_region.0 += plan.libraries.iter().map(|library| library.regions.len() as u32).sum::<u32>();
        // Nobody listens any more once the recording is over.
        let _ = channels.found.send(LateLoad { plan, since, _files: files });
    }

    fn plan(&self, target: &mut Target, since: Timestamp, channels: &Channels) -> Plan {
        // Before values are looked up: these are looked up of what is selected.
        for library in source_files::read_late(&mut target.libraries, &self.options) {
            let _ = channels.missed.send(MissedLibrary { library, since });
        }
        if let Some((book, callers)) = &self.book {
            // What makes no sense for a function of it was not known before: it has no values.
            let _ = signatures::capture(book, &mut target.libraries, &self.options, callers);
        }
        plan::plan(&target.libraries, &self.options, self.next_region)
    }
}

/// Tells where a process maps code of a traced file in which the kernel takes no probes.
fn tell_unprobed(programs: &Programs, mapping: &CodeMapping, channels: &Channels) {
    let offsets = mapping.offset..mapping.offset + (mapping.addresses.end - mapping.addresses.start);
    // Some file systems have other numbers here than in `stat`.
    let ids = [Some(mapping.file), target::identity(&mapping.path).ok()];
    let of = |(device, inode)| Probed { pid: mapping.pid, device, inode };
    let is_traced = |file| programs.has_placed_within(of(file), &offsets);
    if mapping.takes_no_probes && ids.into_iter().flatten().any(is_traced) {
        let library = text_of_os(&mapping.path).into_owned();
        let _ = channels.missed.send(MissedLibrary { library, since: mapping.time });
    }
}

/// From the thread that looks to the recorder.
struct Channels {
    found: Sender<LateLoad>,
    mapping: Sender<(u32, Timestamp)>,
    missed: Sender<MissedLibrary>,
}

/// The recorder's end of the thread that looks.
pub struct LateLoadFeed {
    found: Receiver<LateLoad>,
    mapped: Receiver<(u32, Timestamp)>,
    rest: Receiver<MissedLibrary>,
    processes: Sender<KnownProcesses>,
}

impl LateLoadFeed {
    /// What was found since the last call.
    pub fn found(&self) -> impl Iterator<Item = LateLoad> {
        self.found.try_iter()
    }

    /// Which processes have mapped something since the last call, and when.
    pub fn mapped(&self) -> impl Iterator<Item = (u32, Timestamp)> {
        self.mapped.try_iter()
    }

    /// The processes to look at from now on, and those that have begun since the last call, though they may have ended, or
    /// have joined.
    pub fn set_processes(&self, living: Vec<u32>, begun: Vec<u32>, joined: Vec<(u32, Timestamp)>) {
        // The thread ends only when this end does.
        let _ = self.processes.send(KnownProcesses { living, begun, joined, is_last: false });
    }

    /// What was loaded until now and has no probes, once nothing is recorded any more.
    pub fn finish(&self, living: Vec<u32>, begun: Vec<u32>) -> Vec<MissedLibrary> {
        let _ = self.processes.send(KnownProcesses { living, begun, joined: Vec::new(), is_last: true });
        // Ends when the thread does.
        let rest: Vec<MissedLibrary> = self.rest.iter().collect();
        let late = self.found.try_iter().flat_map(|LateLoad { plan, since, .. }| {
            plan.libraries.into_iter().map(move |planned| MissedLibrary { library: planned.library.path, since })
        });
        late.chain(rest).collect()
    }
}
