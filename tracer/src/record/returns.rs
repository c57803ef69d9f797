//! Return sites: the probes at return addresses by which calls are seen to have returned.
//!
//! Those of direct calls are placed before recording begins. The others are placed when the kernel side
//! first meets a return address and asks about it, within a few milliseconds and in batches: calls from
//! there that return before have no duration. Sites that mostly see returns of calls that nobody traces
//! are taken out again, until more traced calls come from there; so are those of functions that a budget has
//! throttled.

mod ahead;
pub(crate) mod caller;
mod hold;
mod inspect;
pub mod jumps;
mod links;
mod questions;
mod site;
mod spaces;
mod usefulness;
mod warmth;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::Scope;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use rtrace_bpf::wire::{self, QuestionCode, QuestionRecord, SiteHitsRecord};
use rtrace_bpf::{ArrivalRule, Behind, Error, FilePlace, Probes, Programs, Since, Site, SiteHits, Tidings};
use rtrace_code::arrival::{self, Keeps, ReturnProbe};
use rtrace_code::calls::Callee;
use rtrace_code::instruction::Emulation;
use rtrace_model::{ReturnSites as Summary, Timestamp};
use rtrace_plan::Plan;
pub(crate) use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules;
use rtrace_symbolizer::parts::FileParts;

pub use self::ahead::TIME_AHEAD;
use self::ahead::{Ahead, Held, MOST_AHEAD};
use self::caller::Callers;
use self::hold::Hold;
use self::inspect::{Sealing, StoppedWriter};
use self::jumps::Jumps;
use self::links::{Links, Placement};
use self::site::Placed;
use self::spaces::Spaces;

pub use self::warmth::Warmth;
use crate::host;
use crate::record::callers::Executed;
use crate::record::family::Followed;
use crate::record::gate::{Execution, Gate};
use crate::record::inspection::Turns;
use crate::record::jump_candidates::{self, Candidate};
use crate::record::pauses::timed;
use crate::record::standby::Standby;
use crate::record::writers::Writers;
use crate::target::address_spaces::AddressSpaces;
use crate::target::privilege;
use crate::target::translators;

/// Longest wait for a question, and so for the end.
const PATIENCE: Duration = Duration::from_millis(20);

/// The same while a thread makes code writable, or executable.
const SEALING_PATIENCE: Duration = Duration::from_micros(100);

/// Time between two looks at what sites cost; once functions have been throttled, as the sites of those may be hit by
/// nothing else and slow the program down as much as before; and from then to the first.
const TIDY_PERIOD: Duration = Duration::from_millis(250);
const SOON_TIDY: Duration = Duration::from_millis(50);
const FIRST_TIDY: Duration = Duration::from_millis(20);

/// A look at all sites is followed by a rest of so many times the CPU time that it took.
const TIDY_REST: u32 = 50;

/// Return addresses about which threads ask for which sites are placed at once: they wait for that.
const MOST_AT_ONCE: usize = 8;
/// The same where so many are left that nobody waits: a link takes as long for a few as for many where programs fork.
const MOST_IF_LATE: usize = 256;

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

/// A return address, by its offset in a file, at which hits ended no call.
pub struct VainSite {
    pub file: FileId,
    pub offset: u64,
    /// How many of them.
    pub hits: u64,
    /// Whether the kernel single-stepped them.
    pub is_stepped: bool,
}

/// What is to be done, in this order.
#[derive(Default)]
struct Tasks<'a> {
    /// Programs that wait to be executed.
    executed: VecDeque<Execution<'a>>,
    held: VecDeque<Held<'a>>,
    /// Return addresses for whose sites nobody waits any more.
    late: Vec<QuestionRecord>,
}

impl Tasks<'_> {
    fn is_empty(&self) -> bool {
        self.executed.is_empty() && self.held.is_empty() && self.late.is_empty()
    }
}

