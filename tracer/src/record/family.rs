//! The processes with probes: each has links of its own, so that no other process has a breakpoint.
//!
//! A child inherits the breakpoints with the memory of its parent, but the kernel runs no program there
//! before the child has links, too. They are placed as soon as the kernel side reports the fork, while the child is
//! stopped: its parent waits inside the kernel until then. What a child that cannot be stopped calls before that in a
//! library that it maps is not recorded; an event reports such a blind window. There is none if the child meets no breakpoint
//! meanwhile. Links outlive an exec, and where there is a gate
//! (`gate`) a child executes another program only once they are placed: that has its probes before it maps
//! a library.

pub mod withdrawn;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rtrace_bpf::{Error, Probes, Programs, Unlinked};
use rtrace_model::{Library, LibraryId, RegionId, Timestamp};
use rtrace_symbolizer::modules::{self, Module};

use self::withdrawn::Withdrawn;
use crate::host;
use crate::record::attach::{Attachment, Closing, Placed, detach};
use crate::record::writers::StoppedChildren;
use crate::target::mapping_history::MappingHistory;
use crate::target::presence::ProcessCode;
use crate::target::privilege;

/// The probes of children that have ended stay until no child was forked for so long, unless there are more: each hit
/// of a site passes all links that it has, who places one more asks all of them about each process, and a site takes the
/// kernel 0.4 KB.
const QUIET_NS: u64 = 300_000_000;
/// How often programs fork depends on the machine, too: it is quiet after so many times the longest time between two children,
/// and after this time at the latest.
const QUIET_GAPS: u64 = 4;
const LONGEST_QUIET_NS: u64 = 10_000_000_000;
const MOST_ENDED: usize = 128;
const MOST_ENDED_SITES: usize = 1 << 14;

/// A process whose calls of a library were not recorded for a time.
pub struct BlindChild {
    /// The process.
    pub pid: u32,
    /// The library.
    pub library: Library,
    /// When it was forked, or lost its probes.
    pub since: Timestamp,
}

/// A process that forks waits until its child is about to stop.
const LONGEST_WAIT_NS: u64 = 10_000_000;

/// Sites with the probes of the processes that had them first.
struct InPlace {
    placed: Placed,
    since: Timestamp,
    first: Probes,
}

#[derive(Default)]
struct FollowedState {
    pids: Vec<u32>,
    /// By number; no other has had it.
    placed: BTreeMap<usize, InPlace>,
    /// How many there have been.
    numbers: usize,
    /// Whether some were taken out since their regions were throttled.
    is_throttled: bool,
    /// Those of children, with their number in `placed`.
    probes: HashMap<u32, Vec<(usize, Probes)>>,
    /// For these there was no room: children, with their number in `placed`.
    missing: HashSet<(u32, usize)>,
    /// Processes that lost their probes because these would harm them.
    left: HashSet<u32>,
    /// Processes that lost their probes by an exec.
    lost: HashSet<u32>,
    blind: Vec<BlindChild>,
    /// Those that have joined and whose functions that jump have no probes yet.
    joined: Vec<u32>,
    /// Those that had ended with a program of which it was not yet known whether it has mapped the library, and when
    /// they had.
    undecided: Vec<(Timestamp, BlindChild)>,
    withdrawn: Withdrawn,
    /// Those that get no probes any more: blind since that was told, until they end or the recording does.
    staying_blind: Vec<BlindChild>,
    /// Probes of children that have ended, and the number of their sites.
    ended: Vec<Probes>,
    ended_sites: usize,
    closing: Closing,
    /// When probes were last taken out apart from `closing`.
    last_detaching: Timestamp,
    /// When a child last got some, and the longest time from one to the next, in nanoseconds.
    last_adoption: Option<Timestamp>,
    longest_gap: Option<u64>,
}

impl Drop for Followed<'_> {
    /// Where the recording has failed: one after the other, probes of many processes take minutes.
    fn drop(&mut self) {
        let probes = self.state().take_probes();
        detach(probes);
    }
}

