//! Entry probes that are taken out of code that a process makes writable, and come back where it has not changed the code,
//! as soon as it can no longer write to it.
//!
//! The kernel writes no breakpoints of its own where a mapping is no longer writable. So the probes are placed when the
//! thread that changes the mapping has done so. What was called until then is not on record.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::sync::Arc;

use rtrace_bpf::journal::Probed;
use rtrace_bpf::{Error, Probes};
use rtrace_model::{Library, LibraryId, Timestamp};
use rtrace_symbolizer::address_space::FileId;

use super::{Followed, FollowedState, InPlace};
use crate::host;
use crate::record::attach::Placed;
use crate::target::code::Spot;
use crate::target::presence::{CodeComparison, Presence, ProcessCode};

/// Entry sites of a library that a process has overwritten, or to which no call comes any more.
pub struct Overwritten {
    /// The process.
    pub pid: u32,
    /// The library.
    pub library: Arc<Library>,
    /// File offsets of the sites, in bytes, sorted.
    pub offsets: Vec<u64>,
}

/// Entry sites of processes that have no probes there.
#[derive(Default)]
pub(super) struct Withdrawn {
    /// By process and file: since when, by offset.
    sites: HashMap<(u32, FileId), BTreeMap<u64, Timestamp>>,
    /// Sites that were overwritten, of which nobody was told yet.
    overwritten: Vec<Overwritten>,
}

impl Withdrawn {
    /// A child lacks the probes that its parent lacks.
    pub(super) fn inherit(&mut self, pid: u32, parent: u32) {
        let of_parent = self.sites.iter().filter(|((of, _), _)| *of == parent);
        let of_child: Vec<_> = of_parent.map(|(&(_, file), sites)| ((pid, file), sites.clone())).collect();
        self.sites.extend(of_child);
    }

    /// Sites of these processes do not come back.
    pub(super) fn give_up(&mut self, placed: &BTreeMap<usize, InPlace>, is_meant: impl Fn(u32) -> bool) {
        for ((pid, file), sites) in self.sites.extract_if(|(pid, _), _| is_meant(*pid)) {
            let of_file = placed.values().map(|in_place| &in_place.placed).filter(|of| of.file_id() == Some(file));
            for placed in of_file {
                let offsets = placed.offsets().filter(|offset| sites.contains_key(offset)).collect();
                self.overwritten.extend(overwritten_in(pid, placed, offsets));
            }
        }
    }
}

/// The probes of a process at sites of this number.
fn held<'p>(
    probes: &'p mut HashMap<u32, Vec<(usize, Probes)>>,
    first: &'p mut Probes,
    pid: u32,
    number: usize,
) -> &'p mut Probes {
    let of_child = probes.get_mut(&pid).and_then(|probes| probes.iter_mut().find(|(of, _)| *of == number));
    of_child.map_or(first, |(_, probes)| probes)
}

fn overwritten_in(pid: u32, placed: &Placed, mut offsets: Vec<u64>) -> Option<Overwritten> {
    offsets.sort_unstable();
    (placed.is_of_library() && !offsets.is_empty()).then(|| Overwritten {
        pid,
        library: Arc::clone(&placed.library),
        offsets,
    })
}

