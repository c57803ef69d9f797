//! Whether return sites are still where they were placed, and where none may be.
//!
//! A process may overwrite them, or drop its copy of a page. The kernel side does not trust a site that it does not find in
//! memory; here it learns that there will be none. A thread that makes code writable waits until there are no probes: the
//! kernel executes in their place what the file holds.

use std::fs::File;
use std::path::Path;

use foldhash::HashSet;
use rtrace_bpf::wire::QuestionRecord;
use rtrace_bpf::{ArrivalRule, Error};
use rtrace_symbolizer::Image;
use rtrace_symbolizer::address_space::Mapping;
use rtrace_symbolizer::modules::{self, Module};

use super::links::{Links, Placement};
use super::{FileId, ReturnSites};
use crate::record::family::Followed;
use crate::target::code::Spot;
use crate::target::presence::{Presence, ProcessCode};

/// What only seems to be overwritten, as the process changes while it is looked at, is not.
fn overwritten(links: &Links<'_>, pid: u32) -> Vec<(FileId, Presence, Vec<u32>)> {
    let mut found = links.overwritten(pid);
    if !found.is_empty() {
        let again: HashSet<u32> = links.overwritten(pid).into_iter().flat_map(|(_, _, ids)| ids).collect();
        found.iter_mut().for_each(|(_, _, ids)| ids.retain(|id| again.contains(id)));
    }
    found
}

/// Whether the dynamic linker writes to the code of a file when it loads it. No probe is where it does.
fn is_relocated(module: &Module) -> bool {
    Image::open(&module.open_path()).is_ok_and(|image| !image.relocated_code().is_empty())
}

impl ReturnSites<'_> {
    /// Takes all probes out of code that a process makes writable, and lets it go on.
    pub(super) fn withdraw(&mut self, code: &QuestionRecord, followed: &Followed<'_>) -> Result<(), Error> {
        let QuestionRecord { pid, address, length, thread, .. } = *code;
        let (begin, end) = (address, address.saturating_add(length));
        let modules = modules::of_process(pid).unwrap_or_default();
        for module in &modules {
            let is_meant = |offset: u64| {
                let executable = module.mappings.iter().filter(|mapping| mapping.executable);
                executable.filter_map(|mapping| mapping.address_of(offset)).any(|at| begin <= at && at < end)
            };
            let is_concerned = |mapping: &Mapping| mapping.executable && mapping.start < end && begin < mapping.end;
            if module.mappings.iter().any(is_concerned) && !is_relocated(module) {
                let file = (module.device, module.inode);
                followed.withdraw(pid, file, is_meant)?;
                let Some(process) = ProcessCode::of(pid) else { break };
                self.jumps.withdraw(&process, pid, file, is_meant)?;
                self.give_up(vec![(file, process.nothing_of(module), self.links.within(pid, file, is_meant))])?;
            }
        }
        self.programs.let_write(thread)
    }

    /// Looks at the next process when it is time.
    pub(super) fn inspect(&mut self, followed: &Followed<'_>) -> Result<(), Error> {
        let (links, turns) = (&self.links, &mut self.turns);
        let all = || links.processes().into_iter().filter(|pid| followed.has_probes(*pid)).collect();
        let overwritten = turns.go_on(followed.changes(), all, |pid| overwritten(links, pid)).unwrap_or_default();
        self.give_up(overwritten)
    }

    /// The files of processes in which sites were overwritten, once each.
    ///
    /// # Errors
    /// A map of the programs cannot be written.
    pub fn overwritten(&mut self, followed: &Followed<'_>) -> Result<Vec<Presence>, Error> {
        for pid in self.links.processes().into_iter().filter(|pid| followed.has_probes(*pid)) {
            self.give_up(overwritten(&self.links, pid))?;
        }
        Ok(std::mem::take(&mut self.overwritten))
    }

    /// These sites are gone, and do not come back.
    fn give_up(&mut self, overwritten: Vec<(FileId, Presence, Vec<u32>)>) -> Result<(), Error> {
        for ((device, inode), mut presence, ids) in overwritten {
            self.links.withdraw(presence.pid, (device, inode), &ids.iter().copied().collect())?;
            let mut gone = Vec::with_capacity(ids.len());
            for id in ids {
                let placed = &self.placed[id as usize];
                let (place, met) = (placed.place(), placed.met.clone());
                if self.known.get(&placed.key()) != Some(&id) {
                    continue;
                }
                let addresses = match met.is_empty() {
                    true => {
                        self.spaces.addresses(place.pid, self.programs.space(place.pid)?, (device, inode), place.offset)
                    }
                    false => met,
                };
                self.programs.prime(&[(place, ArrivalRule::Impossible)])?;
                for (space, address) in addresses {
                    self.programs.set_arrivals(space, &[(address, ArrivalRule::Impossible)])?;
                }
                let site = place.offset + u64::from(placed.site.distance);
                self.programs.avoid(device, inode, site);
                self.forget(id);
                gone.push(site);
            }
            presence.absent = gone;
            self.overwritten.extend(Some(presence).filter(|presence| !presence.absent.is_empty()));
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
        if let (Some(process), Ok(open)) = (process, File::open(path)) {
            let spots = sites.iter().map(|site| Spot { entry: site.offset, site: site.probe.file_offset }).collect();
            let (device, inode) = file;
            process.rewritten(&open, spots).into_iter().for_each(|site| self.programs.avoid(device, inode, site));
        }
        match self.link(pid, file, path, sites) {
            // The process has ended, or no longer maps the file.
            Err(error) if error.is_gone() => Ok(sites.iter().map(|site| site.id).collect()),
            refused => refused,
        }
    }
}
