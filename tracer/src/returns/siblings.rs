//! What one process of a family has met is placed in the others, before calls come from there: programs of one kind
//! call from the same places.
//!
//! Done while nobody waits for a site, a file of a process at a time, and in programs that wait to be executed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use foldhash::HashSet;
use rtrace_bpf::Error;
use rtrace_code::arrival;

use super::{FileId, ReturnSites};

/// Larger families get only what each process meets: placing a site in all of them would take longer than it is missed.
const MOST_SIBLINGS: usize = 64;

/// Time for a file of a process: who asks for a site waits.
const TIME_AHEAD_IN_SIBLING: Duration = Duration::from_millis(50);

/// Return addresses that others have met.
#[derive(Default)]
pub(super) struct Siblings {
    /// Offsets in a file, by process and file.
    wanted: BTreeMap<(u32, FileId), BTreeSet<u64>>,
    /// Processes that get none.
    left_out: HashSet<u32>,
}

impl Siblings {
    /// A process gets no sites any more.
    pub fn leave_out(&mut self, pid: u32) {
        self.left_out.insert(pid);
    }

    /// Whether something is to be placed.
    pub fn want(&self) -> bool {
        !self.wanted.is_empty()
    }
}

impl ReturnSites<'_> {
    /// A process has met these return addresses of a file.
    pub(super) fn share(&mut self, pid: u32, file: FileId, offsets: &[u64]) {
        // Once functions were throttled, each site that is not needed counts.
        if self.before.is_some() {
            return;
        }
        let others: Vec<u32> = self.links.processes_with(file).filter(|&other| other != pid).collect();
        if others.len() > MOST_SIBLINGS {
            return;
        }
        for other in others.into_iter().filter(|other| !self.siblings.left_out.contains(other)) {
            let is_new = |offset: &&u64| {
                let key = (other, file, **offset);
                !self.known.contains_key(&key) && !self.gone.contains_key(&key)
            };
            let new: Vec<u64> = offsets.iter().filter(is_new).copied().collect();
            if !new.is_empty() {
                self.siblings.wanted.entry((other, file)).or_default().extend(new);
            }
        }
    }

    /// Places what others have met of one file of one process.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_shared(&mut self) -> Result<(), Error> {
        let Some(((pid, file), offsets)) = self.siblings.wanted.pop_first() else { return Ok(()) };
        match self.siblings.left_out.contains(&pid) {
            true => Ok(()),
            false => self.place_met(pid, file, &offsets, Instant::now() + TIME_AHEAD_IN_SIBLING),
        }
    }

    /// Places in a program that waits to be executed what was met in the files that it will load.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_met_in(&mut self, pid: u32, files: &[FileId], time: Duration) -> Result<(), Error> {
        if self.before.is_some() {
            return Ok(());
        }
        let until = Instant::now() + time;
        let met = self.met();
        files
            .iter()
            .filter_map(|file| met.get_key_value(file))
            .try_for_each(|(file, offsets)| self.place_met(pid, *file, offsets, until))
    }

    /// Places what others have met of one file of one process.
    fn place_met(&mut self, pid: u32, file: FileId, offsets: &BTreeSet<u64>, until: Instant) -> Result<(), Error> {
        let Some(path) = self.callers.path(file) else { return Ok(()) };
        if offsets.len() > self.room_for_met() {
            return Ok(());
        }
        let mut placements = Vec::with_capacity(offsets.len());
        for &offset in offsets {
            // The sites of one may have brought those of another.
            if !self.known.contains_key(&(pid, file, offset))
                && let arrival::Arrival::Site(site) = self.callers.arrival(file, offset, self.read_at(file, offset))
            {
                placements.extend(self.sites(file, offset, pid, site, Vec::new()));
            }
        }
        match self.link_ahead(pid, file, &path, &placements, until) {
            Err(error) if error.is_gone() => {
                placements.iter().for_each(|site| self.forget(site.id));
                Ok(())
            }
            primed => self.programs.prime(&primed?),
        }
    }
}