impl Followed<'_> {
    /// Takes the entry probes at these places of a file out of a process, which may write to the code there. They
    /// are gone when this returns, and those around them are in place again: for what other threads call
    /// meanwhile, there is a blind window.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn withdraw(
        &self,
        process: &ProcessCode,
        pid: u32,
        file: FileId,
        is_meant: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let since = host::now();
        let mut state = self.state();
        let FollowedState { placed, probes, withdrawn, closing, .. } = &mut *state;
        let (mut interrupted, mut blind) = (HashSet::new(), HashSet::new());
        for (&number, InPlace { placed, first, .. }) in placed.iter_mut() {
            if placed.file_id() != Some(file) {
                continue;
            }
            let sites = withdrawn.sites.entry((pid, file)).or_default();
            let is_new = |offset: &u64| is_meant(*offset) && !sites.contains_key(offset);
            let offsets: Vec<u64> = placed.offsets().filter(is_new).collect();
            if offsets.is_empty() {
                continue;
            }
            placed.avoid(self.programs, pid, &offsets);
            sites.extend(offsets.into_iter().map(|offset| (offset, since)));
            let old = held(probes, first, pid, number).take_of(pid);
            if old.is_empty() {
                continue;
            }
            closing.close_first(vec![old]);
            process.wait_for_removal(placed.file.file(), placed.offsets().map(Spot::at).collect());
            match placed.place(self.programs, pid) {
                Ok(new) => held(probes, first, pid, number).extend(new),
                Err(error) if error.is_gone() => {}
                Err(error) if error.is_shortage() => drop(blind.insert(placed.library.id)),
                Err(error) => return Err(error),
            }
            interrupted.insert(placed.library.id);
        }
        if !has_one_thread(pid) {
            let windows = state.blind_in(pid, since, |library| interrupted.contains(&library.id));
            state.blind.extend(windows);
        }
        state.tell_blind_for_good(pid, since, |library| blind.contains(&library.id));
        Ok(())
    }

    /// Places the probes that were withdrawn from a process at these addresses again where it executes what the file holds and
    /// cannot write to it.
    ///
    /// # Errors
    /// As [`withdraw`](Followed::withdraw).
    pub fn restore(&self, process: &ProcessCode, pid: u32, addresses: &Range<u64>) -> Result<(), Error> {
        let mut state = self.state();
        let FollowedState { placed, probes, withdrawn, .. } = &mut *state;
        let mut blind: BTreeMap<LibraryId, Timestamp> = BTreeMap::new();
        for (&number, InPlace { placed, first, .. }) in placed.iter_mut() {
            let Some((device, inode)) = placed.file_id() else { continue };
            let Some(sites) = withdrawn.sites.get_mut(&(pid, (device, inode))) else { continue };
            let mut out = placed.spots();
            out.retain(|spot| sites.contains_key(&spot.site));
            let CodeComparison { unchanged, changed } = process.compare(placed.file.file(), out, addresses);
            withdrawn.overwritten.extend(overwritten_in(pid, placed, changed));
            if unchanged.is_empty() {
                continue;
            }
            unchanged.iter().for_each(|&offset| self.programs.allow(Probed { pid, device, inode }, offset));
            match placed.place_some(self.programs, pid, |offset| unchanged.contains(&offset)) {
                Ok(new) => held(probes, first, pid, number).extend(new),
                Err(error) if error.is_gone() => continue,
                Err(error) if error.is_shortage() => {
                    placed.avoid(self.programs, pid, &unchanged);
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(since) = unchanged.iter().filter_map(|offset| sites.remove(offset)).min() {
                let of_library = blind.entry(placed.library.id).or_insert(since);
                *of_library = since.min(*of_library);
            }
        }
        for (id, since) in blind {
            let windows = state.blind_in(pid, since, |library| library.id == id);
            state.blind.extend(windows);
        }
        Ok(())
    }

    /// Looks for entry sites of libraries that a process has overwritten, or to which what it has written in front of them
    /// leads no call, and takes their probes out. What only seems so, as the process changes while it is looked at, is none.
    ///
    /// # Errors
    /// As [`withdraw`](Followed::withdraw).
    pub fn overwritten(&self, pid: u32) -> Result<Vec<Overwritten>, Error> {
        // Children wait for their probes while the state is held.
        let state = self.state();
        let is_there =
            |(index, of): &(&usize, &InPlace)| of.placed.is_of_library() && !state.missing.contains(&(pid, **index));
        let placed: Vec<Placed> = state.placed.iter().filter(is_there).map(|(_, of)| of.placed.clone()).collect();
        let changes = self.changes();
        drop(state);
        let mut found = overwritten(pid, &placed);
        if found.is_empty() {
            return Ok(found);
        }
        let again = overwritten(pid, &placed);
        let state = self.state();
        if self.changes() != changes {
            // Some may have been withdrawn and come back meanwhile. It is looked at again soon.
            return Ok(Vec::new());
        }
        // Some may have been throttled meanwhile.
        let placed = state.placed.values().map(|in_place| &in_place.placed);
        let mut stay: HashSet<(LibraryId, u64)> = HashSet::new();
        for placed in placed {
            let withdrawn = placed.file_id().and_then(|file| state.withdrawn.sites.get(&(pid, file)));
            let has = placed.offsets().filter(|site| withdrawn.is_none_or(|sites| !sites.contains_key(site)));
            stay.extend(has.map(|site| (placed.library.id, site)));
        }
        drop(state);
        let Some(process) = ProcessCode::of(pid) else { return Ok(found) };
        for Overwritten { library, offsets, .. } in &mut found {
            let also = |offset: &u64| {
                let same = again.iter().filter(|other| other.library.id == library.id);
                let mut same = same.flat_map(|other| &other.offsets);
                stay.contains(&(library.id, *offset)) && same.any(|other| other == offset)
            };
            offsets.retain(also);
            let file = (library.device, library.inode);
            self.withdraw(&process, pid, file, |offset| offsets.binary_search(&offset).is_ok())?;
        }
        Ok(found)
    }

    /// The entry sites that were found to be overwritten since the last call.
    pub fn take_overwritten(&self) -> Vec<Overwritten> {
        std::mem::take(&mut self.state().withdrawn.overwritten)
    }

    /// No probe comes back any more.
    pub fn give_up_withdrawn(&self) {
        let FollowedState { placed, withdrawn, .. } = &mut *self.state();
        withdrawn.give_up(placed, |_| true);
    }
}

/// Whether nothing in the process runs while its only thread waits.
fn has_one_thread(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() == 1)
}

fn overwritten(pid: u32, placed: &[Placed]) -> Vec<Overwritten> {
    let Some(process) = ProcessCode::of(pid) else { return Vec::new() };
    let mut libraries: BTreeMap<LibraryId, (&Placed, Vec<Spot>)> = BTreeMap::new();
    for placed in placed.iter().filter(|placed| placed.is_unchanged()) {
        libraries.entry(placed.library.id).or_insert_with(|| (placed, Vec::new())).1.extend(placed.spots());
    }
    let of_library = |(placed, spots): (&Placed, Vec<Spot>)| {
        let Presence { absent, .. } = process.presence(placed.file.file(), spots)?;
        overwritten_in(pid, placed, absent)
    };
    libraries.into_values().filter_map(of_library).collect()
}
