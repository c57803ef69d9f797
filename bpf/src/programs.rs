//! The loaded programs and the maps they share with user space.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use libbpf_rs::{ErrorKind, Iter, Link, MapCore as _, MapFlags, MapHandle};

use crate::allowance::Allowance;
use crate::journal::{Journal, Probed};
use crate::mapped::Mapped;
use crate::options::{MAX_COUNTERS, MAX_WATCHES, Mechanism};
use crate::skeleton::rtrace::RtraceSkel;
use crate::wire::{
    self, ArrivalKey, CallWords, CountedRecord, HitTimes, Limit, LocationRecord, LossKey, OpenCallRecord,
    OpenThreadRecord, ProcessRecord, ReadingRecord, TracedCode, UnlinkedBit,
};
use crate::{Error, ProbeLimit};

/// The calls that were running on one thread when recording was switched off.
#[derive(Clone, Debug)]
pub struct OpenThread {
    /// The thread.
    pub thread: OpenThreadRecord,
    /// Its running calls, the oldest first, with durations of 0; behind them those that were left without
    /// a return and are not on record yet, with the duration until then.
    pub calls: Vec<OpenCallRecord>,
    /// What they have counted so far, one reading per counter for each call.
    pub readings: Vec<ReadingRecord>,
    /// Their values so far, one record for each call; empty where no call has any.
    pub values: Vec<CallWords>,
}

/// The loaded programs. Dropping them detaches all and leaves nothing in the kernel.
pub struct Programs {
    pub(crate) skel: RtraceSkel<'static>,
    /// By CPU.
    pub(crate) rings: Vec<(u32, MapHandle)>,
    pub(crate) mechanism: Mechanism,
    pub(crate) counters: usize,
    pub(crate) words: usize,
    pub(crate) levels: u32,
    pub(crate) is_profiled: bool,
    pub(crate) is_governed: bool,
    pub(crate) may_wait: bool,
    pub(crate) shared: Shared,
    pub(crate) entries_seen: Mapped<u64>,
    pub(crate) counts: Mapped<CountedRecord>,
    pub(crate) calm: OnceLock<HitTimes>,
    pub(crate) journal: Option<Journal>,
    pub(crate) most_descriptors: usize,
    pub(crate) allowance: Option<Arc<Allowance>>,
    pub(crate) _lifecycle: Vec<Link>,
    pub(crate) clocks: Vec<Link>,
}

