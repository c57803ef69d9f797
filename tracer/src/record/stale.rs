//! Breakpoints that a killed tracer left in programs.
//!
//! A tracer that is killed while it places or takes out probes may leave breakpoints that belong to
//! nobody: the program runs as it should and pays for each. Placing a probe there once more and
//! taking it out makes the kernel put the instruction back. Probes that somebody uses stay.
//!
//! A breakpoint does not say whose it is. Those of a debugger, and those that a program sets for itself, would
//! be lost. So only what lies where rtrace places probes, in a program that does not expect breakpoints, is
//! taken for a leftover without a question.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use rtrace_bpf::wire::{PolicyCode, TailsCode, entry_cookie};
use rtrace_bpf::{Error as BpfError, Programs, Role, Site};
use rtrace_code::arrival::{Arrival, Keeps};
use rtrace_code::instruction::Emulation;
use rtrace_model::{Library, LibraryId, RegionId};
use rtrace_plan as plan;
use rtrace_plan::{LibrarySource, jump};
use rtrace_symbolizer::modules::{self, Module};
use rtrace_symbolizer::{Error, Image, open_regular};

use crate::record::attach;
use crate::record::returns::caller::Callers;
use crate::target;
use crate::target::code::{BREAKPOINT, Difference, ProcessMemory};
use crate::target::privilege;

/// Bytes from a return address to its return site, at most.
const FARTHEST: u64 = 255;

/// Breakpoints in a file that a process maps, which are not in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakpoints {
    /// The file.
    pub module: Module,
    /// Where in the file, in bytes.
    pub offsets: BTreeSet<u64>,
}

/// Why breakpoints may be somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// This process debugs the one with the breakpoints.
    Debugged(u32),
    /// The program handles breakpoints.
    Handled,
    /// They lie where rtrace places no probes.
    Elsewhere,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Debugged(tracer) => write!(f, "process {tracer} debugs it, and its breakpoints look the same"),
            Doubt::Handled => f.write_str("the program handles SIGTRAP, and its own breakpoints look the same"),
            Doubt::Elsewhere => f.write_str("rtrace places no probes there"),
        }
    }
}

/// The breakpoints in the code of a process, those in use among them.
///
/// # Errors
/// The process cannot be inspected.
pub fn find(pid: u32) -> Result<Vec<Breakpoints>, Error> {
    find_in(pid, |_| true)
}

/// The breakpoints in the code of some files of a process, those in use among them.
///
/// # Errors
/// The process cannot be inspected.
pub fn find_in(pid: u32, is_wanted: impl Fn(&Module) -> bool) -> Result<Vec<Breakpoints>, Error> {
    let (modules, code) = (modules::of_process(pid)?, ProcessMemory::of(pid)?);
    let is_breakpoint = |difference: &Difference| difference.live == BREAKPOINT;
    let found = modules.into_iter().filter(is_wanted).filter_map(|module| {
        let file = open_regular(&module.open_path()).ok()?;
        let executable = module.mappings.iter().filter(|mapping| mapping.executable);
        let differences = executable.flat_map(|mapping| code.differences(mapping, &file));
        let offsets: BTreeSet<u64> = differences.filter(is_breakpoint).map(|difference| difference.offset).collect();
        (!offsets.is_empty()).then_some(Breakpoints { module, offsets })
    });
    Ok(found.collect())
}

/// Tells breakpoints that may be somebody's from stale ones.
pub struct Judge {
    /// What is done without a single step, as recordings here are told.
    emulated: Emulation,
    /// By device and inode.
    known: HashMap<(u64, u64), Option<ProbePlaces>>,
}

impl Judge {
    /// `emulated`: what the kernel and the programs do without a single step.
    pub fn new(emulated: Emulation) -> Judge {
        Judge { emulated, known: HashMap::new() }
    }

    /// The breakpoints that certainly are stale or in use by a tracer like rtrace, and the others with the reason.
    pub fn split(&mut self, found: Breakpoints) -> (Option<Breakpoints>, Option<(Breakpoints, Doubt)>) {
        let pid = found.module.pid;
        if let Some(tracer) = privilege::debugger_of(pid) {
            return (None, Some((found, Doubt::Debugged(tracer))));
        }
        if privilege::handles_breakpoints(pid) {
            return (None, Some((found, Doubt::Handled)));
        }
        let Breakpoints { module, offsets } = found;
        let emulated = self.emulated;
        let id = (module.device, module.inode);
        let places = self.known.entry(id).or_insert_with(|| ProbePlaces::of(&module, emulated));
        let known = places.as_ref().map(|places| places.among(&offsets)).unwrap_or_default();
        let (certain, doubtful): (BTreeSet<u64>, BTreeSet<u64>) =
            offsets.into_iter().partition(|offset| known.contains(offset));
        let of =
            |offsets: BTreeSet<u64>| (!offsets.is_empty()).then(|| Breakpoints { module: module.clone(), offsets });
        (of(certain), of(doubtful).map(|doubtful| (doubtful, Doubt::Elsewhere)))
    }
}

