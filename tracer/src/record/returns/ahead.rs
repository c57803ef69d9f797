//! Sites that are placed before anybody asks for them.
//!
//! Those of direct calls of traced functions, before the program runs; and in each process what others of its family have
//! met: programs of one kind call from the same places. All go through one queue, of which some are placed at a time:
//! who forks or meets a return address meanwhile waits. What is about to execute a program waits for its own.
//!
//! All sites of a file are tried in few processes of a program. A C library has ten thousand of them, most of which
//! nobody ever meets, and to place and remove them takes a tenth of a second: a script that executes forty small programs
//! took 5.9 s instead of 0.05.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use rtrace_bpf::{Error, FilePlace, MAX_SITES};
use rtrace_code::arrival::{self, ReturnProbe};
use rtrace_code::flow::Joined;
use rtrace_symbolizer::modules;

use super::{FileId, ReturnSites};
use crate::record::callers::{CallerFile, LoadedFiles};
use crate::record::gate::Execution;
use crate::record::pauses::{Busy, Pauses};
use crate::target;

/// Sites that are placed before anybody has met them, at most: the kernel takes 5 us to place one and 7 us to take
/// it out, and of a large library hardly one in twenty is ever hit.
pub(super) const MOST_AHEAD: usize = 1 << 17;
/// The same in files that the process may never load, and in children, which may execute another program.
const MOST_IN_DOUBT: usize = MOST_AHEAD / 2;
/// Sites in place at which others of the family were met: the hits of more are not counted.
const MOST_SHARED: usize = MAX_SITES as usize;

/// Time for them, as the program does not run or is not recorded meanwhile: where many programs map a file, or others
/// place probes or fork, a site takes up to a millisecond. What is left out is placed when it is met.
pub const TIME_AHEAD: Duration = Duration::from_secs(1);

/// Sites that are placed at once where somebody may wait for others. Where these take too long, the others of the file
/// are left out.
const BATCH: usize = 256;
const LONGEST: Duration = Duration::from_millis(10);
/// Target duration of one batch if no thread waits for it.
const BATCH_TIME: Duration = Duration::from_millis(30);

/// Larger families get only what each process meets: placing a site in all of them would take longer than it is missed.
const MOST_SIBLINGS: usize = 64;

/// All sites of a file are placed ahead until so many processes of a program have ended.
const MOST_TRIES: u32 = 2;

/// Return addresses that are wanted, and those that anybody has met.
#[derive(Default)]
pub(super) struct Ahead {
    /// Offsets in files that are to be placed next, by process.
    wanted: BTreeMap<u32, VecDeque<(FileId, BTreeSet<u64>)>>,
    /// Processes that get none.
    left_out: HashSet<u32>,
    /// Return addresses that anybody has met, by file.
    met: HashMap<FileId, BTreeSet<u64>>,
    /// Where others come along behind these return addresses that do not make the call.
    joined: HashMap<(FileId, u64), Joined>,
    /// Each hit in vain counts: what runs while sites are placed is not to be slowed down.
    spares: bool,
    /// In how many processes that have ended all sites of a file were to be placed, by their program and the file.
    tries: HashMap<(FileId, FileId), u32>,
    /// The same of those that run.
    trying: HashMap<u32, BTreeSet<(FileId, FileId)>>,
    /// Who was last served of those that want sites.
    served: u32,
}

/// Some return addresses of a file that a process wants.
struct Wanted {
    pid: u32,
    file: FileId,
    offsets: BTreeSet<u64>,
}

/// A program that waits to be executed until its sites are placed, or the time is over.
pub(super) struct Held<'a> {
    program: Execution<'a>,
    until: Instant,
}

impl Ahead {
    /// A process gets no sites any more.
    pub fn leave_out(&mut self, pid: u32) {
        self.left_out.insert(pid);
        self.want_nothing(pid);
    }