impl FollowedState {
    fn take_probes(&mut self) -> Vec<Probes> {
        self.closing.finish();
        let first = mem::take(&mut self.placed).into_values().map(|in_place| in_place.first);
        let others = mem::take(&mut self.probes).into_values().flatten().map(|(_, probes)| probes);
        first.chain(mem::take(&mut self.ended)).chain(others).collect()
    }

    /// Takes out the probes of children that have ended. The kernel takes a breakpoint out of all processes that have no
    /// link there, those included that were just forked and will get one: nobody knows afterwards what these have called.
    /// So it waits until no child has been forked for a while, or there are too many.
    fn close_ended(&mut self) {
        let is_quiet = self.last_adoption.is_none_or(|last| host::now().since(last) > self.quiet());
        let are_many = self.ended.len() > MOST_ENDED || self.ended_sites > MOST_ENDED_SITES;
        // There is no room for what others need.
        let is_short = !self.missing.is_empty();
        if !self.ended.is_empty() && self.closing.is_done() && (is_quiet || are_many || is_short) {
            self.ended_sites = 0;
            self.closing.close(std::mem::take(&mut self.ended));
        }
    }

    fn quiet(&self) -> u64 {
        let quiet = |gap: u64| gap.saturating_mul(QUIET_GAPS).clamp(QUIET_NS, LONGEST_QUIET_NS);
        self.longest_gap.map_or(LONGEST_QUIET_NS, quiet)
    }

    fn note_adoption(&mut self) {
        let now = host::now();
        let gap = self.last_adoption.replace(now).map(|last| now.since(last));
        self.longest_gap = self.longest_gap.max(gap);
    }

    /// The child has run without probes in what it maps, if it can have called anything, and in these others. One whose
    /// parent has waited until it had its probes has called nothing before.
    fn tell_blind_child(
        &mut self,
        pid: u32,
        parent: u32,
        unlinked: Unlinked,
        also: &HashSet<LibraryId>,
        since: Timestamp,
    ) {
        let mapped = |pid| modules::of_process(pid).ok().filter(|modules| !modules.is_empty());
        // If breakpoints were taken out meanwhile, it may have called without meeting one.
        let were_taken_out = self.closing.was_at_work(since) || self.last_detaching >= since;
        let (may_run, has_executed) = (!unlinked.is_held, unlinked.has_executed);
        let has_run = may_run && (unlinked.has_run || were_taken_out);
        // What it maps now it may have mapped all the time; of one that has ended, its parent tells.
        let image = if has_executed { None } else { mapped(pid) }.or_else(|| mapped(parent));
        let executed = if has_executed { mapped(pid) } else { None };
        // A child has inherited no breakpoints that its parent got later.
        let later = self.placed.values().filter(|in_place| in_place.since >= since);
        let later: HashSet<LibraryId> = later.map(|in_place| in_place.placed.library.id).collect();
        let is_blind = |library: &Library| {
            also.contains(&library.id)
                || (has_run || may_run && later.contains(&library.id))
                    && image.as_ref().is_none_or(|modules| is_mapped(modules, library))
                || executed.as_ref().is_some_and(|modules| is_mapped(modules, library))
        };
        let blind = self.blind_in(pid, since, is_blind);
        if has_executed && executed.is_none() {
            let rest = self.blind_in(pid, since, |library| !is_blind(library));
            self.undecided.extend(rest.into_iter().map(|child| (host::now(), child)));
        }
        self.blind.extend(blind);
    }

    /// The process has no probes in these of the libraries since then, and gets none.
    fn tell_blind_for_good(&mut self, pid: u32, since: Timestamp, is_meant: impl Fn(&Library) -> bool) {
        let blind = self.blind_in(pid, since, &is_meant);
        self.blind.extend(blind);
        self.stays_blind(pid, is_meant);
    }

    /// The process gets no probes in these of the libraries.
    fn stays_blind(&mut self, pid: u32, is_meant: impl Fn(&Library) -> bool) {
        let blind = self.blind_in(pid, host::now(), is_meant);
        self.staying_blind.extend(blind);
    }