/// Variables in the memory that the programs and user space share. It is mapped for as long as the
/// programs are loaded, so these must not leave [`Programs`].
pub(crate) struct Shared {
    armed: &'static AtomicU32,
    guarded: &'static AtomicU32,
    pub(crate) within: &'static AtomicU32,
    pub(crate) walking_stacks: &'static AtomicU32,
    pub(crate) reading_python: &'static AtomicU32,
    pub(crate) has_actions: &'static AtomicU32,
    pub(crate) lost_moments: &'static AtomicU64,
    guard_user: &'static AtomicU32,
    guard_group: &'static AtomicU32,
    guard_capabilities: &'static AtomicU64,
    closing: &'static AtomicU32,
    open_is_last: &'static AtomicU32,
    pub(crate) window_is_open: &'static AtomicU32,
    pub(crate) counts_used: &'static AtomicU32,
    open_first: &'static AtomicU32,
    pub(crate) stepped_returns: &'static AtomicU64,
    pub(crate) clock_ticks: [&'static AtomicU64; 2],
    pub(crate) waited: &'static AtomicU64,
    longest_for_sites: &'static AtomicU64,
    longest_for_contexts: &'static AtomicU64,
    longest_for_children: &'static AtomicU64,
    longest_for_writers: &'static AtomicU64,
    last_space: &'static AtomicU32,
    looked_at: &'static AtomicU32,
    has_met_breakpoint: &'static AtomicU32,
    last_path: &'static AtomicU32,
    estimates: [&'static AtomicU64; MAX_COUNTERS],
    accesses_seen: [&'static AtomicU64; MAX_WATCHES],
}

impl Shared {
    pub(crate) fn of(skel: &mut RtraceSkel<'static>) -> Shared {
        let bss = skel.maps.bss_data.as_deref_mut().expect("the programs have data");
        // SAFETY: aligned fields of a mapping that lives as long as the skeleton, from here on
        // accessed through these atomics only.
        unsafe {
            Shared {
                armed: AtomicU32::from_ptr(&raw mut bss.armed),
                guarded: AtomicU32::from_ptr(&raw mut bss.guarded),
                within: AtomicU32::from_ptr(&raw mut bss.rt_within),
                walking_stacks: AtomicU32::from_ptr(&raw mut bss.walking_stacks),
                reading_python: AtomicU32::from_ptr(&raw mut bss.reading_python),
                has_actions: AtomicU32::from_ptr(&raw mut bss.has_actions),
                lost_moments: AtomicU64::from_ptr(&raw mut bss.lost_moments),
                guard_user: AtomicU32::from_ptr(&raw mut bss.guard_user),
                guard_group: AtomicU32::from_ptr(&raw mut bss.guard_group),
                guard_capabilities: AtomicU64::from_ptr(&raw mut bss.guard_capabilities),
                closing: AtomicU32::from_ptr(&raw mut bss.closing),
                open_is_last: AtomicU32::from_ptr(&raw mut bss.open_is_last),
                window_is_open: AtomicU32::from_ptr(&raw mut bss.window_is_open),
                open_first: AtomicU32::from_ptr(&raw mut bss.open_first),
                stepped_returns: AtomicU64::from_ptr(&raw mut bss.stepped_returns),
                clock_ticks: [
                    AtomicU64::from_ptr(&raw mut bss.clock_ticks),
                    AtomicU64::from_ptr(&raw mut bss.clock_ticks_of_tracing),
                ],
                waited: AtomicU64::from_ptr(&raw mut bss.waited),
                longest_for_sites: AtomicU64::from_ptr(&raw mut bss.for_sites.longest),
                longest_for_contexts: AtomicU64::from_ptr(&raw mut bss.for_contexts.longest),
                longest_for_children: AtomicU64::from_ptr(&raw mut bss.for_children.longest),
                longest_for_writers: AtomicU64::from_ptr(&raw mut bss.for_writers.longest),
                last_space: AtomicU32::from_ptr(&raw mut bss.last_space),
                looked_at: AtomicU32::from_ptr(&raw mut bss.looked_at),
                has_met_breakpoint: AtomicU32::from_ptr(&raw mut bss.has_met_breakpoint),
                last_path: AtomicU32::from_ptr(&raw mut bss.last_path),
                counts_used: AtomicU32::from_ptr(&raw mut bss.counts_used),
                estimates: bss.estimates.each_mut().map(|count| AtomicU64::from_ptr(count)),
                accesses_seen: bss.accesses_seen.each_mut().map(|count| AtomicU64::from_ptr(count)),
            }
        }
    }
}

/// Who looks at programs, and may not look at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observer {
    /// Real user id.
    pub user: u32,
    /// Real group id.
    pub group: u32,
    /// Permitted capabilities, a bit each as the kernel numbers them.
    pub capabilities: u64,
}

/// What a child has done that had no probes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// It can have executed nothing: its parent has waited until it was stopped, or until this was asked.
    pub is_held: bool,
    /// Code that is traced in its parent may have run in it.
    pub has_run: bool,
    /// It has executed another program, in which it had no probes.
    pub has_executed: bool,
}

impl Programs {
    /// How probes are attached.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Whether threads wait for the return sites of calls from places where none is yet.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// A thread that calls from a place without a return site waits from now on for one, for so many nanoseconds at most.
    pub fn wait_for_sites(&self, longest_ns: u64) {
        self.shared.longest_for_sites.store(longest_ns, Ordering::Relaxed);
    }

