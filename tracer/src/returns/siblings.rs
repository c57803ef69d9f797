//! What one process of a family has met is placed in the others, before calls come from there: programs of one kind
//! call from the same places.
//!
//! Done while nobody waits for a site, a file of a process at a time, and in programs that wait to be executed.
//!
//! So all sites of a file are tried in few processes of a program. A C library has ten thousand of them, most of which
//! nobody ever meets, and to place and remove them takes a tenth of a second: a script that executes forty small programs
//! took 5.9 s instead of 0.05.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use rtrace_bpf::{Arrival, Error, FilePlace};
use rtrace_code::arrival;

use super::{FileId, ReturnSites};

/// Larger families get only what each process meets: placing a site in all of them would take longer than it is missed.
const MOST_SIBLINGS: usize = 64;

/// Time for a file of a process at once: who asks for a site waits.
const TIME_AHEAD_IN_SIBLING: Duration = Duration::from_millis(10);
const MOST_AT_ONCE: usize = 1024;

/// All sites of a file are placed ahead until so many processes of a program have ended.
const MOST_TRIES: u32 = 2;

/// Return addresses that others have met.
#[derive(Default)]
pub(super) struct Siblings {
    /// Offsets in a file, by process and file.
    wanted: BTreeMap<(u32, FileId), BTreeSet<u64>>,
    /// Processes that get none.
    left_out: HashSet<u32>,
    /// Return addresses that anybody has met, by file.
    met: HashMap<FileId, BTreeSet<u64>>,
    /// In how many processes that have ended all sites of a file were to be placed, by their program and the file.
    tries: HashMap<(FileId, FileId), u32>,
    /// The same of those that run.
    trying: HashMap<u32, BTreeSet<(FileId, FileId)>>,
    /// Who was last served of those that want sites.
    served: Option<(u32, FileId)>,
}

impl Siblings {
    /// A process gets no sites any more.
    pub fn leave_out(&mut self, pid: u32) {
        self.left_out.insert(pid);
    }