    /// Forgets processes that have ended.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        let ended: Vec<u32> = self.trying.keys().copied().filter(|&pid| !lives(pid)).collect();
        ended.into_iter().for_each(|pid| self.end_tries(pid));
        self.wanted.retain(|&pid, _| lives(pid));
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
    fn try_all(&mut self, pid: u32, program: Option<FileId>, file: FileId) -> bool {
        let Some(program) = program else { return true };
        let tried = (program, file);
        let is_worth_it = self.tries.get(&tried).is_none_or(|&tries| tries < MOST_TRIES);
        if is_worth_it {
            self.trying.entry(pid).or_default().insert(tried);
        }
        is_worth_it
    }

    /// A process has ended: where it was hit is known.
    fn end_tries(&mut self, pid: u32) {
        for tried in self.trying.remove(&pid).unwrap_or_default() {
            *self.tries.entry(tried).or_default() += 1;
        }
    }

    /// These return addresses of a file are to be placed in a process, if it gets any.
    fn want(&mut self, pid: u32, file: FileId, offsets: impl IntoIterator<Item = u64>) {
        let offsets: BTreeSet<u64> = offsets.into_iter().collect();
        if offsets.is_empty() || self.left_out.contains(&pid) {
            return;
        }
        let files = self.wanted.entry(pid).or_default();
        match files.iter_mut().find(|(wanted, _)| *wanted == file) {
            Some((_, wanted)) => wanted.extend(offsets),
            None => files.push_back((file, offsets)),
        }
    }

    /// Forgets what a process wanted.
    pub fn want_nothing(&mut self, pid: u32) {
        self.wanted.remove(&pid);
    }

    /// Forgets what a process wanted in a file.
    fn want_none_of(&mut self, pid: u32, file: FileId) {
        if let Some(files) = self.wanted.get_mut(&pid) {
            files.retain(|(wanted, _)| *wanted != file);
        }
    }

    /// What is to be placed next: each process in turn.
    fn next(&mut self) -> Option<Wanted> {
        let mut behind = self.wanted.range((Bound::Excluded(self.served), Bound::Unbounded));
        let pid = behind.next().or_else(|| self.wanted.first_key_value()).map(|(&pid, _)| pid)?;
        self.served = pid;
        self.next_of(pid, BATCH)
    }

    /// What of a process is, at most so many of a file.
    fn next_of(&mut self, pid: u32, most: usize) -> Option<Wanted> {
        let files = self.wanted.get_mut(&pid)?;
        let wanted = files.pop_front().map(|(file, mut offsets)| {
            if let Some(&next) = offsets.iter().nth(most) {
                files.push_front((file, offsets.split_off(&next)));
            }
            Wanted { pid, file, offsets }
        });
        if files.is_empty() {
            self.wanted.remove(&pid);
        }
        wanted
    }

