//! The breakpoints of a recording: placed in every thread, in each process where the variable lies.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use rtrace_bpf::Programs;
use rtrace_model::{EventKind, Timestamp};
use rtrace_symbolizer::Image;
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::Module;

use super::breakpoint::Breakpoint;
use super::place::{self, VariableFile};
use super::{Error, HeldProcess, Watch, Watches};
use crate::host;

/// Looks for threads without a breakpoint. Those that were made after the first look by one that has
/// it inherited theirs, so only a thread made meanwhile by one that had none is found later.
const LOOKS: usize = 8;

/// The watched variables of all processes.
pub struct Watching<'a> {
    programs: &'a Programs,
    watches: &'a Watches,
    /// Whether child processes are watched, too.
    children: bool,
    /// The files looked at, of which those are kept that have one of the variables.
    files: HashMap<FileId, Option<Arc<Image>>>,
    processes: HashMap<u32, WatchedProcess>,
    /// Processes that may not be looked at.
    withheld: HashSet<u32>,
    breakpoints: Vec<PlacedBreakpoint>,
    /// Accesses that breakpoints told of which are gone, by watch.
    counted: Vec<u64>,
}

/// A breakpoint in one thread.
struct PlacedBreakpoint {
    pid: u32,
    /// The place of its watch.
    watch: usize,
    breakpoint: Breakpoint,
}

/// Where a process has a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariablePlace {
    /// Nowhere yet.
    Unknown,
    /// At this address, where it is watched.
    At(u64),
    /// Where it could not be watched.
    Refused,
}

/// What is watched in one process.
#[derive(Clone, Debug)]
struct WatchedProcess {
    /// Of each watch.
    places: Vec<VariablePlace>,
    /// When it was first looked at.
    known_since: Timestamp,
    /// When all threads had the breakpoints.
    settled_at: Timestamp,
}