/// All return sites of a recording.
pub struct ReturnSites<'a> {
    programs: &'a Programs,
    callers: Callers,
    spaces: Spaces,
    ahead: Ahead,
    links: Links<'a>,
    jumps: Jumps<'a>,
    /// What has kept the kernel ready, and whom to tell that it has to.
    warmth: Option<Warmth<'a>>,
    has_met: Option<SyncSender<()>>,
    hits: SiteHits,
    /// By id.
    placed: Vec<Placed>,
    /// Return addresses of direct calls of traced functions, with what is read of these calls when they have returned.
    direct: BTreeMap<(FileId, u64), Keeps>,
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
    /// Those that processes have overwritten, or may have, by file with its path in the process.
    withdrawn: HashMap<(u32, FileId), (PathBuf, Vec<u32>)>,
    /// Threads that change code, and those of them that are stopped.
    changing: &'a Writers<'a>,
    writers: Vec<StoppedWriter>,
    sealing: Vec<Sealing>,
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
        changing: &'a Writers<'a>,
    ) -> Result<ReturnSites<'a>, Error> {
        Ok(ReturnSites {
            programs,
            callers: Callers::new(emulation, keeps),
            spaces: Spaces::new(spaces),
            ahead: Ahead::default(),
            links: Links::new(programs),
            jumps: Jumps::new(programs, plan, patterns),
            warmth: None,
            has_met: None,
            hits: programs.site_hits()?,
            placed: Vec::new(),
            direct: BTreeMap::new(),
            only_returns: HashSet::new(),
            met: HashMap::new(),
            known: HashMap::new(),
            dropped: HashMap::new(),
            gone: HashMap::new(),
            held: HashMap::new(),
            most_ahead: MOST_AHEAD,
            withdrawn: HashMap::new(),
            changing,
            writers: Vec::new(),
            sealing: Vec::new(),
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
    pub fn avoid(&mut self, altered: HashMap<FileId, FileParts>) {
        self.callers.avoid(altered);
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
            let (has_met, met) = mpsc::sync_channel(1);
            self.has_met = Some(has_met);
            let keeping = scope.spawn(move || warmth.keep(&met));
            let answered = self.answer_with(scope, followed, gate, executed, exchange, is_over);
            self.has_met = None;
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
        let _ahead = host::run_at_once();
        let mut questions = self.programs.questions()?;
        let standby = Standby::beside(questions.as_fd());
        followed.stop_children(true);
        let mut tasks = Tasks::default();
        let (mut tidy_at, mut revive_at) = (Instant::now() + TIDY_PERIOD, Instant::now() + TIDY_PERIOD);
        while !is_over.load(Ordering::Relaxed) {
            let patience = match self.ahead.want_any() || !tasks.is_empty() {
                true => Duration::ZERO,
                false if self.sealing.is_empty() && self.writers.is_empty() => PATIENCE,
                false => SEALING_PATIENCE,
            };
            let all = [questions.as_fd(), self.changing.as_fd()].into_iter().chain(gate.as_ref().map(Gate::as_fd));
            standby.sleep(|| _ = host::wait(all, Some(patience)));
            // Who waits has been forked before: that is among what is taken now.
            tasks.executed.extend(gate.as_ref().map(Gate::waiting).unwrap_or_default());
            let [processes, met] = self.take(&mut questions)?;
            if !(processes.is_empty() && met.is_empty() && tasks.executed.is_empty()) {
                // What was told before is enough.
                let _ = self.has_met.as_ref().map(|has_met| has_met.try_send(()));
            }
            self.see_processes(processes, followed)?;
            for pid in followed.take_joined() {
                self.see_jumps(pid, &jump_candidates::among_modules(&modules::of_process(pid).unwrap_or_default()))?;
            }
            self.changing.take().into_iter().try_for_each(|change| self.see_change(change, followed))?;
            self.see_stopped(followed)?;
            self.see_sealed(followed)?;
            self.go_on(met, &mut tasks, followed, &mut executed)?;
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
                let (tidied, worked) = timed(|| self.tidy(scope, exchange));
                tidied?;
                let rest = if self.before.is_some() { SOON_TIDY } else { TIDY_PERIOD };
                tidy_at = Instant::now() + rest.max(worked * TIDY_REST);
            }
        }
        // No probes are placed any more.
        followed.stop_children(false);
        self.links.settle()?;
        let [forked, ..] = self.take(&mut questions)?;
        for child in forked {
            if child.parent == child.pid {
                followed.lose(child.pid, Timestamp(child.time));
            } else {
                followed.miss(child.pid, child.parent, Timestamp(child.time))?;
            }
        }
        Ok(())
    }

    /// Children get their entry probes first: what is not entered is missing, what is not timed is only that. Then they
    /// get some of their sites, as they run already.
    fn see_processes(&mut self, processes: Vec<QuestionRecord>, followed: &Followed<'_>) -> Result<(), Error> {
        if !processes.is_empty() {
            // A child that has just ended takes the room of the next one.
            self.keep(|pid| followed.contains(pid) && !privilege::has_ended(pid))?;
        }
        let (lost, forked): (Vec<_>, Vec<_>) = processes.into_iter().partition(|process| process.parent == process.pid);
        for QuestionRecord { pid, time, .. } in lost {
            followed.lose(pid, Timestamp(time));
            self.lose(pid)?;
        }
        for QuestionRecord { pid, parent, time, .. } in &forked {
            followed.adopt(*pid, *parent, Timestamp(*time))?;
        }
        for QuestionRecord { pid, parent, .. } in forked {
            self.take_in(pid, parent)?;
            self.place_some_of(pid)?;
        }
        Ok(())
    }

    /// Places sites at these return addresses, for which threads wait, and goes on with the next of what else is to be
    /// done: each step is short, as somebody may fork or ask meanwhile.
    fn go_on(
        &mut self,
        mut met: Vec<QuestionRecord>,
        tasks: &mut Tasks<'_>,
        followed: &Followed<'_>,
        executed: &mut Executed<'_>,
    ) -> Result<(), Error> {
        let is_awaited = !met.is_empty();
        tasks.late.append(&mut met);
        if is_awaited {
            self.place_latest(tasks, true)?;
        }
        if let Some(program) = tasks.executed.pop_front() {
            tasks.held.extend(self.prepare(program, followed, executed)?);
            return Ok(());
        }
        if let Some(held) = tasks.held.pop_front() {
            tasks.held.extend(self.place_held(held)?);
            return Ok(());
        }
        match (is_awaited, tasks.late.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => self.place_next(),
            (false, false) => self.place_latest(tasks, false),
        }
    }

    /// Places the sites for the return addresses that were met last: a few where somebody may wait for them, more where so
    /// many are left that nobody does.
    fn place_latest(&mut self, tasks: &mut Tasks<'_>, is_awaited: bool) -> Result<(), Error> {
        let left = tasks.late.len();
        let most = (left / 2).clamp(MOST_AT_ONCE, MOST_IF_LATE);
        let latest = tasks.late.split_off(left.saturating_sub(most));
        self.place(&latest, is_awaited && left <= MOST_AT_ONCE)
    }

    /// A process is about to execute this program.
    fn prepare<'g>(
        &mut self,
        program: Execution<'g>,
        followed: &Followed<'_>,
        executed: &mut Executed<'_>,
    ) -> Result<Option<Held<'g>>, Error> {
        let pid = program.pid;
        if !followed.contains(pid) {
            return Ok(None);
        }
        let path = program.path();
        if translators::of_program(&path).is_some() {
            self.leave(pid, followed)?;
            return Ok(None);
        }
        followed.drop_changed(pid, host::now());
        self.drop_changed(pid)?;
        let loaded = executed.of(&path);
        self.see_jumps(pid, &loaded.jumps)?;
        Ok(Some(self.hold(program, loaded)))
    }

    /// The processes and the return addresses of which the kernel side has told.
    fn take(&mut self, questions: &mut Tidings<'_, QuestionRecord>) -> Result<[Vec<QuestionRecord>; 2], Error> {
        let (processes, mut met): (Vec<_>, Vec<_>) =
            questions.take()?.into_iter().partition(|question| question.address == 0);
        for question in &met {
            // All others are looked up, by the numbers that the process tells.
            if question.kind == QuestionCode::RT_QUESTION_NONE
                && let Some(place) = FilePlace::of(&question.place)
            {
                self.ahead.meet((place.device, place.inode), place.offset);
            }
        }
        met.retain(|question| question.kind != QuestionCode::RT_QUESTION_NONE);
        Ok([processes, met])
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

    /// Forgets the sites of processes that have ended.
    fn keep(&mut self, lives: impl Fn(u32) -> bool) -> Result<(), Error> {
        let ended = self.links.keep(&lives);
        self.ahead.keep(&lives);
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
    fn in_place(&self, id: u32) -> ArrivalRule {
        let Placed { file, offset, since, site, is_fixed, .. } = self.placed[id as usize];
        let behind = Behind { back: self.callers.back(file, offset), is_fixed };
        ArrivalRule::Placed { behind, since, distance: Some(site.distance) }
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
    fn sites(
        &mut self,
        file: FileId,
        offset: u64,
        pid: u32,
        site: ReturnProbe,
        met: Vec<(u32, u64)>,
    ) -> Vec<Placement> {
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

    fn add(&mut self, file: FileId, offset: u64, pid: u32, site: ReturnProbe, met: Vec<(u32, u64)>) -> Placement {
        self.add_site(file, offset, pid, site, met, false)
    }

    fn add_site(
        &mut self,
        file: FileId,
        offset: u64,
        pid: u32,
        site: ReturnProbe,
        met: Vec<(u32, u64)>,
        is_interim: bool,
    ) -> Placement {
        let id = self.count();
        let is_fixed = self.is_fixed(file, offset);
        let only_returns = is_interim || self.only_returns.contains(&(file, offset));
        let since = self.gone.get(&(pid, file, offset)).and_then(|seen| seen.since);
        self.dropped.remove(&(pid, file, offset));
        let placed = Placed { file, offset, pid, site, is_fixed, is_interim, met, since };
        let is_stepped = placed.is_stepped();
        self.placed.push(placed);
        self.known.insert((pid, file, offset), id);
        let ReturnProbe { distance, words, result, is_stored, .. } = site;
        let site = wire::ReturnSite { distance, words, is_fixed, is_stepped, only_returns, result, is_stored };
        let probe = Site::new(offset + u64::from(distance), site.cookie(id));
        Placement { id, offset, probe }
    }

    fn forget(&mut self, id: u32) {
        let Placed { file, offset, pid, .. } = self.placed[id as usize];
        self.known.remove(&(pid, file, offset));
    }

    /// A process has lost its probes: its returns are not detected any more.
    fn lose(&mut self, pid: u32) -> Result<(), Error> {
        self.ahead.leave_out(pid);
        let mut lost = Vec::new();
        self.known.retain(|&(of, ..), id| {
            if of == pid {
                lost.push((self.placed[*id as usize].place(), ArrivalRule::Dropped { after: 0 }));
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
        let add = |(matched, unmatched), hits: SiteHitsRecord| (matched + hits.matched, unmatched + hits.unmatched);
        let (matched, unmatched) = self.hits.read(self.count()).fold((0_u64, 0), add);
        Summary {
            placed: self.placed.len() as u64,
            hits: matched + unmatched,
            unmatched,
            single_stepped: self.programs.stepped_returns(),
            waited: self.programs.waited(),
        }
    }

    /// The return addresses at which hits ended no call.
    pub fn in_vain(&self) -> Vec<VainSite> {
        let hit = self.hits.read(self.count()).zip(&self.placed).filter(|(hits, _)| hits.unmatched > 0);
        let site = |(hits, placed): (SiteHitsRecord, &Placed)| VainSite {
            file: placed.file,
            offset: placed.offset,
            hits: hits.unmatched,
            is_stepped: placed.is_stepped(),
        };
        hit.map(site).collect()
    }

    /// The return addresses whose instruction the kernel executes in a single step.
    pub fn stepped(&self) -> HashSet<(FileId, u64)> {
        let stepped = self.placed.iter().filter(|placed| placed.is_stepped());
        stepped.map(|placed| (placed.file, placed.offset)).collect()
    }

    /// The probes, to be taken out.
    pub fn into_probes(self) -> Vec<Probes> {
        let mut probes = self.links.into_probes();
        probes.extend(self.jumps.into_probes());
        probes.extend(self.warmth.into_iter().flat_map(Warmth::into_probes));
        probes
    }
}
