//! The loaded programs and the maps they share with user space.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, Link, MapCore as _, MapFlags, MapHandle, MapType};

use crate::Error;
use crate::arrivals;
use crate::governed;
use crate::journal::Journal;
use crate::profile::ProfileOptions;
use crate::skeleton::rtrace::{OpenRtraceSkel, RtraceSkel, RtraceSkelBuilder};
use crate::watch;
use crate::wire::{
    self, ArrivalKey, CountCode, Limit, LocationRecord, LossKey, OpenCallRecord, OpenThreadRecord, ProcessRecord,
    ReadingRecord, TracedCode,
};

/// How probes are attached; the better ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Many sites per link (Linux 6.6).
    Multi,
    /// One perf event per site (Linux 5.15).
    Single,
}

impl Mechanism {
    /// All mechanisms, the best first.
    pub const ALL: [Mechanism; 2] = [Mechanism::Multi, Mechanism::Single];

    /// The kernel's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Multi => "uprobe.multi",
            Mechanism::Single => "uprobe",
        }
    }
}

/// Counters that a recording may have.
pub const MAX_COUNTERS: usize = Limit::RT_COUNTERS.0 as usize;

/// Variables that a recording may watch.
pub const MAX_WATCHES: usize = Limit::RT_WATCHES.0 as usize;

/// Where a counter is read at each enter and exit.
#[derive(Debug)]
pub enum Counter {
    /// A performance event of every CPU on line, by number, open for all processes and not inherited.
    Event(Vec<(u32, OwnedFd)>),
    /// What the kernel knows of a thread without an event.
    Kernel(CountCode),
    /// Accesses to a variable, [`MAX_WATCHES`] at the most, behind all other counters; see
    /// [`Programs::watch`].
    Accesses {
        /// The variable's size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether its value after each access is recorded; the accesses must be writes then.
        values: bool,
    },
}

impl Counter {
    fn code(&self) -> CountCode {
        match self {
            Counter::Event(_) => CountCode::RT_COUNT_EVENT,
            Counter::Kernel(code) => *code,
            Counter::Accesses { .. } => CountCode::RT_COUNT_ACCESSES,
        }
    }
}

/// What must be known before loading.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// How probes will be attached.
    pub mechanism: Mechanism,
    /// Whether some returns will be hooked.
    pub hooks: bool,
    /// Size of each CPU's ring in bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
    /// Whether children of traced processes are traced from their first instruction.
    pub follow_children: bool,
    /// Whether calls are folded by call path, and how; `None`: every call leaves as a record.
    pub profile: Option<ProfileOptions>,
    /// What is counted on every call, [`MAX_COUNTERS`] at the most.
    pub counters: &'a [Counter],
    /// Whether regions can be [lowered](Programs::lower) instead of recorded.
    pub is_governed: bool,
    /// Whether the programs do the instructions that cookies [name](wire::step_cookie), where they
    /// [may](crate::may_step).
    pub steps: bool,
}

impl LoadOptions<'_> {
    /// For calls of rtrace itself: nothing beside them, and room for few.
    pub const fn plain(mechanism: Mechanism) -> LoadOptions<'static> {
        LoadOptions {
            mechanism,
            hooks: false,
            ring_bytes: 0,
            follow_children: false,
            profile: None,
            counters: &[],
            is_governed: false,
            steps: false,
        }
    }
}

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
}

/// The loaded programs. Dropping them detaches all and leaves nothing in the kernel.
pub struct Programs {
    pub(crate) skel: RtraceSkel<'static>,
    /// By CPU.
    pub(crate) rings: Vec<(u32, MapHandle)>,
    mechanism: Mechanism,
    counters: usize,
    is_profiled: bool,
    is_governed: bool,
    pub(crate) shared: Shared,
    pub(crate) journal: Option<Journal>,
    _lifecycle: Vec<Link>,
}