impl<'a> Watching<'a> {
    /// Nothing is watched yet.
    pub fn new(programs: &'a Programs, watches: &'a Watches, children: bool) -> Watching<'a> {
        let (files, processes) = (HashMap::new(), HashMap::new());
        let counted = vec![0; watches.watches.len()];
        let (withheld, breakpoints) = (HashSet::new(), Vec::new());
        Watching { programs, watches, children, files, processes, withheld, breakpoints, counted }
    }

    /// Whether there is anything to watch.
    pub fn is_wanted(&self) -> bool {
        !self.watches.watches.is_empty()
    }

    /// Watches what these processes have now.
    ///
    /// # Errors
    /// A breakpoint is refused.
    pub fn begin(&mut self, pids: &[u32]) -> Result<(), Error> {
        for &pid in pids {
            self.look(pid).into_iter().try_for_each(|(_, placed)| placed)?;
            self.watch_addresses(pid)?;
        }
        Ok(())
    }

    /// Watches the addresses that the user says, which are those of this process, and of the children that it makes.
    fn watch_addresses(&mut self, pid: u32) -> Result<(), Error> {
        let addresses = self.watches.watches.iter().map(|watch| watch.name.address).enumerate();
        for (place, address) in addresses.filter_map(|(place, address)| Some((place, address?))) {
            self.place(pid, place, address)?;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.places[place] = VariablePlace::At(address);
                process.settled_at = host::now();
            }
        }
        Ok(())
    }

    /// Watches what a command has, whose process is held, from the loading of each of its files on.
    ///
    /// # Errors
    /// A breakpoint is refused, or the command cannot be held.
    pub fn begin_held(&mut self, held: HeldProcess) -> Result<(), Error> {
        let pid = held.pid();
        let mut refused = None;
        held.run_until(|| {
            let failed = self.look(pid).into_iter().find_map(|(_, placed)| placed.err());
            refused = refused.take().or(failed);
            refused.is_some()
                || self.processes.get(&pid).is_some_and(|process| !process.places.contains(&VariablePlace::Unknown))
        })
        .map_err(Error::Hold)?;
        refused.map_or(Ok(()), Err)
    }

    /// The process has mapped a file, at the time `since`. Tells what is watched from now on, and
    /// what cannot be.
    pub fn mapped(&mut self, pid: u32, since: Timestamp) -> Vec<EventKind> {
        let tell = |(variable, placed): (String, Result<(), Error>)| match placed {
            Ok(()) => EventKind::Watched { variable, since },
            Err(error) => EventKind::Unwatched { variable, reason: error.to_string() },
        };
        self.look(pid).into_iter().map(tell).collect()
    }

    /// The process may not be looked at, until it executes another program.
    pub fn withhold(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.withheld.insert(pid);
    }

    /// The process runs another program since that time: the kernel has removed its breakpoints.
    pub fn executed(&mut self, pid: u32, since: Timestamp) -> Vec<EventKind> {
        // A command that was held is known only since then.
        if self.processes.get(&pid).is_some_and(|process| process.known_since > since) {
            return Vec::new();
        }
        self.processes.remove(&pid);
        self.withheld.remove(&pid);
        self.mapped(pid, since)
    }

    /// The process made a child, which has inherited its breakpoints, if it had them by then.
    pub fn forked(&mut self, parent: u32, child: u32, time: Timestamp) -> Vec<EventKind> {
        if !self.children {
            return Vec::new();
        }
        if self.withheld.contains(&parent) {
            self.withhold(child);
        }
        match self.processes.get(&parent) {
            Some(process) if process.settled_at < time => {
                let inherited = process.clone();
                self.processes.insert(child, inherited);
                Vec::new()
            }
            _ => self.mapped(child, time),
        }
    }

    /// Ends watching. What no program of ours saw of the accesses is counted as lost, and variables
    /// that no process had are told.
    ///
    /// # Errors
    /// The kernel does not tell the counts.
    pub fn finish(&self) -> Result<Vec<EventKind>, rtrace_bpf::Error> {
        let mut counts = self.counted.clone();
        for PlacedBreakpoint { watch, breakpoint, .. } in &self.breakpoints {
            counts[*watch] += breakpoint.finish().unwrap_or(0);
        }
        let unseen = |(watch, count): (usize, &u64)| count.saturating_sub(self.programs.accesses_seen(watch));
        let lost: u64 = counts.iter().enumerate().map(unseen).sum();
        if lost > 0 {
            self.programs.lose_accesses(lost)?;
        }
        let was_watched = |place: usize| self.breakpoints.iter().any(|placed| placed.watch == place);
        let never = self.watches.watches.iter().enumerate().filter(|(place, _)| !was_watched(*place));
        let reason = "no process had it";
        let tell = |watch: &Watch| EventKind::Unwatched { variable: watch.name.to_string(), reason: reason.to_owned() };
        Ok(never.map(|(_, watch)| tell(watch)).collect())
    }

    /// Places breakpoints for what the process has by now; names what was tried, and how it went.
    fn look(&mut self, pid: u32) -> Vec<(String, Result<(), Error>)> {
        let watches = self.watches;
        let mut process = self.processes.get(&pid).cloned().unwrap_or_else(|| WatchedProcess {
            places: vec![VariablePlace::Unknown; watches.watches.len()],
            known_since: host::now(),
            settled_at: Timestamp(0),
        });
        let mut tried = Vec::new();
        if self.withheld.contains(&pid) {
            return tried;
        }
        // A process that is gone has nothing to watch.
        let Ok((modules, files)) = self.files_of(pid) else { return tried };
        for (place, watch) in watches.watches.iter().enumerate() {
            let known = process.places[place];
            if known == VariablePlace::Refused {
                continue;
            }
            let placed = match place::locate(&watch.name, &watches.libraries, &files) {
                Ok(None) => continue,
                Ok(Some((file, variable))) => {
                    let Some(bias) = modules[file].load_bias(&files[file].image) else { continue };
                    let address = bias.wrapping_add(variable.address);
                    if known == VariablePlace::At(address) {
                        continue;
                    }
                    self.move_to(pid, place, address, variable.size).map(|()| address)
                }
                Err(error) => Err(error),
            };
            process.places[place] =
                placed.as_ref().map_or(VariablePlace::Refused, |&address| VariablePlace::At(address));
            tried.push((watch.name.to_string(), placed.map(drop)));
        }
        process.settled_at = host::now();
        self.processes.insert(pid, process);
        tried
    }

    /// The files of a process that have one of the variables, and how it maps them.
    fn files_of(&mut self, pid: u32) -> Result<(Vec<Module>, Vec<VariableFile>), Error> {
        let files = place::files_of(pid, |module| {
            let known = self.files.entry((module.device, module.inode));
            known.or_insert_with(|| read(&self.watches.watches, &module.open_path())).clone()
        })?;
        Ok(files.into_iter().unzip())
    }

    /// Watches a variable at an address of a process, and no longer at another one where a library
    /// had it that was unloaded meanwhile. Child processes may have that still, with breakpoints that
    /// would go away with their parent's.
    fn move_to(&mut self, pid: u32, place: usize, address: u64, size: u64) -> Result<(), Error> {
        let watch = &self.watches.watches[place];
        if size != u64::from(watch.size) {
            let cause = format!("it has {size} bytes here, and {} elsewhere", watch.size);
            return Err(Error::Unfit { name: watch.name.to_string(), cause });
        }
        if !self.children {
            let counted = &mut self.counted[place];
            self.breakpoints.retain(|placed| {
                let is_kept = (placed.pid, placed.watch) != (pid, place);
                *counted += if is_kept { 0 } else { placed.breakpoint.finish().unwrap_or(0) };
                is_kept
            });
        }
        self.place(pid, place, address)
    }

    /// Places a breakpoint in all threads of a process.
    fn place(&mut self, pid: u32, place: usize, address: u64) -> Result<(), Error> {
        let watch = &self.watches.watches[place];
        let refused = |kernel| Error::Refused { name: watch.name.to_string(), kernel };
        let mut met = HashSet::new();
        for _ in 0..LOOKS {
            let new: Vec<u32> = threads(pid).into_iter().filter(|&tid| met.insert(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let opened = Breakpoint::open(tid, address, watch.size, watch.name.access, self.children);
                let breakpoint = match opened {
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    opened => opened.map_err(refused)?,
                };
                self.programs.watch(place, breakpoint.as_fd()).map_err(refused)?;
                breakpoint.enable().map_err(refused)?;
                self.breakpoints.push(PlacedBreakpoint { pid, watch: place, breakpoint });
            }
        }
        Ok(())
    }
}

/// The file, if it has one of the variables.
fn read(watches: &[Watch], path: &Path) -> Option<Arc<Image>> {
    let image = Image::open(path).ok()?;
    let has = |watch: &Watch| image.variables(&watch.name.symbol).is_ok_and(|found| !found.is_empty());
    watches.iter().any(has).then(|| Arc::new(image))
}

fn threads(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
