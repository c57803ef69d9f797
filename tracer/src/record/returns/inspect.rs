//! Whether return sites are still where they were placed, and where none may be.
//!
//! A process may overwrite them, or drop its copy of a page. The kernel side does not trust a site that it does not find in
//! memory; here it learns that there will be none. A thread that makes code writable waits until there are no probes: the
//! kernel executes in their place what the file holds. Where the process cannot write to that code any more and has
//! changed nothing, they come back.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashSet;
use rtrace_bpf::journal::Probed;
use rtrace_bpf::wire::CodeChangeRecord;
use rtrace_bpf::{ArrivalRule, Error, Programs};
use rtrace_symbolizer::address_space::{AddressSpace, Area, Mapping};
use rtrace_symbolizer::modules::Module;
use rtrace_symbolizer::{Image, open_regular};

use super::links::{Links, Placement};
use super::site::Placed;
use super::spaces::Spaces;
use super::{FileId, ReturnSites};
use crate::record::family::Followed;
use crate::record::inspection::LostSites;
use crate::record::writers::{ChangedCode, HeldThread};
use crate::target::code::Spot;
use crate::target::presence::{CodeComparison, ProcessCode};

/// For so long at most a thread takes to make code executable once it was let go, unless it fails.
const LONGEST_SEALING: Duration = Duration::from_secs(1);

/// Code that a thread is about to make executable, to which it could write.
pub(super) struct Sealing {
    pid: u32,
    addresses: Range<u64>,
    until: Instant,
}

/// A thread that makes code writable, and is stopped until there are no probes in it.
pub(super) struct StoppedWriter {
    pid: u32,
    addresses: Range<u64>,
    /// What the process mapped before.
    modules: Arc<[Module]>,
    stop: HeldThread,
}

impl Sealing {
    fn is_done(&self) -> bool {
        let Ok(space) = AddressSpace::of(self.pid) else { return true };
        let of_code = |area: &Area<'_>| {
            area.mapping.start < self.addresses.end && self.addresses.start < area.mapping.end && area.file.is_some()
        };
        space.areas().filter(of_code).all(|area| area.mapping.executable && !area.is_writable)
    }
}

/// What only seems to be overwritten, as the process changes while it is looked at, is not.
fn overwritten(links: &Links<'_>, pid: u32) -> Vec<(FileId, PathBuf, Vec<u32>)> {
    let mut found = links.overwritten(pid);
    if !found.is_empty() {
        let again: HashSet<u32> = links.overwritten(pid).into_iter().flat_map(|(_, _, ids)| ids).collect();
        found.iter_mut().for_each(|(_, _, ids)| ids.retain(|id| again.contains(id)));
    }
    found
}

/// Where the return address of a site is, each address with its space.
fn addresses(programs: &Programs, spaces: &Spaces, placed: &Placed) -> Result<Vec<(u32, u64)>, Error> {
    let &Placed { pid, file, offset, ref met, .. } = placed;
    match met.is_empty() {
        true => Ok(spaces.addresses(pid, programs.space(pid)?, file, offset)),
        false => Ok(met.clone()),
    }
}

/// Whether the dynamic linker writes to the code of a file when it loads it. No probe is where it does.
fn is_relocated(module: &Module) -> bool {
    Image::open(&module.open_path()).is_ok_and(|image| !image.relocated_code().is_empty())
}