    /// The first thread that calls in an address space waits from now on until it is [said](Programs::set_python) whether there
    /// is an interpreter of Python, and who finds no room for a context until there is, for so many nanoseconds at most; 0: they
    /// do not.
    pub fn wait_for_contexts(&self, longest_ns: u64) {
        self.shared.longest_for_contexts.store(longest_ns, Ordering::Relaxed);
    }

    /// A process that forks waits from now on until its child [is stopped](Programs::stop_child), for so many nanoseconds at
    /// most; 0: it does not.
    pub fn wait_for_children(&self, longest_ns: u64) {
        self.shared.longest_for_children.store(longest_ns, Ordering::Relaxed);
    }

    /// A thread that makes code writable waits from now on until it is [let go](Programs::let_write), for so many nanoseconds
    /// at most; 0: it does not.
    pub fn wait_for_writers(&self, longest_ns: u64) {
        self.shared.longest_for_writers.store(longest_ns, Ordering::Relaxed);
    }

    /// There are no probes any more in the code that a thread makes writable.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn let_write(&self, thread: u32) -> Result<(), Error> {
        let (key, no) = (thread.to_ne_bytes(), 0_u32.to_ne_bytes());
        match self.skel.maps.writers.update(&key, &no, MapFlags::EXIST) {
            // It has not waited that long.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            updated => updated.map_err(Error::kernel("let a thread write")),
        }
    }

    /// Writes down from now on where probes are placed, before they are.
    pub fn keep_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Places no probes from now on whose descriptors would have this number or a higher one: the others are for
    /// files that are opened later.
    pub fn keep_descriptors(&mut self, first_kept: usize) {
        self.most_descriptors = first_kept;
    }

    /// Has no more probes in place at a time from now on.
    pub fn limit(&mut self, limit: ProbeLimit) {
        self.allowance = Some(Allowance::new(limit));
    }

    /// Withholds from now on what this user could not ptrace: nothing of such a process is recorded.
    pub fn guard(&self, observer: Observer) {
        self.shared.guard_user.store(observer.user, Ordering::Relaxed);
        self.shared.guard_group.store(observer.group, Ordering::Relaxed);
        self.shared.guard_capabilities.store(observer.capabilities, Ordering::Relaxed);
        self.shared.guarded.store(1, Ordering::SeqCst);
    }

    /// Records the process's calls from now on, once armed. Returns the number of its address space.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table of processes is full.
    pub fn trace(&self, pid: u32) -> Result<u32, Error> {
        self.set_traced(pid, TracedCode::RT_TRACED)
    }