    /// Whether something is to be placed.
    pub fn want_any(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// How many are to be placed.
    fn count(&self) -> usize {
        self.wanted.values().flatten().map(|(_, offsets)| offsets.len()).sum()
    }
}

impl ReturnSites<'_> {
    /// Places the sites of direct calls in these files before the process runs on, those of its program first and then
    /// of small files, not more than are worth it, and not for longer than that; those that it has stay as they are. A
    /// process that runs meanwhile is left alone in `pauses`.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn prime(
        &mut self,
        pid: u32,
        files: &[CallerFile],
        time: Duration,
        pauses: Option<Pauses>,
    ) -> Result<(), Error> {
        self.ahead.spares |= pauses.is_some();
        let path = target::program_of(pid);
        let program = target::identity(&path).ok();
        let mapped = modules::of_process(pid).unwrap_or_default();
        self.callers.look_into(mapped.iter().map(|module| ((module.device, module.inode), module.open_path())));
        for file in files {
            self.ahead.try_all(pid, program, (file.device, file.inode));
        }
        self.want_calls(pid, program, files.iter().collect(), MOST_AHEAD);
        let until = Instant::now() + time;
        let (mut most, mut busy) = (BATCH, Busy::new(std::slice::from_ref(&pid)));
        while Instant::now() < until
            && let Some(wanted) = self.ahead.next_of(pid, most)
        {
            if let Some(pauses) = pauses {
                pauses.around(&mut busy, || self.place_wanted(&wanted))?;
            } else {
                let begin = Instant::now();
                self.place_wanted(&wanted)?;
                most = if begin.elapsed() < BATCH_TIME { most * 2 } else { (most / 2).max(1) };
            }
        }
        self.ahead.want_nothing(pid);
        Ok(())
    }

    /// A process that is about to execute a program wants what was met in the files that this loads, and all sites of
    /// those that are still to be tried in it.
    pub(super) fn hold<'a>(&mut self, program: Execution<'a>, loaded: &LoadedFiles) -> Held<'a> {
        let pid = program.pid;
        // What it wanted so far is of the program that it executed before.
        self.ahead.want_nothing(pid);
        self.want_met(pid, loaded.files.iter().map(|(file, _)| *file));
        for (files, most) in [(&loaded.callers, MOST_AHEAD), (&loaded.later, MOST_IN_DOUBT)] {
            let is_untried = |file: &&CallerFile| self.ahead.try_all(pid, loaded.program, (file.device, file.inode));
            let files = files.iter().filter(is_untried).collect();
            self.want_calls(pid, loaded.program, files, most);
        }
        self.callers.look_into(loaded.files.iter().cloned());
        Held { program, until: Instant::now() + TIME_AHEAD }
    }

    /// Places some of what a program wants that waits to be executed, which goes on when it wants nothing more.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_held<'a>(&mut self, held: Held<'a>) -> Result<Option<Held<'a>>, Error> {
        let is_placed = Instant::now() < held.until && self.place_some_of(held.program.pid)?;
        Ok(is_placed.then_some(held))
    }

    /// Places some of what a process wants; returns whether it wanted any.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_some_of(&mut self, pid: u32) -> Result<bool, Error> {
        let wanted = self.ahead.next_of(pid, BATCH);
        wanted.iter().try_for_each(|wanted| self.place_wanted(wanted))?;
        Ok(wanted.is_some())
    }

    /// A child wants what its parent has and its siblings have met.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub fn take_in(&mut self, pid: u32, parent: u32) -> Result<(), Error> {
        let (Some(space), Some(of_parent)) = (self.programs.space(pid)?, self.programs.space(parent)?) else {
            return Ok(());
        };
        self.spaces.inherit(pid, space, of_parent);
        self.jumps.adopt(pid, parent)?;
        self.want_met(pid, self.spaces.files(space));
        // Where threads wait for sites, they ask for what nobody has met.
        let tries = !self.programs.may_wait();
        let program = if tries { target::identity(&target::program_of(pid)).ok() } else { None };
        for (file, _, sites) in self.links.of(parent) {
            let sites = sites.into_iter().filter(|site| !self.placed[site.id as usize].is_interim);
            let (met, others): (Vec<u64>, Vec<u64>) =
                sites.map(|site| site.offset).partition(|&offset| self.ahead.has_met(file, offset));
            self.ahead.want(pid, file, met);
            if tries && others.len() <= self.room(MOST_IN_DOUBT) && self.ahead.try_all(pid, program, file) {
                self.ahead.want(pid, file, others);
            }
        }
        Ok(())
    }

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
            let is_new = |offset: &u64| {
                let key = (other, file, *offset);
                !self.known.contains_key(&key) && !self.gone.contains_key(&key)
            };
            self.ahead.want(other, file, offsets.iter().copied().filter(is_new));
        }
    }

    /// Places some of what is wanted.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub(super) fn place_next(&mut self) -> Result<(), Error> {
        let Some(wanted) = self.ahead.next() else { return Ok(()) };
        let begin = Instant::now();
        self.place_wanted(&wanted)?;
        if begin.elapsed() > LONGEST {
            self.ahead.want_none_of(wanted.pid, wanted.file);
        }
        Ok(())
    }

    /// A process wants what others have met of these files.
    fn want_met(&mut self, pid: u32, files: impl IntoIterator<Item = FileId>) {
        for file in files {
            let met = self.ahead.met.get(&file).cloned().unwrap_or_default();
            self.ahead.want(pid, file, met);
        }
    }

    /// A process wants the sites of direct calls in these files, as long as there are not more than that.
    fn want_calls(&mut self, pid: u32, program: Option<FileId>, mut files: Vec<&CallerFile>, most: usize) {
        files.sort_by_key(|file| (program != Some((file.device, file.inode)), file.returns.len()));
        for file in files {
            let id = (file.device, file.inode);
            self.callers.add(id, &file.path, file.stamp);
            for call in file.returns.iter().filter(|call| call.is_direct) {
                let keeps = self.direct.entry((id, call.offset)).or_default();
                *keeps = keeps.or(call.keeps);
            }
            let joined = file.returns.iter().map(|call| ((id, call.offset), call.joined));
            self.ahead.joined.extend(joined.filter(|(_, joined)| *joined != Joined::default()));
            let mut offsets: Vec<u64> = file.returns.iter().map(|call| call.offset).collect();
            offsets.retain(|&offset| !self.known.contains_key(&(pid, id, offset)));
            // Compilers put first what is hardly ever executed.
            offsets.drain(..offsets.len().saturating_sub(self.room(most)));
            self.ahead.want(pid, id, offsets);
        }
    }

    /// How many sites that nobody may ever meet are still worth their place, and their ids, which are not used again.
    fn room(&self, most: usize) -> usize {
        let used = self.known.len().max(self.placed.len() / 2) + self.ahead.count();
        most.min(self.most_ahead).saturating_sub(used)
    }

    /// How many more sites may be placed at which somebody was met, or may soon be.
    pub(super) fn room_for_met(&self) -> usize {
        MOST_SHARED.saturating_sub(self.known.len())
    }

    /// Whether a site that nobody asks for is worth its hits: where threads wait, that of a call that may never happen is not
    /// worth those of its loop, and with a budget not those of anybody else. A redis of whose 3,252 functions only those were recorded
    /// that are called rarely kept 35 % of its requests while their return sites were placed.
    pub(super) fn is_worth(&self, file: FileId, offset: u64, site: ReturnProbe) -> bool {
        let joined = self.ahead.joined.get(&(file, offset)).filter(|_| self.programs.may_wait());
        let joined = joined.and_then(|joined| if self.ahead.spares { joined.by_any } else { joined.in_loop });
        joined.is_none_or(|joined| joined > u64::from(site.distance)) || self.ahead.has_met(file, offset)
    }

    /// Places these.
    fn place_wanted(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let Wanted { pid, file, offsets } = wanted;
        let (pid, file) = (*pid, *file);
        let Some(path) = self.callers.path(file) else { return Ok(()) };
        // Once functions were throttled, each site that is not needed counts.
        if self.before.is_some() || offsets.len() > self.room_for_met() {
            return Ok(());
        }
        let is_new = |offset: &u64| !self.known.contains_key(&(pid, file, *offset));
        let offsets: Vec<u64> = offsets.iter().copied().filter(is_new).collect();
        let direct = &self.direct;
        let arrivals = self.callers.arrivals(file, &offsets, |offset| direct.get(&(file, offset)).copied());
        let mut sites = Vec::with_capacity(offsets.len());
        let mut primed = Vec::new();
        for (offset, arrival) in offsets.into_iter().zip(arrivals) {
            let place = FilePlace { device: file.0, inode: file.1, offset, pid };
            match arrival {
                // The sites of one may have brought those of another.
                arrival::Arrival::Site(site) if !self.known.contains_key(&(pid, file, offset)) => {
                    if self.is_worth(file, offset, site) {
                        sites.extend(self.sites(file, offset, pid, site, Vec::new()));
                    }
                }
                arrival::Arrival::Skip { words } => primed.push((place, self.skipped(file, offset, words))),
                arrival::Arrival::Never => primed.push((place, self.never_met(file, offset))),
                arrival::Arrival::Site(_) | arrival::Arrival::Impossible => {}
            }
        }
        let process = self.programs.space(pid)?.and_then(|space| self.spaces.process(pid, space));
        let refused = self.place_unchanged((pid, process), file, &path, &sites)?;
        for id in sites.iter().map(|site| site.id) {
            match refused.contains(&id) {
                true => self.forget(id),
                false => primed.push((self.placed[id as usize].place(), self.in_place(id))),
            }
        }
        self.programs.prime(&primed)
    }
}
