//! Return sites: the probes at return addresses by which calls are seen to have returned.
//!
//! Those of direct calls are placed before recording begins. The others are placed when the kernel side
//! first meets a return address and asks about it, within a few milliseconds and in batches: calls from
//! there that return before have no duration. Sites that mostly see returns of calls that nobody traces
//! are taken out again, until more traced calls come from there; so are those of functions that a budget has
//! throttled.

pub(crate) mod caller;
mod hold;
mod inspect;
pub mod jumps;
mod links;
mod met;
mod placed;
mod siblings;
mod spaces;
mod standby;
mod usefulness;
mod warmth;

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use rtrace_bpf::wire::{self, QuestionCode, QuestionRecord, SiteHitsRecord};
use rtrace_bpf::{Arrival, Error, FilePlace, MAX_SITES, Probes, Programs, Questions, Since, Site, SiteHits};
use rtrace_code::arrival::{self, Keeps, ReturnSite};
use rtrace_code::calls::Callee;
use rtrace_code::instruction::Emulation;
use rtrace_model::{ReturnSites as Summary, Timestamp};
use rtrace_plan::Plan;
use rtrace_symbolizer::modules;
use rtrace_symbolizer::parts::Parts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::caller::Callers;
use self::hold::Hold;
use self::jumps::{Candidate, Jumps};
use self::links::{Links, Placement};
use self::placed::Placed;
use self::siblings::Siblings;
use self::spaces::Spaces;
use self::standby::Standby;
use self::warmth::Warmth;
use crate::address_spaces::AddressSpaces;
use crate::callers::{CallerFile, Executed, Loaded, Return};
use crate::followed::Followed;
use crate::gate::Gate;
use crate::host;
use crate::inspection::Turns;
use crate::presence::Presence;
use crate::{privilege, target, translated};

/// Longest wait for a question, and so for the end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Time between two looks at what sites cost; once functions have been throttled, as the sites of those may be hit by
/// nothing else and slow the program down as much as before; and from then to the first.
const TIDY_PERIOD: Duration = Duration::from_millis(250);
const SOON_TIDY: Duration = Duration::from_millis(50);
const FIRST_TIDY: Duration = Duration::from_millis(20);

/// Sites that are placed before anybody has met them, at the most: the kernel takes 5 us to place one and 7 us to take
/// it out, and of a large library hardly one in twenty is ever hit.
const MOST_AHEAD: usize = 1 << 17;
/// The same in files that the process may never load, and in children, which may execute another program.
const MOST_IN_DOUBT: usize = MOST_AHEAD / 2;
/// Return addresses about which threads ask for which sites are placed at once: they wait for that.
const MOST_AT_ONCE: usize = 8;
/// Sites in place at which others of the family were met: the hits of more are not counted.
const MOST_SHARED: usize = MAX_SITES as usize;

/// Time for them, as the program is not recorded meanwhile: where many programs map a file, or others place probes or
/// fork, a site takes up to a millisecond. What is left out is placed when it is met.
pub const TIME_AHEAD: Duration = Duration::from_secs(1);
/// The same in a child, whose calls are missing meanwhile.
const TIME_AHEAD_IN_CHILD: Duration = Duration::from_millis(250);
/// A batch of sites takes about so long, as far as it can be told.
const BATCH_TIME: Duration = Duration::from_millis(30);
const FIRST_BATCH: usize = 256;

/// What the governor and the return sites tell each other.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Other functions are recorded than before, so sites are to follow.
    pub levels_changed: AtomicBool,
    /// Hits in vain so far, how many of them were single-stepped, and nanoseconds that the program took at them.
    pub in_vain: AtomicU64,
    pub stepped_in_vain: AtomicU64,
    pub spent_in_vain: AtomicU64,
}

/// A file, by device and inode.
pub(crate) type FileId = (u64, u64);

/// A return address in a file of a process, by its offset.
type Key = (u32, FileId, u64);