    /// Records the process's calls no more, which has ended before it could be noticed.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget(&self, pid: u32) -> Result<(), Error> {
        self.skel.maps.traced.delete(&pid.to_ne_bytes()).map_err(Error::kernel("forget a process"))
    }

    /// Records the process's calls from its next exec on, once armed.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table of processes is full.
    pub fn trace_from_exec(&self, pid: u32) -> Result<(), Error> {
        self.set_traced(pid, TracedCode::RT_TRACED_FROM_EXEC).map(drop)
    }

    fn set_traced(&self, pid: u32, traced: TracedCode) -> Result<u32, Error> {
        let space = self.shared.last_space.fetch_add(1, Ordering::Relaxed) + 1;
        let process = ProcessRecord { traced: traced.0, space, executed: 0 };
        self.skel
            .maps
            .traced
            .update(&pid.to_ne_bytes(), wire::bytes_of(&process), MapFlags::ANY)
            .map_err(Error::kernel("add a process to those traced"))?;
        Ok(space)
    }

    /// Stops a child that was just forked, and lets its parent go on, which waits for that. Returns whether that came before
    /// the child had probes of its own.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn stop_child(&self, pid: u32, stop: impl FnOnce() -> bool) -> Result<bool, Error> {
        if self.known_of_unlinked(pid)?.is_none() || !stop() {
            self.answer_parent(
                pid,
                UnlinkedBit(UnlinkedBit::RT_UNLINKED_ANSWERED.0 | UnlinkedBit::RT_UNLINKED_FREE.0),
            )?;
            return Ok(false);
        }
        // If its parent had waited for too long before it was stopped, that is known by now.
        self.answer_parent(pid, UnlinkedBit::RT_UNLINKED_ANSWERED)
    }

    /// A child that was stopped goes on, though it may not have its probes yet.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn free_child(&self, pid: u32) -> Result<(), Error> {
        self.answer_parent(pid, UnlinkedBit::RT_UNLINKED_FREE).map(drop)
    }

    /// Whether the child has not got its probes yet.
    fn answer_parent(&self, pid: u32, answer: UnlinkedBit) -> Result<bool, Error> {
        let Some(known) = self.known_of_unlinked(pid)? else { return Ok(false) };
        let value = (known | answer.0).to_ne_bytes();
        match self.skel.maps.unlinked.update(&pid.to_ne_bytes(), &value, MapFlags::EXIST) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            updated => updated.map(|()| true).map_err(Error::kernel("answer a process that forks")),
        }
    }

    fn known_of_unlinked(&self, pid: u32) -> Result<Option<u32>, Error> {
        let known = self.skel.maps.unlinked.lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        let known = known.map_err(Error::kernel("ask what a child has done"))?;
        Ok(known.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))))
    }

    /// Whether a child can have called anything since it was forked, of which that is no longer known afterwards. Asked
    /// once it has probes of its own, or will get none.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn take_unlinked(&self, pid: u32) -> Result<Unlinked, Error> {
        let action = || Error::kernel("ask what a child has done");
        self.shared.has_met_breakpoint.store(0, Ordering::SeqCst);
        self.shared.looked_at.store(pid, Ordering::SeqCst);
        let link = self.skel.progs.rt_look_at.attach().map_err(action())?;
        Iter::new(&link).map_err(action())?.read_to_end(&mut Vec::new()).map_err(Error::io("look at threads"))?;
        let has_met = self.shared.has_met_breakpoint.load(Ordering::SeqCst) != 0;
        // What a thread leaves behind when it ends or executes a program is there before its own note of it is gone.
        let Some(known) = self.known_of_unlinked(pid)? else {
            return Ok(Unlinked { is_held: false, has_run: true, has_executed: true });
        };
        // Its parent waits no longer, if it does.
        self.skel.maps.unlinked.delete(&pid.to_ne_bytes()).map_err(action())?;
        let is = |bit: UnlinkedBit| known & bit.0 != 0;
        Ok(Unlinked {
            is_held: !is(UnlinkedBit::RT_UNLINKED_FREE),
            has_run: has_met || is(UnlinkedBit::RT_UNLINKED_RAN),
            has_executed: is(UnlinkedBit::RT_UNLINKED_EXECUTED),
        })
    }

    /// The number of a process's address space now; none if it is not traced.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn space(&self, pid: u32) -> Result<Option<u32>, Error> {
        let value = self
            .skel
            .maps
            .traced
            .lookup(&pid.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::kernel("look up a traced process"))?;
        value.map(|bytes| Ok(wire::decode::<ProcessRecord>(&bytes)?.space)).transpose()
    }

    /// Switches recording on.
    pub fn arm(&self) {
        self.shared.armed.store(1, Ordering::Relaxed);
    }

    /// Switches recording off and waits until no program is still recording. Threads that end from now on hand over
    /// their calls, until these are [taken](Programs::take_open_calls).
    ///
    /// # Errors
    /// [`Error::Kernel`]: programs may still be recording.
    pub fn disarm(&self) -> Result<(), Error> {
        self.shared.closing.store(1, Ordering::SeqCst);
        self.switch_off()
    }

    /// Switches recording off and waits until no program is still recording.
    ///
    /// # Errors
    /// [`Error::Kernel`]: programs may still be recording.
    pub(crate) fn switch_off(&self) -> Result<(), Error> {
        self.shared.armed.store(0, Ordering::SeqCst);
        self.wait_for_programs()
    }

    /// Waits for all programs that run now. They do so inside RCU read sections, and when an array of maps is changed
    /// the kernel waits for those, on any number of CPUs. The system call membarrier(2) would not where there is one CPU,
    /// or some that the scheduler's tick leaves alone (`nohz_full`).
    fn wait_for_programs(&self) -> Result<(), Error> {
        let (cpu, ring) = self.rings.first().expect("a CPU is on line");
        put_ring(&self.skel, *cpu, ring).map_err(Error::kernel("wait for programs that run"))
    }

    /// Number of readings that come with each call.
    pub fn counters(&self) -> usize {
        self.counters
    }

    /// Whether calls are folded by call path.
    pub(crate) fn is_profiled(&self) -> bool {
        self.is_profiled
    }

    /// Whether regions can be [throttled](Programs::throttle) instead of recorded.
    pub fn is_governed(&self) -> bool {
        self.is_governed
    }

    /// Whether readings of the counter at this index are estimates, as far as is known now: it did
    /// not count all the time, because the hardware was shared or a switch of threads was not told.
    pub fn is_estimated(&self, counter: usize) -> bool {
        self.shared.estimates.get(counter).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Whether any process is traced that has not ended.
    pub fn traces_any(&self) -> bool {
        self.skel.maps.traced.keys().next().is_some()
    }

    /// The thread lifetime of that location id.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn location(&self, id: u32) -> Result<Option<LocationRecord>, Error> {
        let value = self
            .skel
            .maps
            .locations
            .lookup(&id.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::kernel("look up a location"))?;
        value.map(|bytes| wire::decode(&bytes)).transpose()
    }

    /// Forgets a location that has ended, to make room.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_location(&self, id: u32) -> Result<(), Error> {
        self.skel.maps.locations.delete(&id.to_ne_bytes()).map_err(Error::kernel("forget a location"))
    }

    /// Forgets a process and all that is known of its calls, as if it had never been traced: none of them may
    /// run, no other process may have been traced, and its probes must be out of use; `arrivals`: what was
    /// [told](Programs::set_arrivals) of its `space`.
    pub(crate) fn forget_process(&self, pid: u32, space: u32, arrivals: &[u64]) -> Result<(), Error> {
        let maps = &self.skel.maps;
        let error = || Error::kernel("forget a process");
        maps.traced.delete(&pid.to_ne_bytes()).map_err(error())?;
        for &address in arrivals {
            maps.arrivals
                .delete(wire::bytes_of(&ArrivalKey { address, space, ..ArrivalKey::default() }))
                .map_err(error())?;
        }
        for (id, path, _) in self.paths()? {
            self.forget_path(id, &path)?;
        }
        self.forget_entries()?;
        for map in [&maps.locations, &maps.untimed, &maps.losses] {
            let keys: Vec<_> = map.keys().collect();
            keys.iter().try_for_each(|key| map.delete(key)).map_err(error())?;
        }
        for count in &self.shared.estimates {
            count.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What is missing so far: counts by region and reason.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn losses(&self) -> Result<Vec<(LossKey, u64)>, Error> {
        let map = &self.skel.maps.losses;
        let mut losses = Vec::new();
        for key in map.keys() {
            let value = map.lookup(&key, MapFlags::ANY).map_err(Error::kernel("look up a loss"))?;
            if let Some(Ok(count)) = value.map(|bytes| bytes.try_into().map(u64::from_ne_bytes)) {
                losses.push((wire::decode(&key)?, count));
            }
        }
        Ok(losses)
    }

    /// How often the variable at this place among the watched ones was seen to be accessed, by any
    /// thread, whether it counted or not.
    pub fn accesses_seen(&self, watch: usize) -> u64 {
        self.shared.accesses_seen.get(watch).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Number of entries of the table of call paths that are or were in use.
    pub(crate) fn paths_used(&self) -> u32 {
        self.shared.last_path.load(Ordering::Relaxed)
    }

    /// After [`disarm`](Programs::disarm), the calls that still run on every thread with a location. Afterwards those of
    /// threads that ended earlier are in the rings, and no more will come.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn take_open_calls(&self) -> Result<Vec<OpenThread>, Error> {
        self.shared.open_is_last.store(1, Ordering::SeqCst);
        let calls = self.open_calls()?;
        self.wait_for_programs()?;
        Ok(calls)
    }

    /// The calls that run on every thread with a location. Frames change meanwhile, and may be torn.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn open_calls(&self) -> Result<Vec<OpenThread>, Error> {
        let mut threads = BTreeMap::<u32, OpenThread>::new();
        let chunk = Limit::RT_OPEN_CHUNK.0;
        for first in (0..).step_by(chunk as usize) {
            let bytes = self.read_open_calls(first)?;
            let mut deeper = false;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (thread, after) = wire::take::<OpenThreadRecord>(rest)?;
                rest = after;
                let entry = threads.entry(thread.location).or_insert_with(|| OpenThread {
                    thread,
                    calls: Vec::new(),
                    readings: Vec::new(),
                    values: Vec::new(),
                });
                for _ in 0..thread.frames {
                    let (open, after) = wire::take::<OpenCallRecord>(rest)?;
                    rest = wire::take_readings(after, self.counters, &mut entry.readings)?;
                    if self.words > 0 || self.levels > 0 {
                        let (values, after) = wire::take(rest)?;
                        entry.values.push(CallWords { values, lists: Box::default() });
                        rest = after;
                    }
                    if open.call.id == 0 {
                        entry.readings.truncate(entry.readings.len() - self.counters);
                        entry.values.pop();
                    } else {
                        entry.calls.push(open);
                    }
                }
                deeper |= thread.frames == chunk;
            }
            if !deeper {
                break;
            }
        }
        Ok(threads.into_values().collect())
    }

    fn read_open_calls(&self, first: u32) -> Result<Vec<u8>, Error> {
        let action = "read the calls that still run";
        self.shared.open_first.store(first, Ordering::SeqCst);
        let link = self.skel.progs.rt_open_calls.attach().map_err(Error::kernel(action))?;
        let mut bytes = Vec::new();
        Iter::new(&link).map_err(Error::kernel(action))?.read_to_end(&mut bytes).map_err(Error::io(action))?;
        Ok(bytes)
    }
}