/// Where rtrace may place probes in a file.
struct ProbePlaces {
    file: (u64, u64),
    /// Offsets in the file, in bytes, at which enters and jumps are seen.
    entries: BTreeSet<u64>,
    /// Those who tell return sites, with and without variables that are watched.
    callers: Vec<Callers>,
}

impl ProbePlaces {
    /// `None` where the file cannot be planned for.
    fn of(module: &Module, emulated: Emulation) -> Option<ProbePlaces> {
        let file = (module.device, module.inode);
        let path = module.open_path();
        let image = Arc::new(Image::open(&path).ok()?.with_debug_symbols(&module.path));
        let exports = image.all_functions().ok()?;
        let jumps = jump::of(&image).into_keys().filter_map(|address| image.file_offset(address));
        let markers = exports.markers.iter().map(|marker| marker.place.file_offset);
        let mut entries: BTreeSet<u64> = jumps.chain(markers).collect();
        let (device, inode) = file;
        let path_shown = module.path.display().to_string();
        let library = Library { id: LibraryId(0), path: path_shown, apart: None, build_id: None, device, inode };
        let ifuncs = target::implementations(Some(module), &image, &exports);
        let sources = [LibrarySource::new(library, path.clone(), image, exports, ifuncs)];
        for keeps_accesses in [false, true] {
            let options = plan::PlanOptions { emulated, keeps_accesses, ..plan::PlanOptions::default() };
            let plan = plan::plan(&sources, &options, RegionId(0));
            let regions = plan.libraries.iter().flat_map(|library| &library.regions);
            entries.extend(regions.flat_map(|region| [region.entry.file_offset, region.region.file_offset]));
        }
        let either = [false, true];
        let ways = either.into_iter().flat_map(|accesses| {
            let memory = either.into_iter().flat_map(|memory| [0, 4, 8].map(|result| (memory, result)));
            memory.map(move |(memory, result)| Keeps { accesses, result, memory })
        });
        let callers = ways.map(|keeps| {
            let mut callers = Callers::new(emulated, keeps);
            callers.add(file, &path, None);
            callers
        });
        let callers = callers.collect();
        Some(ProbePlaces { file, entries, callers })
    }

    /// Those of these offsets that are such places.
    fn among(&self, offsets: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut among: BTreeSet<u64> = offsets.intersection(&self.entries).copied().collect();
        let others = offsets.difference(&self.entries);
        let addresses: BTreeSet<u64> = others.flat_map(|&offset| offset.saturating_sub(FARTHEST)..=offset).collect();
        let addresses: Vec<u64> = addresses.into_iter().collect();
        for callers in &self.callers {
            for (&address, arrival) in addresses.iter().zip(callers.arrivals(self.file, &addresses, |_| None)) {
                if let Arrival::Site(site) = arrival {
                    among.extend(offsets.get(&(address + u64::from(site.distance))));
                }
                // A site that was moved to the return address itself.
                if offsets.contains(&address) && callers.at_return_address(self.file, address).is_some() {
                    among.insert(address);
                }
            }
        }
        among
    }
}

/// Makes the kernel put the instructions back in a process: all at once, as it takes its time for each link.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single place.
pub fn remove(programs: &Programs, breakpoints: &[Breakpoints]) -> Result<(), BpfError> {
    let cookie = entry_cookie(0, PolicyCode::RT_POLICY_ENTRY_ONLY, TailsCode::RT_TAILS_NEVER);
    let mut placed = Vec::new();
    for Breakpoints { module, offsets } in breakpoints {
        let path = module.open_path();
        // The kernel takes a probe beside another only with the same counter.
        let markers = Image::open(&path).map(|image| image.markers()).unwrap_or_default();
        let semaphore_at =
            |offset: u64| markers.iter().find(|it| it.place.file_offset == offset).map_or(0, |it| it.semaphore);
        let site = |&offset: &u64| Site { semaphore: semaphore_at(offset), ..Site::new(offset, cookie) };
        let sites: Vec<Site> = offsets.iter().map(site).collect();
        let attach = |sites: &[Site]| programs.attach(Role::Enter, &path, &[module.pid], sites);
        // Where the kernel refuses a site, that breakpoint is none of its own.
        let links = attach::place(&sites, &attach, &mut |_, _| {})?;
        placed.extend(links.into_iter().map(|(_, probes)| probes));
    }
    attach::detach(placed);
    Ok(())
}