/// What a place has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Returns, and calls that came from there while it had no probe.
    returns: u64,
    /// Hits in vain, or what costs as much.
    unmatched: u64,
    /// How often its site was taken out, and when it last was.
    times: u32,
    since: Option<Since>,
}

/// A site that was taken out.
struct Dropped {
    /// Its addresses by space.
    addresses: Vec<(u32, u64)>,
    /// Calls from there that are missed before the kernel side asks for it.
    after: u32,
    /// It was asked for while it had to stay away.
    is_wanted: bool,
}

/// All return sites of a recording.
pub struct ReturnSites<'a> {
    programs: &'a Programs,
    callers: Callers,
    spaces: Spaces,
    siblings: Siblings,
    links: Links<'a>,
    jumps: Jumps<'a>,
    /// What has kept the kernel ready.
    warmth: Option<Warmth<'a>>,
    hits: SiteHits,
    /// By id.
    placed: Vec<Placed>,
    /// Return addresses of direct calls of traced functions, with what is read of these calls when they have returned.
    direct: HashMap<(FileId, u64), Keeps>,
    /// Return addresses from which callers only return, but too many one above the other.
    only_returns: HashSet<(FileId, u64)>,
    /// How many further calls of a callee are looked for where the next one is met in a file of a process.
    met: HashMap<(u32, FileId, Callee), usize>,
    /// Those that are in place.
    known: HashMap<Key, u32>,
    /// Those that were taken out, and did not come back.
    dropped: HashMap<Key, Dropped>,
    /// Those that ever were taken out, with what they have seen since levels last changed, and when they last were.
    gone: HashMap<Key, Seen>,
    /// Those that were taken out since functions were throttled.
    held: HashMap<Key, Hold>,
    /// Sites for which the processes have memory, before anybody has met them.
    most_ahead: usize,
    /// Those that processes have overwritten.
    overwritten: Vec<Presence>,
    turns: Turns,
    /// Hits until levels last changed; none where they never did.
    before: Option<Vec<SiteHitsRecord>>,
}