impl ReturnSites<'_> {
    /// A thread is about to make code writable, from which all probes go before it executes anything more, or code of what
    /// was writable.
    pub(super) fn see_change(&mut self, change: ChangedCode, followed: &Followed<'_>) -> Result<(), Error> {
        let ChangedCode { record: CodeChangeRecord { pid, address, length, thread, is_sealed, .. }, modules, stop } =
            change;
        let addresses = address..address.saturating_add(length);
        if is_sealed != 0 {
            self.sealing.push(Sealing { pid, addresses, until: Instant::now() + LONGEST_SEALING });
            return Ok(());
        }
        // What another thread was about to do it has done before, or does not now.
        self.sealing.retain(|other| {
            other.pid != pid || other.addresses.end <= addresses.start || addresses.end <= other.addresses.start
        });
        match stop {
            Some(stop) => self.writers.push(StoppedWriter { pid, addresses, modules, stop }),
            None => {
                self.withdraw(pid, &addresses, &modules, followed)?;
                self.programs.let_write(thread)?;
            }
        }
        Ok(())
    }

    /// Takes all probes out of code that stopped threads have made writable, and lets them go on.
    pub(super) fn see_stopped(&mut self, followed: &Followed<'_>) -> Result<(), Error> {
        let stopped: Vec<StoppedWriter> = self.writers.extract_if(.., |writer| writer.stop.is_reached()).collect();
        stopped.into_iter().try_for_each(|StoppedWriter { pid, addresses, modules, stop }| {
            self.withdraw(pid, &addresses, &modules, followed)?;
            stop.end();
            Ok(())
        })
    }

    /// Takes all probes out of code that a process makes writable.
    fn withdraw(
        &mut self,
        pid: u32,
        addresses: &Range<u64>,
        modules: &Arc<[Module]>,
        followed: &Followed<'_>,
    ) -> Result<(), Error> {
        for module in modules.iter() {
            let is_meant = |offset: u64| {
                let executable = module.mappings.iter().filter(|mapping| mapping.executable);
                executable.filter_map(|mapping| mapping.address_of(offset)).any(|at| addresses.contains(&at))
            };
            let is_concerned = |mapping: &Mapping| {
                mapping.executable && mapping.start < addresses.end && addresses.start < mapping.end
            };
            if module.mappings.iter().any(is_concerned) && !is_relocated(module) {
                let file = (module.device, module.inode);
                let Some(process) = ProcessCode::with(pid, Arc::clone(modules)) else { break };
                followed.withdraw(&process, pid, file, is_meant)?;
                self.jumps.withdraw(&process, pid, file, is_meant)?;
                let sites = self.links.within(pid, file, is_meant);
                self.give_up(Some(&process), pid, vec![(file, module.path.clone(), sites)])?;
            }
        }
        Ok(())
    }

    /// Code to which no thread can write any more gets its probes back where it is unchanged.
    pub(super) fn see_sealed(&mut self, followed: &Followed<'_>) -> Result<(), Error> {
        let is_over = |sealing: &mut Sealing| sealing.is_done() || Instant::now() >= sealing.until;
        let over: Vec<Sealing> = self.sealing.extract_if(.., is_over).collect();
        over.iter().try_for_each(|sealing| self.restore(sealing, followed))
    }

    /// Return sites are placed when they are met.
    fn restore(
        &mut self,
        Sealing { pid, addresses: range, .. }: &Sealing,
        followed: &Followed<'_>,
    ) -> Result<(), Error> {
        let Some(process) = ProcessCode::of(*pid) else { return Ok(()) };
        followed.restore(&process, *pid, range)?;
        self.jumps.restore(&process, *pid, range)?;
        for (&(of, (device, inode)), (_, ids)) in self.withdrawn.iter_mut().filter(|((of, _), _)| of == pid) {
            let Some(file) = self.callers.path((device, inode)).and_then(|path| open_regular(&path).ok()) else {
                continue;
            };
            let site = |id: &u32| self.placed[*id as usize].spot();
            let CodeComparison { unchanged, .. } = process.compare(&file, ids.iter().map(site).collect(), range);
            let is_back = |id: &mut u32| unchanged.binary_search(&site(id).site).is_ok();
            for id in ids.extract_if(.., is_back) {
                let placed = &self.placed[id as usize];
                self.programs.allow(Probed { pid: of, device, inode }, placed.spot().site);
                let addresses = addresses(self.programs, &self.spaces, placed)?;
                self.programs.forget_arrival(placed.place(), &addresses)?;
            }
        }
        Ok(())
    }

    /// Looks at the next process when it is time.
    pub(super) fn inspect(&mut self, followed: &Followed<'_>) -> Result<(), Error> {
        let (links, turns) = (&self.links, &mut self.turns);
        let looked = turns.go_on(followed.changes(), || followed.inspected(), |pid| (pid, overwritten(links, pid)));
        let Some((pid, overwritten)) = looked else { return Ok(()) };
        self.give_up(ProcessCode::of(pid).as_ref(), pid, overwritten)
    }

    /// The files of processes in which sites were overwritten, once each.
    ///
    /// # Errors
    /// A map of the programs cannot be written.
    pub fn overwritten(&mut self, followed: &Followed<'_>) -> Result<Vec<LostSites>, Error> {
        for pid in self.links.processes().into_iter().filter(|pid| followed.has_probes(*pid)) {
            self.give_up(ProcessCode::of(pid).as_ref(), pid, overwritten(&self.links, pid))?;
        }
        let lost = std::mem::take(&mut self.withdrawn).into_iter().map(|((pid, file), (path, ids))| {
            let offsets = ids.into_iter().map(|id| self.placed[id as usize].spot().site).collect();
            LostSites { pid, file, path, offsets }
        });
        Ok(lost.collect())
    }

    /// These sites of files are gone.
    fn give_up(
        &mut self,
        process: Option<&ProcessCode>,
        pid: u32,
        gone: Vec<(FileId, PathBuf, Vec<u32>)>,
    ) -> Result<(), Error> {
        for ((device, inode), path, ids) in gone {
            self.links.withdraw(process, pid, (device, inode), &ids.iter().copied().collect())?;
            for id in ids {
                let placed = &self.placed[id as usize];
                if self.known.get(&placed.key()) != Some(&id) {
                    continue;
                }
                self.programs.prime(&[(placed.place(), ArrivalRule::Impossible)])?;
                for (space, address) in addresses(self.programs, &self.spaces, placed)? {
                    self.programs.set_arrivals(space, &[(address, ArrivalRule::Impossible)])?;
                }
                self.programs.avoid(Probed { pid, device, inode }, placed.spot().site);
                self.forget(id);
                self.withdrawn.entry((pid, (device, inode))).or_insert_with(|| (path.clone(), Vec::new())).1.push(id);
            }
        }
        Ok(())
    }

    /// Places those of these sites of a file whose code the process has not changed, as far as it is known; returns those
    /// that are not in place.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub(super) fn place_unchanged(
        &mut self,
        (pid, process): (u32, Option<ProcessCode>),
        file: FileId,
        path: &Path,
        sites: &[Placement],
    ) -> Result<HashSet<u32>, Error> {
        if let (Some(process), Ok(open)) = (process, open_regular(path)) {
            let spots = sites.iter().map(|site| Spot { entry: site.offset, site: site.probe.file_offset }).collect();
            let (device, inode) = file;
            process
                .rewritten(&open, spots)
                .into_iter()
                .for_each(|site| self.programs.avoid(Probed { pid, device, inode }, site));
        }
        match self.link(pid, file, path, sites) {
            // The process has ended, or no longer maps the file.
            Err(error) if error.is_gone() => Ok(sites.iter().map(|site| site.id).collect()),
            refused => refused,
        }
    }
}