/// Gives the programs the ring of a CPU.
pub(crate) fn put_ring(skel: &RtraceSkel, cpu: u32, ring: &MapHandle) -> libbpf_rs::Result<()> {
    let fd = ring.as_fd().as_raw_fd();
    skel.maps.rings.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

/// Without a journal, nothing is known to have been placed, and nothing is avoided.
impl Programs {
    /// Whether any process has or had a probe at one of these offsets of a file, other than where this one
    /// avoids them, or has done so.
    pub fn has_placed_within(&self, probed: Probed, offsets: &Range<u64>) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.has_placed_within(probed, offsets))
    }

    /// Places no probe there any more, whatever is asked for: the process executes something else there than the file
    /// holds, or may soon, and the kernel would execute what the file holds.
    pub fn avoid(&self, probed: Probed, offset: u64) {
        self.journal.iter().for_each(|journal| journal.avoid(probed, offset));
    }

    /// Places probes there again.
    pub fn allow(&self, probed: Probed, offset: u64) {
        self.journal.iter().for_each(|journal| journal.allow(probed, offset));
    }

    /// A child avoids what its parent does, as it has the code of that.
    pub fn avoid_alike(&self, pid: u32, parent: u32) {
        self.journal.iter().for_each(|journal| journal.inherit(pid, parent));
    }

    /// What other processes than these avoided is forgotten: they have ended.
    pub fn keep_avoiding(&self, lives: impl Fn(u32) -> bool) {
        self.journal.iter().for_each(|journal| journal.keep(&lives));
    }

    /// How often it changed which places are to be avoided.
    pub fn changes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.changes())
    }

    /// Whether no probe is placed there.
    pub fn avoids(&self, probed: Probed, offset: u64) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.avoids(probed, offset))
    }
}