impl<'a> ReturnSites<'a> {
    /// None yet. `emulation`: what the kernel does without a single step; `keeps`: what must be as it was when a
    /// return is seen; `plan` and `patterns`: what is traced, now and once it is loaded; `spaces`: what processes map.
    ///
    /// # Errors
    /// The hits of the sites cannot be mapped.
    pub fn new(
        programs: &'a Programs,
        emulation: Emulation,
        keeps: Keeps,
        plan: &Plan,
        patterns: &[String],
        spaces: AddressSpaces,
    ) -> Result<ReturnSites<'a>, Error> {
        Ok(ReturnSites {
            programs,
            callers: Callers::new(emulation, keeps),
            spaces: Spaces::new(spaces),
            siblings: Siblings::default(),
            links: Links::new(programs),
            jumps: Jumps::new(programs, plan, patterns),
            warmth: None,
            hits: programs.site_hits()?,
            placed: Vec::new(),
            direct: HashMap::new(),
            only_returns: HashSet::new(),
            met: HashMap::new(),
            known: HashMap::new(),
            dropped: HashMap::new(),
            gone: HashMap::new(),
            held: HashMap::new(),
            most_ahead: MOST_AHEAD,
            overwritten: Vec::new(),
            turns: Turns::new(),
            before: None,
        })
    }

    /// Not more sites are placed before anybody has met them: each may be in a page of its own, of which the process gets
    /// a copy.
    pub fn place_ahead_at_most(&mut self, most: usize) {
        self.most_ahead = most;
    }

    /// Places probes on the functions of these files by which control leaves others in a process.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn see_jumps(&mut self, pid: u32, files: &[Candidate]) -> Result<(), Error> {
        self.jumps.place(pid, files)
    }

    /// Keeps away from code that is not the file's any more in a process: by file, where.
    pub fn avoid(&mut self, altered: HashMap<FileId, Parts>) {
        self.callers.avoid(altered);
    }

    /// Places the sites of direct calls in these files before the process runs on, those of its program first and then
    /// of small files, not more than are worth it, and not for longer than that; those that it has stay as they are.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn prime(&mut self, pid: u32, files: &[CallerFile], time: Duration) -> Result<(), Error> {
        let path = target::program_of(pid);
        let program = target::identity(&path).ok();
        let mapped = modules::of_process(pid).unwrap_or_default();
        self.callers.look_into(mapped.iter().map(|module| ((module.device, module.inode), module.open_path())));
        for file in files {
            self.siblings.try_all(pid, program, (file.device, file.inode));
        }
        self.prime_within(pid, program, files.iter().collect(), time, MOST_AHEAD)
    }

    /// The same in a process that waits to execute a program, for the files that are still to be tried in that.
    fn prime_executed(&mut self, pid: u32, loaded: &Loaded) -> Result<(), Error> {
        let Loaded { program, callers, later, .. } = loaded;
        self.siblings.want_nothing(pid);
        for (files, most) in [(callers, MOST_AHEAD), (later, MOST_IN_DOUBT)] {
            let is_untried = |file: &&CallerFile| self.siblings.try_all(pid, *program, (file.device, file.inode));
            let files = files.iter().filter(is_untried).collect();
            self.prime_within(pid, *program, files, TIME_AHEAD, most)?;
        }
        Ok(())
    }

    /// The same as long as there are not more sites than that.
    fn prime_within(
        &mut self,
        pid: u32,
        program: Option<FileId>,
        mut files: Vec<&CallerFile>,
        time: Duration,
        most: usize,
    ) -> Result<(), Error> {
        let until = Instant::now() + time;
        let mut primed = Vec::new();
        files.sort_by_key(|file| (program != Some((file.device, file.inode)), file.returns.len()));
        for file in files {
            let id = (file.device, file.inode);
            self.callers.add(id, &file.path, file.stamp);
            for call in file.returns.iter().filter(|call| call.is_direct) {
                let keeps = self.direct.entry((id, call.offset)).or_default();
                *keeps = keeps.or(call.keeps);
            }
            let mut placements = Vec::new();
            let is_new = |call: &&Return| !self.known.contains_key(&(pid, id, call.offset));
            let mut calls: Vec<&Return> = file.returns.iter().filter(is_new).collect();
            // Compilers put first what is hardly ever executed.
            calls.drain(..calls.len().saturating_sub(self.room(most)));
            // Where threads wait, the site of a call that may never happen is not worth the hits of its loop.
            let may_wait = self.programs.may_wait();
            let is_joined =
                |call: &Return, site: &ReturnSite| call.joined.is_some_and(|joined| joined <= u64::from(site.distance));
            let returns: Vec<u64> = calls.iter().map(|call| call.offset).collect();
            let direct = &self.direct;
            let arrivals = self.callers.arrivals(id, &returns, |offset| direct.get(&(id, offset)).copied());
            for (call, arrival) in calls.into_iter().zip(arrivals) {
                let offset = call.offset;
                let place = FilePlace { device: file.device, inode: file.inode, offset, pid };
                match arrival {
                    arrival::Arrival::Site(site) if may_wait && is_joined(call, &site) => {}
                    arrival::Arrival::Site(site) => {
                        placements.extend(self.sites(id, offset, pid, site, Vec::new()));
                    }
                    arrival::Arrival::Skip { words } => primed.push((place, Arrival::Skip(words))),
                    arrival::Arrival::Never => primed.push((place, self.never_met(id, offset))),
                    arrival::Arrival::Impossible => {}
                }
            }
            let Some(path) = self.callers.path(id) else { continue };
            primed.extend(self.link_ahead(pid, id, &path, &placements, until)?);
        }
        self.programs.prime(&primed)
    }

    /// How many sites that nobody may ever meet are still worth their place, and their ids, which are not used again.
    fn room(&self, most: usize) -> usize {
        most.min(self.most_ahead).saturating_sub(self.known.len().max(self.placed.len() / 2))
    }

    /// How many more sites at which others of the family were met may be placed.
    fn room_for_met(&self) -> usize {
        MOST_SHARED.saturating_sub(self.known.len())
    }

    /// Places sites of a file in a process until then; returns what the kernel side is to know of them when it meets
    /// them.
    fn link_ahead(
        &mut self,
        pid: u32,
        file: FileId,
        path: &Path,
        mut sites: &[Placement],
        until: Instant,
    ) -> Result<Vec<(FilePlace, Arrival)>, Error> {
        let mut batch_size = FIRST_BATCH;
        let mut in_place = Vec::with_capacity(sites.len());
        while !sites.is_empty() && Instant::now() < until {
            let (batch, rest) = sites.split_at(batch_size.min(sites.len()));
            let begin = Instant::now();
            let refused = self.link(pid, file, path, batch)?;
            refused.iter().for_each(|&id| self.forget(id));
            let ids = batch.iter().map(|site| site.id).filter(|id| !refused.contains(id));
            in_place.extend(ids.map(|id| (self.placed[id as usize].place(), self.in_place(id))));
            batch_size = if begin.elapsed() < BATCH_TIME { batch_size * 2 } else { (batch_size / 2).max(1) };
            sites = rest;
        }
        sites.iter().for_each(|site| self.forget(site.id));
        Ok(in_place)
    }

    /// Answers the questions of the kernel side until `is_over`; children that are followed get their probes, and
    /// so do the programs that wait at the gate.
    ///
    /// # Errors
    /// A map of the programs cannot be read or written, or the kernel refuses probes for a reason that
    /// has nothing to do with a single site.
    pub fn answer(
        &mut self,
        followed: &Followed<'_>,
        gate: Option<Gate>,
        executed: Executed<'_>,
        exchange: &Exchange,
        is_over: &AtomicBool,
    ) -> Result<(), Error> {
        let warmth = Warmth::new(self.programs);
        std::thread::scope(|scope| {
            let (end, ended) = mpsc::channel();
            let keeping = scope.spawn(move || warmth.keep(&ended));
            let answered = self.answer_with(scope, followed, gate, executed, exchange, is_over);
            drop(end);
            self.warmth = Some(keeping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            answered
        })
    }

    fn answer_with<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        followed: &Followed<'_>,
        gate: Option<Gate>,
        mut executed: Executed<'_>,
        exchange: &Exchange,
        is_over: &AtomicBool,
    ) -> Result<(), Error>
    where
        'a: 's,
    {
        // Calls are not timed until their sites are in place.
        let _ahead = host::run_first();
        let mut questions = self.programs.questions()?;
        let standby = Standby::beside(questions.as_fd());
        // Return addresses for whose sites nobody waits any more.
        let mut late: Vec<QuestionRecord> = Vec::new();
        let (mut tidy_at, mut revive_at) = (Instant::now() + TIDY_PERIOD, Instant::now() + TIDY_PERIOD);
        while !is_over.load(Ordering::Relaxed) {
            let is_busy = self.siblings.want_any() || !late.is_empty();
            let patience = if is_busy { Duration::ZERO } else { PATIENCE };
            standby.sleep(|| wait([questions.as_fd()].into_iter().chain(gate.as_ref().map(Gate::as_fd)), patience));
            // Who waits has been forked before: that is among what is taken now.
            let waiting = gate.as_ref().map(Gate::waiting).unwrap_or_default();
            let (forked, mut met) = self.take(&mut questions)?;
            if !forked.is_empty() {
                // A child that has just ended takes the room of the next one.
                self.keep(|pid| followed.contains(pid) && !privilege::has_ended(pid))?;
            }
            let (lost, forked): (Vec<_>, Vec<_>) = forked.into_iter().partition(|child| child.parent == child.pid);
            for process in lost {
                followed.lose(process.pid, Timestamp(process.time));
                self.lose(process.pid)?;
            }
            // What is not entered yet is missing, what is not timed is only that.
            for child in &forked {
                followed.adopt(child.pid, child.parent, Timestamp(child.time))?;
            }
            for child in &forked {
                self.take_in(child.pid, child.parent)?;
            }
            for program in waiting.into_iter().filter(|program| followed.contains(program.pid)) {
                let path = program.path();
                if translated::of_program(&path).is_some() {
                    self.leave(program.pid, followed)?;
                    continue;
                }
                followed.drop_changed(program.pid, host::now());
                self.drop_changed(program.pid)?;
                let loaded = executed.of(&path);
                self.see_jumps(program.pid, &loaded.jumps)?;
                self.place_met_in(program.pid, loaded.files.iter().map(|(file, _)| *file), TIME_AHEAD)?;
                self.prime_executed(program.pid, loaded)?;
                self.callers.look_into(loaded.files.iter().cloned());
            }
            let is_awaited = !met.is_empty();
            let waiting = if is_awaited { &mut met } else { &mut late };
            let latest = waiting.split_off(waiting.len().saturating_sub(MOST_AT_ONCE));
            late.append(&mut met);
            if latest.is_empty() {
                self.place_shared()?;
            } else {
                self.place(&latest, is_awaited)?;
            }
            self.links.take_relinked()?;
            if exchange.levels_changed.swap(false, Ordering::Relaxed) {
                self.begin_anew()?;
                tidy_at = Instant::now() + FIRST_TIDY;
            }
            if Instant::now() >= revive_at {
                self.keep(|pid| followed.contains(pid))?;
                self.revive()?;
                revive_at = Instant::now() + TIDY_PERIOD;
            }
            self.inspect(followed)?;
            if Instant::now() >= tidy_at {
                self.tidy(scope, exchange)?;
                tidy_at = Instant::now() + if self.before.is_some() { SOON_TIDY } else { TIDY_PERIOD };
            }
        }
        // No probes are placed any more.
        self.links.settle()?;
        let (forked, _) = self.take(&mut questions)?;
        for child in forked {
            if child.parent == child.pid {
                followed.lose(child.pid, Timestamp(child.time));
            } else {
                followed.miss(child.pid, child.parent, Timestamp(child.time))?;
            }
        }
        Ok(())
    }

    /// The processes and the return addresses of which the kernel side has told.
    fn take(&mut self, questions: &mut Questions<'_>) -> Result<(Vec<QuestionRecord>, Vec<QuestionRecord>), Error> {
        let (processes, mut met): (Vec<_>, Vec<_>) =
            questions.take()?.into_iter().partition(|question| question.address == 0);
        for question in &met {
            // All others are looked up, by the numbers that the process tells.
            if question.kind == QuestionCode::RT_QUESTION_NONE
                && let Some(place) = FilePlace::of(&question.place)
            {
                self.siblings.meet((place.device, place.inode), place.offset);
            }
        }
        met.retain(|question| question.kind != QuestionCode::RT_QUESTION_NONE);
        Ok((processes, met))
    }

    /// Takes all probes out of a process in which they would do harm; they are gone when this returns.
    fn leave(&mut self, pid: u32, followed: &Followed<'_>) -> Result<(), Error> {
        followed.leave(pid, host::now());
        self.keep(|pid| followed.contains(pid))?;
        self.links.settle()?;
        self.jumps.settle();
        Ok(())
    }

    /// Takes out the probes that a process, which is about to execute a program, has in files that have changed since
    /// they were looked at: what it loads now would get them at places that mean something else.
    ///
    /// # Errors
    /// A map of the programs cannot be written.
    pub fn drop_changed(&mut self, pid: u32) -> Result<(), Error> {
        self.jumps.drop_changed(pid);
        let callers = &self.callers;
        self.links.drop_files(pid, |file| callers.path(file).is_none())?;
        let is_gone = |file: FileId| callers.path(file).is_none();
        let gone = self.known.extract_if(|(of, file, _), _| *of == pid && is_gone(*file)).map(|(_, id)| id).collect();
        self.forget_arrivals(gone)
    }

    /// The kernel side is to know nothing more of these sites.
    fn forget_arrivals(&mut self, sites: Vec<u32>) -> Result<(), Error> {
        for id in sites {
            let placed = &self.placed[id as usize];
            self.programs.forget_arrival(placed.place(), &placed.met)?;
        }
        Ok(())
    }

    /// Places in a child what its parent has.
    ///
    /// # Errors
    /// As for [`answer`](ReturnSites::answer).
    pub fn take_in(&mut self, pid: u32, parent: u32) -> Result<(), Error> {
        let (Some(space), Some(of_parent)) = (self.programs.space(pid)?, self.programs.space(parent)?) else {
            return Ok(());
        };
        self.spaces.inherit(pid, space, of_parent);
        self.adopt(pid, parent, space)?;
        self.jumps.adopt(pid, parent)?;
        // Other children may have been where their parent never was.
        self.place_met_in(pid, self.spaces.files(space), TIME_AHEAD_IN_CHILD)
    }

    /// Forgets the sites of processes that have ended.
    fn keep(&mut self, lives: impl Fn(u32) -> bool) -> Result<(), Error> {
        let ended = self.links.keep(&lives);
        self.siblings.keep(&lives);
        self.jumps.keep(lives);
        if ended.is_empty() {
            return Ok(());
        }
        let gone = self.known.extract_if(|(pid, ..), _| ended.contains(pid)).map(|(_, id)| id).collect();
        self.forget_arrivals(gone)?;
        self.dropped.retain(|(pid, ..), _| !ended.contains(pid));
        self.met.retain(|(pid, ..), _| !ended.contains(pid));
        Ok(())
    }

    /// What is read of the calls that return to this offset of a file; none where that is not known.
    fn read_at(&self, file: FileId, offset: u64) -> Option<Keeps> {
        self.direct.get(&(file, offset)).copied()
    }

    /// What the kernel side is to know of a site.
    fn in_place(&self, id: u32) -> Arrival {
        let Placed { file, offset, since, site, .. } = self.placed[id as usize];
        Arrival::Placed { catches: self.callers.catches(file, offset), since, distance: Some(site.distance) }
    }

    /// Places sites of a file in a process; returns those that the kernel refuses.
    fn link(&mut self, pid: u32, file: FileId, path: &Path, sites: &[Placement]) -> Result<HashSet<u32>, Error> {
        for site in sites {
            if let Some(since) = self.placed[site.id as usize].since {
                self.programs.set_since(site.id, since)?;
            }
        }
        self.links.place(pid, file, path, sites)
    }

    /// The sites for a return address, and for those in the same function to which control may come twice.
    fn sites(&mut self, file: FileId, offset: u64, pid: u32, site: ReturnSite, met: Vec<(u32, u64)>) -> Vec<Placement> {
        let mut sites = vec![self.add(file, offset, pid, site, met)];
        for twice in self.callers.returns_twice(file, offset).to_vec() {
            if !self.known.contains_key(&(pid, file, twice))
                && let arrival::Arrival::Site(site) = self.callers.arrival(file, twice, self.read_at(file, twice))
            {
                sites.push(self.add(file, twice, pid, site, Vec::new()));
            }
        }
        sites
    }

    /// Places in a child the sites of its parent at which anybody was met. The others follow while nobody waits for a
    /// site, where they are still to be tried.
    fn adopt(&mut self, pid: u32, parent: u32, space: u32) -> Result<(), Error> {
        let until = Instant::now() + TIME_AHEAD_IN_CHILD;
        let program = target::identity(&target::program_of(pid)).ok();
        let process = self.spaces.process(pid, space);
        for (file, path, sites) in self.links.of(parent) {
            let is_met = |site: &Placement| self.siblings.has_met(file, self.placed[site.id as usize].offset);
            let (of_met, others) = sites.into_iter().partition::<Vec<_>, _>(is_met);
            let may_try = self.before.is_none() && others.len() <= self.room(MOST_IN_DOUBT);
            if may_try && self.siblings.try_all(pid, program, file) {
                let offsets = others.iter().map(|site| self.placed[site.id as usize].offset);
                self.siblings.want(pid, file, offsets.collect());
            }
            if of_met.len() > self.room_for_met() {
                continue;
            }
            let mut placements = Vec::with_capacity(of_met.len());
            for Placement { id, .. } in of_met {
                let Placed { offset, site, is_interim, .. } = self.placed[id as usize];
                if is_interim {
                    continue;
                }
                placements.push(self.add(file, offset, pid, site, Vec::new()));
            }
            self.avoid_rewritten(process.as_ref(), file, &path, &placements);
            match self.link_ahead(pid, file, &path, &placements, until) {
                Err(error) if error.is_gone() => return Ok(()),
                primed => self.programs.prime(&primed?)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, file: FileId, offset: u64, pid: u32, site: ReturnSite, met: Vec<(u32, u64)>) -> Placement {
        self.add_site(file, offset, pid, site, met, false)
    }

    fn add_site(
        &mut self,
        file: FileId,
        offset: u64,
        pid: u32,
        site: ReturnSite,
        met: Vec<(u32, u64)>,
        is_interim: bool,
    ) -> Placement {
        let id = self.count();
        let is_fixed = self.direct.contains_key(&(file, offset));
        let only_returns = is_interim || self.only_returns.contains(&(file, offset));
        let since = self.gone.get(&(pid, file, offset)).and_then(|seen| seen.since);
        self.dropped.remove(&(pid, file, offset));
        let placed = Placed { file, offset, pid, site, is_fixed, is_interim, met, since };
        let is_stepped = placed.is_stepped();
        self.placed.push(placed);
        self.known.insert((pid, file, offset), id);
        let ReturnSite { distance, words, result, is_stored, .. } = site;
        let site = wire::ReturnSite { distance, words, is_fixed, is_stepped, only_returns, result, is_stored };
        let probe = Site { file_offset: offset + u64::from(distance), cookie: site.cookie(id) };
        Placement { id, offset, probe }
    }

    fn forget(&mut self, id: u32) {
        let Placed { file, offset, pid, .. } = self.placed[id as usize];
        self.known.remove(&(pid, file, offset));
    }

    /// A process has lost its probes: its returns are not detected any more.
    fn lose(&mut self, pid: u32) -> Result<(), Error> {
        self.siblings.leave_out(pid);
        let mut lost = Vec::new();
        self.known.retain(|&(of, ..), id| {
            if of == pid {
                lost.push((self.placed[*id as usize].place(), Arrival::Dropped { after: 0 }));
            }
            of != pid
        });
        self.programs.prime(&lost)
    }

    /// How many sites there are.
    fn count(&self) -> u32 {
        u32::try_from(self.placed.len()).unwrap_or(u32::MAX)
    }

    /// What became of the sites.
    pub fn summary(&self) -> Summary {
        let hits = self.hits.read(self.count());
        let unmatched = hits.iter().map(|hits| hits.unmatched).sum();
        let matched: u64 = hits.iter().map(|hits| hits.matched).sum();
        Summary {
            placed: self.placed.len() as u64,
            hits: matched + unmatched,
            unmatched,
            single_stepped: self.programs.stepped_returns(),
            waited: self.programs.waited(),
        }
    }

    /// The probes, to be taken out.
    pub fn into_probes(self) -> Vec<Probes> {
        let mut probes = self.links.into_probes();
        probes.extend(self.jumps.into_probes());
        probes.extend(self.warmth.into_iter().flat_map(Warmth::into_probes));
        probes
    }
}

/// Waits until one of these can be read.
pub(crate) fn wait<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>, patience: Duration) {
    let mut descriptors: Vec<_> =
        descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    // A signal only makes the wait shorter.
    let _ = poll(&mut descriptors, Timespec::try_from(patience).ok().as_ref());
}
