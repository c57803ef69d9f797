//! Where running processes spend CPU time, sampled.
//!
//! A clock on each CPU notes once a millisecond where the process is that runs there. No probe is placed and no code of
//! the processes is touched, so a look costs them a few percent, however many processes and functions there are. It
//! finds time, not calls: a function that is called often may take little of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_bpf::{SampleDetail, Samples, Sampling};
use rtrace_model::RegionId;
use rtrace_plan::PlannedLibrary;
use rtrace_symbolizer::Error;
use rtrace_symbolizer::address_space::{AddressSpace, FileId};
use rtrace_symbolizer::modules::{self, Module};

use crate::perf::clocks;
use crate::session;

/// CPU time between two samples of one CPU: no whole number of the periods of other timers, the kernel's and those of
/// profilers, which would keep step with it and interrupt always just before it or just behind it.
const PERIOD: Duration = Duration::from_nanos(1_017_071);

/// Between two looks at whether it is to end sooner.
const PATIENCE: Duration = Duration::from_millis(20);

/// For how long a command is sampled at most.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time between two looks at what a command and its children map. Those that are new are looked at sooner.
const LOOK: Duration = Duration::from_millis(100);

/// Processes of a command that are sampled at most.
const MOST_PROCESSES: u32 = 1 << 16;

/// Where processes spent CPU time, in samples.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// For how long they were sampled.
    pub time: Duration,
    /// In the kernel, on behalf of the processes.
    pub in_kernel: u64,
    /// In code that belongs to no ELF file, as that which is made at run time.
    pub in_no_file: u64,
    /// In code of which it is not known what was mapped there: the mapping came and went, or changed meanwhile.
    pub unknown: u64,
    /// Taken, but not noted where, for lack of room. They are in none of the others.
    pub lost: u64,
    /// By the offset of the instruction in the file, in bytes.
    files: HashMap<FileId, BTreeMap<u64, u64>>,
}

impl Sampled {
    /// All of which it was noted where.
    pub fn samples(&self) -> u64 {
        let in_files: u64 = self.files.values().flat_map(BTreeMap::values).sum();
        in_files + self.in_kernel + self.in_no_file + self.unknown
    }

    /// Those in the code of a file, by its device and inode.
    pub fn of_file(&self, file: (u64, u64)) -> u64 {
        self.files.get(&file).map_or(0, |offsets| offsets.values().sum())
    }

    /// Those in the functions that are planned of a library, without what they call. None of them is in two.
    pub fn of_functions(&self, library: &PlannedLibrary) -> HashMap<RegionId, u64> {
        let mut functions = HashMap::new();
        let regions = &library.regions;
        for (&offset, &count) in self.files.get(&(library.library.device, library.library.inode)).into_iter().flatten()
        {
            let after = regions.partition_point(|planned| planned.region.file_offset <= offset);
            let holds =
                |planned: &&rtrace_plan::PlannedRegion| offset - planned.region.file_offset < planned.region.size;
            if let Some(planned) = regions[..after].last().filter(holds) {
                *functions.entry(planned.region.id).or_default() += count;
            }
        }
        functions
    }

    /// So many more were at this offset in bytes of a file, by its device and inode.
    pub fn found_in_file(&mut self, file: (u64, u64), offset: u64, count: u64) {
        *self.files.entry(file).or_default().entry(offset).or_default() += count;
    }
}

/// Samples these processes for a while; sooner over if `stop` is set.
///
/// # Errors
/// One of them must not be traced, or the kernel refuses clocks or a program that they start.
pub fn sample(pids: &[u32], duration: Duration, stop: &AtomicBool) -> anyhow::Result<Sampled> {
    session::check(pids)?;
    let before: HashMap<u32, ProcessMappings> =
        pids.iter().filter_map(|&pid| Some((pid, ProcessMappings::of(pid).ok()?))).collect();
    let (samples, time) = take(pids, None, duration, |_| stop.load(Ordering::Relaxed))?;
    Ok(Sampled { time, ..found(&samples, &before) })
}

/// Where a command and its children spent CPU time.
pub struct SampledCommand {
    /// The time.
    pub sampled: Sampled,
    /// The ELF files that they mapped when they were looked at last, those of the first process first.
    pub modules: Vec<Module>,
    /// Device and inode of the program that the first process executed then.
    pub program: Option<FileId>,
}