/// Variables in the memory that the programs and user space share. It is mapped for as long as the
/// programs are loaded, so these must not leave [`Programs`].
pub(crate) struct Shared {
    armed: &'static AtomicU32,
    guarded: &'static AtomicU32,
    guard_user: &'static AtomicU32,
    guard_group: &'static AtomicU32,
    guard_capabilities: &'static AtomicU64,
    closing: &'static AtomicU32,
    open_is_last: &'static AtomicU32,
    pub(crate) window_is_open: &'static AtomicU32,
    pub(crate) lowered_cost: &'static AtomicU64,
    open_first: &'static AtomicU32,
    exits_without_enter: &'static AtomicU64,
    pub(crate) stepped_returns: &'static AtomicU64,
    last_space: &'static AtomicU32,
    last_path: &'static AtomicU32,
    estimates: [&'static AtomicU64; MAX_COUNTERS],
    accesses_seen: [&'static AtomicU64; MAX_WATCHES],
}

impl Shared {
    fn of(skel: &mut RtraceSkel<'static>) -> Shared {
        let bss = skel.maps.bss_data.as_deref_mut().expect("the programs have data");
        // SAFETY: aligned fields of a mapping that lives as long as the skeleton, from here on
        // accessed through these atomics only.
        unsafe {
            Shared {
                armed: AtomicU32::from_ptr(&raw mut bss.armed),
                guarded: AtomicU32::from_ptr(&raw mut bss.guarded),
                guard_user: AtomicU32::from_ptr(&raw mut bss.guard_user),
                guard_group: AtomicU32::from_ptr(&raw mut bss.guard_group),
                guard_capabilities: AtomicU64::from_ptr(&raw mut bss.guard_capabilities),
                closing: AtomicU32::from_ptr(&raw mut bss.closing),
                open_is_last: AtomicU32::from_ptr(&raw mut bss.open_is_last),
                window_is_open: AtomicU32::from_ptr(&raw mut bss.window_is_open),
                lowered_cost: AtomicU64::from_ptr(&raw mut bss.lowered_cost),
                open_first: AtomicU32::from_ptr(&raw mut bss.open_first),
                exits_without_enter: AtomicU64::from_ptr(&raw mut bss.exits_without_enter),
                stepped_returns: AtomicU64::from_ptr(&raw mut bss.stepped_returns),
                last_space: AtomicU32::from_ptr(&raw mut bss.last_space),
                last_path: AtomicU32::from_ptr(&raw mut bss.last_path),
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

impl Programs {
    /// Loads the programs and begins to follow the processes given to [`trace`](Programs::trace).
    /// Recording is off.
    ///
    /// # Errors
    /// [`Error::Load`] where the kernel refuses the programs: privileges or abilities are missing.
    pub fn load(options: &LoadOptions<'_>) -> Result<Programs, Error> {
        let load_error = |source| Error::Load { mechanism: options.mechanism.name(), source };
        let cpus = online_cpus()?;
        // The skeleton borrows its storage for as long as it lives; a process loads it a few times.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = RtraceSkelBuilder::default().open(storage).map_err(load_error)?;
        select_programs(&mut open, options);
        if let Some(profile) = &options.profile {
            profile.configure(&mut open, !options.counters.is_empty()).map_err(load_error)?;
        }
        if options.is_governed {
            governed::configure(&mut open).map_err(load_error)?;
        }
        let constants = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
        constants.follow_children = options.follow_children;
        constants.may_step = options.steps;
        constants.rt_counters = u32::try_from(options.counters.len().min(MAX_COUNTERS)).expect("a small number");
        for (source, counter) in constants.counter_sources.iter_mut().zip(options.counters) {
            *source = counter.code().0;
        }
        watch::configure(&mut open, options.counters).map_err(load_error)?;
        let counts_per_cpu =
            |counter: &Counter| matches!(counter.code(), CountCode::RT_COUNT_EVENT | CountCode::RT_COUNT_CPU_TIME);
        let needs_switches = options.counters.iter().any(counts_per_cpu);
        open.progs.rt_switch.set_autoload(needs_switches);
        open.maps.site_hits.set_max_entries(arrivals::MAX_SITES).map_err(load_error)?;
        let possible = libbpf_rs::num_possible_cpus().map_err(load_error)?;
        let possible = u32::try_from(possible).unwrap_or(u32::MAX);
        open.maps.rings.set_max_entries(possible).map_err(load_error)?;
        let events = possible.saturating_mul(Limit::RT_COUNTERS.0);
        open.maps.counter_events.set_max_entries(events).map_err(load_error)?;
        open.maps.entries_seen.set_max_entries(possible.saturating_mul(Limit::RT_CHECKED.0)).map_err(load_error)?;
        let mut skel = open.load().map_err(load_error)?;
        let shared = Shared::of(&mut skel);

        let rings = cpus
            .into_iter()
            .map(|cpu| Ok((cpu, create_ring(&skel, cpu, options.ring_bytes)?)))
            .collect::<libbpf_rs::Result<Vec<_>>>()
            .map_err(Error::kernel("create a ring buffer"))?;
        install(&skel, options.counters).map_err(Error::kernel("hand a counter to the programs"))?;
        let progs = &skel.progs;
        let lifecycle = [&progs.rt_fork, &progs.rt_exec, &progs.rt_exit_task]
            .into_iter()
            .chain(needs_switches.then_some(&progs.rt_switch))
            .map(|program| program.attach())
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::kernel("attach to the scheduler's tracepoints"))?;
        Ok(Programs {
            skel,
            rings,
            mechanism: options.mechanism,
            counters: options.counters.len(),
            is_profiled: options.profile.is_some(),
            is_governed: options.is_governed,
            shared,
            journal: None,
            _lifecycle: lifecycle,
        })
    }

    /// How probes are attached.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Writes down from now on where probes are placed, before they are.
    pub fn keep_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
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
        let process = ProcessRecord { traced: traced.0, space };
        self.skel
            .maps
            .traced
            .update(&pid.to_ne_bytes(), wire::bytes_of(&process), MapFlags::ANY)
            .map_err(Error::kernel("add a process to those traced"))?;
        Ok(space)
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

    /// Hooked returns of calls that had begun before the recording.
    pub fn exits_without_enter(&self) -> u64 {
        self.shared.exits_without_enter.load(Ordering::Relaxed)
    }

    /// Number of readings that come with each call.
    pub fn counters(&self) -> usize {
        self.counters
    }

    /// Whether calls are folded by call path.
    pub(crate) fn is_profiled(&self) -> bool {
        self.is_profiled
    }

    /// Whether regions can be [lowered](Programs::lower) instead of recorded.
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
                });
                for _ in 0..thread.frames {
                    let (open, after) = wire::take::<OpenCallRecord>(rest)?;
                    rest = wire::take_readings(after, self.counters, &mut entry.readings)?;
                    if open.call.id == 0 {
                        entry.readings.truncate(entry.readings.len() - self.counters);
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

fn select_programs(open: &mut OpenRtraceSkel, options: &LoadOptions<'_>) {
    let progs = &mut open.progs;
    let multi = options.mechanism == Mechanism::Multi;
    for program in [&mut progs.rt_multi_enter, &mut progs.rt_multi_return, &mut progs.rt_multi_jump] {
        program.set_autoload(multi);
    }
    for program in [&mut progs.rt_single_enter, &mut progs.rt_single_return, &mut progs.rt_single_jump] {
        program.set_autoload(!multi);
    }
    progs.rt_multi_hooked.set_autoload(multi && options.hooks);
    progs.rt_single_hooked.set_autoload(!multi && options.hooks);
}

/// Lets the programs read the events of all CPUs.
fn install(skel: &RtraceSkel, counters: &[Counter]) -> libbpf_rs::Result<()> {
    for (index, counter) in (0_u32..).zip(counters) {
        let Counter::Event(events) = counter else { continue };
        for (cpu, event) in events {
            let place = cpu * Limit::RT_COUNTERS.0 + index;
            let fd = event.as_fd().as_raw_fd();
            skel.maps.counter_events.update(&place.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        }
    }
    Ok(())
}

fn create_ring(skel: &RtraceSkel, cpu: u32, bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let size = bytes.max(4096).checked_next_power_of_two().unwrap_or(1 << 31);
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
    let ring = MapHandle::create(MapType::RingBuf, Some("rt_calls"), 0, 0, size, &options)?;
    put_ring(skel, cpu, &ring)?;
    Ok(ring)
}

/// Gives the programs the ring of a CPU.
fn put_ring(skel: &RtraceSkel, cpu: u32, ring: &MapHandle) -> libbpf_rs::Result<()> {
    let fd = ring.as_fd().as_raw_fd();
    skel.maps.rings.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

/// CPUs on line, from the kernel's list such as `0-3,8`.
///
/// # Errors
/// [`Error::Read`] where sysfs cannot be read.
pub fn online_cpus() -> Result<Vec<u32>, Error> {
    let path = PathBuf::from("/sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    Ok(parse_cpu_list(&text))
}

fn parse_cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verifier looks at each combination anew.
    #[test]
    fn the_kernel_takes_the_programs_with_any_number_of_counters() {
        let Ok(mechanism) = crate::best_mechanism() else {
            return println!("skipped: no mechanism works here");
        };
        let codes = (1..=6).map(CountCode);
        let kernel = codes.cycle().take(MAX_COUNTERS).map(Counter::Kernel);
        let events = std::iter::repeat_with(|| Counter::Event(Vec::new())).take(MAX_COUNTERS);
        let variables = std::iter::repeat_with(|| Counter::Accesses { size: 8, values: true }).take(MAX_WATCHES);
        let mixed = [Counter::Kernel(CountCode::RT_COUNT_CPU_TIME), Counter::Event(Vec::new())];
        let mixed = mixed.into_iter().chain(variables);
        let folding = Some(ProfileOptions { max_paths: 16, written_from: Some(1) });
        let steps = crate::may_step().is_ok();
        for counters in [Vec::new(), kernel.collect(), events.collect(), mixed.collect()] {
            for (profile, is_governed) in [(None, false), (folding, false), (None, true), (folding, true)] {
                let plain = LoadOptions::plain(mechanism);
                let options = LoadOptions { hooks: true, profile, counters: &counters, is_governed, steps, ..plain };
                let loaded = Programs::load(&options).map(|programs| programs.counters());
                assert_eq!(loaded.map_err(|error| error.to_string()), Ok(counters.len()));
            }
        }
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(parse_cpu_list("0\n"), [0]);
    }
}