    /// Forgets processes that have ended.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        let ended: Vec<u32> = self.trying.keys().copied().filter(|&pid| !lives(pid)).collect();
        ended.into_iter().for_each(|pid| self.end_tries(pid));
        self.wanted.retain(|&(pid, _), _| lives(pid));
        self.left_out.retain(|&pid| lives(pid));
    }

    /// Somebody was met at this return address of a file.
    pub fn meet(&mut self, file: FileId, offset: u64) {
        self.met.entry(file).or_default().insert(offset);
    }

    /// Whether anybody was met there.
    pub fn has_met(&self, file: FileId, offset: u64) -> bool {
        self.met.get(&file).is_some_and(|met| met.contains(&offset))
    }

    /// One more process of this program is to get all sites of a file; returns whether that is still worth it.
    ///
    /// Only those that have ended have shown which sites are hit: the ranks of a parallel program, which run at the same
    /// time, all get them.
    pub fn try_all(&mut self, pid: u32, program: Option<FileId>, file: FileId) -> bool {
        let Some(program) = program else { return true };
        let tried = (program, file);
        let is_worth_it = self.tries.get(&tried).is_none_or(|&tries| tries < MOST_TRIES);
        if is_worth_it {
            self.trying.entry(pid).or_default().insert(tried);
        }
        is_worth_it
    }

    /// What a process wanted so far is of the program that it executed before.
    pub fn want_nothing(&mut self, pid: u32) {
        self.wanted.retain(|&(of, _), _| of != pid);
    }

    /// A process has ended: where it was hit is known.
    fn end_tries(&mut self, pid: u32) {
        for tried in self.trying.remove(&pid).unwrap_or_default() {
            *self.tries.entry(tried).or_default() += 1;
        }
    }

    /// These return addresses of a file are to be placed in a process, if it gets any.
    pub fn want(&mut self, pid: u32, file: FileId, offsets: Vec<u64>) {
        if !offsets.is_empty() && !self.left_out.contains(&pid) {
            self.wanted.entry((pid, file)).or_default().extend(offsets);
        }
    }

    /// What is to be placed next: each process and file in turn.
    fn next(&mut self) -> Option<((u32, FileId), BTreeSet<u64>)> {
        let behind = self.served.and_then(|served| {
            let behind = self.wanted.range((Bound::Excluded(served), Bound::Unbounded)).next();
            behind.map(|(key, _)| *key)
        });
        let key = behind.or_else(|| self.wanted.keys().next().copied())?;
        self.served = Some(key);
        self.wanted.remove_entry(&key)
    }

    /// Whether something is to be placed.
    pub fn want_any(&self) -> bool {
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
        for other in others {
            let is_new = |offset: &&u64| {
                let key = (other, file, **offset);
                !self.known.contains_key(&key) && !self.gone.contains_key(&key)
            };
            let new: Vec<u64> = offsets.iter().filter(is_new).copied().collect();
            self.siblings.want(other, file, new);
        }
    }

    /// Places what others have met of one file of one process.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_shared(&mut self) -> Result<(), Error> {
        let Some(((pid, file), mut offsets)) = self.siblings.next() else { return Ok(()) };
        if self.siblings.left_out.contains(&pid) {
            return Ok(());
        }
        if let Some(&next) = offsets.iter().nth(MOST_AT_ONCE) {
            let rest = offsets.split_off(&next);
            self.siblings.wanted.insert((pid, file), rest);
        }
        let until = Instant::now() + TIME_AHEAD_IN_SIBLING;
        self.place_met(pid, file, &offsets, until)?;
        if Instant::now() > until {
            // A site takes the kernel long now, and the programs wait for it.
            self.siblings.wanted.remove(&(pid, file));
        }
        Ok(())
    }

    /// Places in a program that waits to be executed, or was just forked, what was met in the files that it loads.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_met_in(
        &mut self,
        pid: u32,
        files: impl IntoIterator<Item = FileId>,
        time: Duration,
    ) -> Result<(), Error> {
        if self.before.is_some() {
            return Ok(());
        }
        let until = Instant::now() + time;
        let met = |file: FileId| Some((file, self.siblings.met.get(&file)?.clone()));
        let met: Vec<_> = files.into_iter().filter_map(met).collect();
        met.into_iter().try_for_each(|(file, offsets)| self.place_met(pid, file, &offsets, until))
    }

    /// Places what others have met of one file of one process.
    fn place_met(&mut self, pid: u32, file: FileId, offsets: &BTreeSet<u64>, until: Instant) -> Result<(), Error> {
        let Some(path) = self.callers.path(file) else { return Ok(()) };
        if offsets.len() > self.room_for_met() {
            return Ok(());
        }
        let mut placements = Vec::with_capacity(offsets.len());
        let mut without_probe = Vec::new();
        for &offset in offsets {
            // The sites of one may have brought those of another.
            if self.known.contains_key(&(pid, file, offset)) {
                continue;
            }
            let place = FilePlace { device: file.0, inode: file.1, offset, pid };
            match self.callers.arrival(file, offset, self.read_at(file, offset)) {
                arrival::Arrival::Site(site) => placements.extend(self.sites(file, offset, pid, site, Vec::new())),
                arrival::Arrival::Skip { words } => without_probe.push((place, Arrival::Skip(words))),
                arrival::Arrival::Never => without_probe.push((place, self.never_met(file, offset))),
                arrival::Arrival::Impossible => {}
            }
        }
        self.programs.prime(&without_probe)?;
        match self.link_ahead(pid, file, &path, &placements, until) {
            Err(error) if error.is_gone() => {
                placements.iter().for_each(|site| self.forget(site.id));
                Ok(())
            }
            primed => self.programs.prime(&primed?),
        }
    }
}