/// Samples a command and its children until it `has_ended`; `start` lets it execute its program. Samples are found in the files
/// that they mapped shortly before, as none are known of a process that has ended.
///
/// # Errors
/// As [`sample`], and what `start` says.
pub fn sample_command(
    pid: u32,
    start: impl FnOnce() -> anyhow::Result<()>,
    has_ended: &AtomicBool,
) -> anyhow::Result<SampledCommand> {
    session::check(&[pid])?;
    let (mut known, mut program, mut looked): (HashMap<u32, ProcessMappings>, _, _) = (HashMap::new(), None, None);
    let (mut start, mut started) = (Some(start), Ok(()));
    let (samples, time) = take(&[pid], Some(MOST_PROCESSES), LONGEST, |sampling| {
        if let Some(start) = start.take() {
            started = start();
        }
        let is_due = looked.is_none_or(|looked: Instant| looked.elapsed() >= LOOK);
        looked = if is_due { Some(Instant::now()) } else { looked };
        for process in sampling.met() {
            if (is_due || !known.contains_key(&process))
                && let Ok(mappings) = ProcessMappings::of(process)
                && !mappings.modules.is_empty()
            {
                known.insert(process, mappings);
            }
        }
        if is_due && let Ok(executed) = fs::metadata(format!("/proc/{pid}/exe")) {
            program = Some((executed.dev(), executed.ino()));
        }
        started.is_err() || has_ended.load(Ordering::Relaxed)
    })?;
    started?;
    let sampled = Sampled { time, ..found(&samples, &known) };
    let own = known.remove(&pid);
    let mut files = HashSet::new();
    let mut modules: Vec<Module> = own.into_iter().chain(known.into_values()).flat_map(|space| space.modules).collect();
    modules.retain(|module| files.insert((module.device, module.inode)));
    Ok(SampledCommand { sampled, modules, program })
}

/// Takes samples for this time, or until it `is_over`; gives for how long. `with_children`: of children, too, and of so many
/// processes at most.
fn take(
    pids: &[u32],
    with_children: Option<u32>,
    duration: Duration,
    mut is_over: impl FnMut(&Sampling<'_>) -> bool,
) -> anyhow::Result<(Samples, Duration)> {
    let processes = with_children.unwrap_or_else(|| u32::try_from(pids.len()).unwrap_or(u32::MAX));
    let processes = (processes, with_children.is_some());
    clocks::with_clocks(PERIOD, processes, (duration, SampleDetail::Place), |mut sampling| {
        sampling.follow(pids)?;
        let begun = Instant::now();
        while !is_over(&sampling) && begun.elapsed() < duration {
            thread::sleep(PATIENCE.min(duration - begun.elapsed().min(duration)));
        }
        let time = begun.elapsed();
        Ok((sampling.end()?, time))
    })
}

/// In which files the places are, by what the processes mapped before and what they map now.
fn found(samples: &Samples, before: &HashMap<u32, ProcessMappings>) -> Sampled {
    let mut sampled = Sampled { lost: samples.lost, ..Sampled::default() };
    let mut after = HashMap::new();
    for &(place, count) in &samples.places {
        if place.in_kernel != 0 {
            sampled.in_kernel += count;
            continue;
        }
        let now = after.entry(place.process).or_insert_with(|| match ProcessMappings::of(place.process) {
            Err(Error::NoSuchProcess { .. }) => Ok(None),
            known => known.map(Some),
        });
        let place_in = |memory: Option<&ProcessMappings>| memory.and_then(|memory| memory.place(place.address));
        let place = match now.as_ref().map(|now| (place_in(before.get(&place.process)), place_in(now.as_ref()))) {
            Ok((Some(before), Some(now))) => (before == now).then_some(now),
            Ok((before, now)) => before.or(now),
            // It may execute another program, at which we may not look.
            Err(_) => None,
        };
        match place {
            Some(AddressKind::File(file, offset)) => sampled.found_in_file(file, offset, count),
            Some(AddressKind::NoFile) => sampled.in_no_file += count,
            None => sampled.unknown += count,
        }
    }
    sampled
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    /// Code of an ELF file, at this offset in bytes.
    File(FileId, u64),
    /// Memory without such a file.
    NoFile,
}

/// What a process maps.
struct ProcessMappings {
    modules: Vec<Module>,
    space: AddressSpace,
}

impl ProcessMappings {
    fn of(pid: u32) -> Result<ProcessMappings, Error> {
        Ok(ProcessMappings { modules: modules::of_process(pid)?, space: AddressSpace::of(pid)? })
    }

    fn place(&self, address: u64) -> Option<AddressKind> {
        let in_module = |module: &Module| {
            let offset = module.mappings.iter().find_map(|mapping| mapping.offset_of(address))?;
            Some(AddressKind::File((module.device, module.inode), offset))
        };
        let is_mapped = || self.space.areas().any(|area| area.mapping.contains(address));
        self.modules.iter().find_map(in_module).or_else(|| is_mapped().then_some(AddressKind::NoFile))
    }
}