    fn blind_in(&self, pid: u32, since: Timestamp, is_meant: impl Fn(&Library) -> bool) -> Vec<BlindChild> {
        let libraries: BTreeMap<LibraryId, &Library> =
            self.placed.values().map(|InPlace { placed, .. }| (placed.library.id, &*placed.library)).collect();
        let blind = libraries.into_values().filter(|library| is_meant(library)).cloned();
        blind.map(|library| BlindChild { pid, library, since }).collect()
    }
}

/// All processes with probes.
pub struct Followed<'a> {
    programs: &'a Programs,
    history: MappingHistory,
    stopped: StoppedChildren,
    state: Mutex<FollowedState>,
}

impl<'a> Followed<'a> {
    /// The processes that have probes from the beginning; `history`: what processes have mapped; `stopped`: their children
    /// that wait for probes.
    pub fn new(
        programs: &'a Programs,
        pids: &[u32],
        history: MappingHistory,
        stopped: StoppedChildren,
    ) -> Followed<'a> {
        let pids = pids.to_vec();
        Followed { programs, history, stopped, state: Mutex::new(FollowedState { pids, ..FollowedState::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, FollowedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places probes in all processes, and in those that follow: `attach` does so in those that are given.
    ///
    /// # Errors
    /// Those of `attach`.
    pub fn attach<E>(&self, attach: impl FnOnce(&[u32]) -> Result<Attachment, E>) -> Result<Attachment, E> {
        let mut state = self.state();
        let mut attachment = attach(&state.pids)?;
        let since = host::now();
        for (placed, first) in attachment.placed.iter().cloned().zip(attachment.probes.drain(..)) {
            let number = state.numbers;
            state.numbers += 1;
            state.placed.insert(number, InPlace { placed, since, first });
        }
        Ok(attachment)
    }

    /// Children that are forked from now on are stopped until they are [adopted](Followed::adopt), or are not any more.
    pub fn stop_children(&self, are_stopped: bool) {
        self.programs.wait_for_children(if are_stopped { LONGEST_WAIT_NS } else { 0 });
    }

    /// Gives the probes of these regions, to be taken out, and all regions that lose theirs with them.
    pub fn take_out(&self, regions: &HashSet<RegionId>) -> (Vec<Probes>, HashSet<RegionId>) {
        let mut state = self.state();
        let is_meant = |in_place: &InPlace| in_place.placed.regions().any(|id| regions.contains(&id));
        let meant = state.placed.iter().filter(|(_, in_place)| is_meant(in_place)).map(|(number, _)| *number);
        let meant: Vec<usize> = meant.collect();
        let out: BTreeMap<usize, InPlace> =
            meant.into_iter().filter_map(|number| Some((number, state.placed.remove(&number)?))).collect();
        let of_children =
            state.probes.values_mut().flat_map(|probes| probes.extract_if(.., |(at, _)| out.contains_key(at)));
        let mut probes: Vec<Probes> = of_children.map(|(_, probes)| probes).collect();
        state.is_throttled |= !out.is_empty();
        let all = out.values().flat_map(|in_place| in_place.placed.regions()).collect();
        probes.extend(out.into_values().map(|in_place| in_place.first));
        (probes, all)
    }

    /// The processes with probes.
    pub fn pids(&self) -> Vec<u32> {
        self.state().pids.clone()
    }

    /// Places probes in a child that was forked at that time.
    ///
    /// # Errors
    /// The kernel refuses probes, though the child runs, or a map of the programs cannot be read.
    pub fn adopt(&self, pid: u32, parent: u32, since: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        if state.left.contains(&parent) {
            state.left.insert(pid);
            state.tell_blind_for_good(pid, since, |_| true);
            self.programs.take_unlinked(pid)?;
            self.stopped.let_go(pid);
            return Ok(());
        }
        let mut probes = Vec::with_capacity(state.placed.len());
        // The libraries in which the child has no probes from now on, either.
        let (mut without, mut missing) = (HashSet::new(), Vec::new());
        // It has the code of its parent, with all changes of that.
        self.programs.avoid_alike(pid, parent);
        state.withdrawn.inherit(pid, parent);
        let process = ProcessCode::of(pid);
        for (&index, InPlace { placed, .. }) in &state.placed {
            if !placed.is_unchanged() {
                without.insert(placed.library.id);
                continue;
            }
            let rewritten = process.as_ref().map(|process| process.rewritten(placed.file.file(), placed.spots()));
            placed.avoid(self.programs, pid, &rewritten.unwrap_or_default());
            match placed.place(self.programs, pid) {
                Ok(placed) => probes.push((index, placed)),
                Err(error) if error.is_gone() => break,
                Err(error) if error.is_shortage() => {
                    without.insert(placed.library.id);
                    missing.push((pid, index));
                }
                Err(error) => return Err(error),
            }
        }
        state.probes.insert(pid, probes);
        state.pids.push(pid);
        state.missing.extend(missing);
        state.stays_blind(pid, |library| without.contains(&library.id));
        let unlinked = self.unlinked(&state, pid)?;
        state.tell_blind_child(pid, parent, unlinked, &without, since);
        state.note_adoption();
        self.stopped.let_go(pid);
        Ok(())
    }

    /// Places probes in a process that is no child of these, and was none of them until that time.
    ///
    /// # Errors
    /// As [`adopt`](Followed::adopt).
    pub fn join(&self, pid: u32, since: Timestamp) -> Result<(), Error> {
        // What it maps it has mapped itself, as far as known.
        self.adopt(pid, pid, since)?;
        self.state().joined.push(pid);
        Ok(())
    }

    /// The processes that have joined since the last call.
    pub fn take_joined(&self) -> Vec<u32> {
        std::mem::take(&mut self.state().joined)
    }

    /// What a child has done without links. Where functions were throttled, it may not have inherited their breakpoints.
    fn unlinked(&self, state: &FollowedState, pid: u32) -> Result<Unlinked, Error> {
        let unlinked = self.programs.take_unlinked(pid)?;
        Ok(Unlinked { has_run: unlinked.has_run || state.is_throttled, ..unlinked })
    }

    /// Recording ends before a child that was forked at that time has got its probes.
    ///
    /// # Errors
    /// A map of the programs cannot be read.
    pub fn miss(&self, pid: u32, parent: u32, since: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        let unlinked = self.unlinked(&state, pid)?;
        state.tell_blind_child(pid, parent, unlinked, &HashSet::new(), since);
        self.stopped.let_go(pid);
        Ok(())
    }

    /// A process has lost its probes: one of its threads that is not the first has executed a program, and goes on
    /// as a first one that the kernel does not know them of. Placed again, they would be hit with the old ones.
    pub fn lose(&self, pid: u32, since: Timestamp) {
        let mut state = self.state();
        state.tell_blind_for_good(pid, since, |_| true);
        state.lost.insert(pid);
    }

    /// Takes out the probes that a process, which is about to execute a program, has in files that have changed since
    /// they were looked at, and waits until they are gone: it would get them at places that mean something else now.
    pub fn drop_changed(&self, pid: u32, now: Timestamp) {
        let mut state = self.state();
        let FollowedState { placed, probes, .. } = &mut *state;
        let mut of_child = probes.get_mut(&pid);
        let (mut gone, mut libraries) = (Vec::new(), HashSet::new());
        for (index, InPlace { placed, first, .. }) in placed.iter_mut().filter(|(_, of)| !of.placed.is_unchanged()) {
            let of_child = of_child.iter_mut().flat_map(|probes| probes.iter_mut()).filter(|(at, _)| at == index);
            let probes = of_child.map(|(_, probes)| probes).chain([first]);
            let before = gone.len();
            gone.extend(probes.map(|probes| probes.take_of(pid)).filter(|probes| !probes.is_empty()));
            if gone.len() > before {
                libraries.insert(placed.library.id);
            }
        }
        state.tell_blind_for_good(pid, now, |library| libraries.contains(&library.id));
        drop(state);
        self.detach(gone);
    }

    /// Takes probes out, and waits until they are gone.
    fn detach(&self, probes: Vec<Probes>) {
        if !probes.is_empty() {
            detach(probes);
            self.state().last_detaching = host::now();
        }
    }

    /// Takes the probes out of a process in which they would do harm, and places none in what children it makes. They
    /// are gone when this returns.
    pub fn leave(&self, pid: u32, since: Timestamp) {
        let mut state = self.state();
        if !state.pids.contains(&pid) {
            return;
        }
        state.pids.retain(|&other| other != pid);
        state.left.insert(pid);
        state.tell_blind_for_good(pid, since, |_| true);
        let of_child = state.probes.remove(&pid).unwrap_or_default();
        let mut probes: Vec<Probes> = of_child.into_iter().map(|(_, probes)| probes).collect();
        probes.extend(state.placed.values_mut().map(|in_place| in_place.first.take_of(pid)));
        drop(state);
        self.detach(probes);
    }

    /// Takes out the probes of processes that have ended: all but these, of which records tell, and children
    /// of which none tells yet.
    pub fn keep(&self, living: &[u32]) {
        let mut state = self.state();
        let lives = |pid: &u32| living.contains(pid) || !privilege::has_ended(*pid);
        state.pids.retain(lives);
        state.left.retain(lives);
        state.lost.retain(lives);
        state.missing.retain(|(pid, _)| lives(pid));
        let FollowedState { placed, withdrawn, .. } = &mut *state;
        withdrawn.give_up(placed, |pid| !lives(&pid));
        self.programs.keep_avoiding(|pid| lives(&pid));
        let blind: Vec<BlindChild> = state.staying_blind.extract_if(.., |child| !lives(&child.pid)).collect();
        state.blind.extend(blind);
        let ended: Vec<u32> = state.probes.keys().filter(|pid| !state.pids.contains(pid)).copied().collect();
        for (index, probes) in ended.iter().filter_map(|pid| state.probes.remove(pid)).flatten().collect::<Vec<_>>() {
            state.ended_sites += state.placed.get(&index).map_or(0, |in_place| in_place.placed.number());
            state.ended.push(probes);
        }
        state.close_ended();
    }

    /// Whether a process has probes.
    pub fn contains(&self, pid: u32) -> bool {
        self.state().pids.contains(&pid)
    }

    /// Whether a process should have all its probes now.
    pub fn has_probes(&self, pid: u32) -> bool {
        self.contains(pid) && !self.state().lost.contains(&pid)
    }

    /// The processes that should have all their probes.
    pub fn inspected(&self) -> Vec<u32> {
        let state = self.state();
        state.pids.iter().copied().filter(|pid| !state.lost.contains(pid)).collect()
    }

    /// How many changes of code are known.
    pub fn changes(&self) -> u64 {
        self.programs.changes()
    }

    /// Recording ends: so do all blind windows.
    pub fn end(&self) {
        let mut state = self.state();
        let blind = std::mem::take(&mut state.staying_blind);
        state.blind.extend(blind);
        let undecided = std::mem::take(&mut state.undecided);
        let is_blind = |ended, child: &BlindChild| !self.history.is_known(ended) || self.may_have_mapped(child);
        state
            .blind
            .extend(undecided.into_iter().filter(|(ended, child)| is_blind(*ended, child)).map(|(_, child)| child));
    }

    /// The blind windows that have ended since the last call.
    pub fn take_blind(&self) -> Vec<BlindChild> {
        let mut state = self.state();
        state.close_ended();
        let decided: Vec<_> = state.undecided.extract_if(.., |(ended, _)| self.history.is_known(*ended)).collect();
        let mut blind = std::mem::take(&mut state.blind);
        blind.extend(decided.into_iter().map(|(_, child)| child).filter(|child| self.may_have_mapped(child)));
        blind
    }

    fn may_have_mapped(&self, BlindChild { pid, library, since }: &BlindChild) -> bool {
        let path = Path::new(&library.path);
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or_default();
        self.history.may_have_mapped(*pid, *since, (library.device, library.inode), name)
    }

    /// All probes, to be taken out.
    pub fn into_probes(self) -> Vec<Probes> {
        self.state().take_probes()
    }
}

fn is_mapped(modules: &[Module], library: &Library) -> bool {
    modules.iter().any(|module| (module.device, module.inode) == (library.device, library.inode))
}
