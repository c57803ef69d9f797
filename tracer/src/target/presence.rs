//! Whether probes are in the memory of the processes that they were placed in.
//!
//! The kernel places a probe in a file, and writes a breakpoint where a process maps that file. It does not say where
//! it wrote none: the process may map another file than the one that its path leads to now, or the program may have
//! written over the breakpoint, or a jump in front of it. Calls there are not recorded.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rtrace_model::escape;
use rtrace_symbolizer::address_space::{AddressSpace, Area, Mapping};
use rtrace_symbolizer::modules::{self, Module};

use crate::target::code::{ProcessMemory, Spot};
use crate::target::privilege;

/// The kernel takes probes out one by one, 7 us each; where all CPUs are taken, it takes its time. Threads stand still for
/// that: they would go on with code that is not there any more.
const REMOVAL: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_micros(20);

/// Probes of a process that should have some in a file, but has none.
#[derive(Debug, thiserror::Error)]
#[error("no probe is in process {pid}: it maps {} `{}`{}", .cause.how(), escape(&.path.display().to_string()), .cause.why())]
pub struct Absent {
    path: PathBuf,
    pid: u32,
    cause: AbsenceCause,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbsenceCause {
    Writable,
    Shared,
    OtherFile,
}

impl AbsenceCause {
    fn of(pid: u32, mappings: &[Mapping]) -> AbsenceCause {
        let Ok(space) = AddressSpace::of(pid) else { return AbsenceCause::OtherFile };
        let is_meant = |area: &Area<'_>| area.mapping.executable && mappings.contains(&area.mapping);
        let of_area = |area: Area<'_>| match (area.is_writable, area.is_shared) {
            (true, _) => Some(AbsenceCause::Writable),
            (_, true) => Some(AbsenceCause::Shared),
            _ => None,
        };
        space.areas().filter(is_meant).find_map(of_area).unwrap_or(AbsenceCause::OtherFile)
    }

    fn how(self) -> &'static str {
        match self {
            AbsenceCause::Writable | AbsenceCause::Shared => "the code of",
            AbsenceCause::OtherFile => "another file than is there now by the path",
        }
    }

    fn why(self) -> &'static str {
        match self {
            AbsenceCause::Writable => " writable, where the kernel takes no probes",
            AbsenceCause::Shared => " shared (MAP_SHARED), where the kernel takes no probes",
            AbsenceCause::OtherFile => "",
        }
    }
}

impl Absent {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self.cause {
            AbsenceCause::Writable => "link the file without `-N`, so that its code is not writable",
            AbsenceCause::Shared => "only code that is mapped private, as the dynamic linker does, can be traced",
            AbsenceCause::OtherFile => {
                "on an overlay file system, chmod, chown and touch make such a copy: restart the process"
            }
        }
    }
}

/// The code of a process with the files that it maps.
pub struct ProcessCode {
    pid: u32,
    modules: Arc<[Module]>,
    code: ProcessMemory,
}

/// What has become of the probes of a file in a process.
pub struct Presence {
    /// The file as the process sees it.
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// Where the process maps it.
    pub mappings: Vec<Mapping>,
    /// Probes that are in place.
    pub present: usize,
    /// File offsets of those that are not, in bytes, or that nothing comes to, though the process maps that code.
    pub absent: Vec<u64>,
}

/// What has become of code to which a process could write: file offsets of sites, in bytes, sorted.
#[derive(Default)]
pub struct CodeComparison {
    /// The process has what the file holds up to there.
    pub unchanged: Vec<u64>,
    /// It does not.
    pub changed: Vec<u64>,
}

impl ProcessCode {
    /// `None` where it cannot be looked at: it ends.
    pub fn of(pid: u32) -> Option<ProcessCode> {
        // In this order: of a process that executes another program meanwhile, the memory is out of reach then.
        let code = ProcessMemory::of(pid).ok()?;
        Some(ProcessCode { pid, modules: modules::of_process(pid).ok()?.into(), code })
    }

    /// The same where it is known what the process maps, which takes long to find out.
    pub fn with(pid: u32, modules: Arc<[Module]>) -> Option<ProcessCode> {
        Some(ProcessCode { pid, modules, code: ProcessMemory::of(pid).ok()? })
    }

    fn module(&self, file: &File) -> Option<&Module> {
        let metadata = file.metadata().ok()?;
        let is_it = |module: &&Module| (module.device, module.inode) == (metadata.dev(), metadata.ino());
        self.modules.iter().find(is_it)
    }

    /// The sites of those of these probes of a file that must not be placed in the process, as it has changed the code
    /// there.
    pub fn rewritten(&self, file: &File, mut spots: Vec<Spot>) -> Vec<u64> {
        let Some(module) = self.module(file) else { return Vec::new() };
        spots.sort_unstable_by_key(|spot| spot.site);
        let executable = module.mappings.iter().filter(|mapping| mapping.executable);
        executable.flat_map(|mapping| self.code.rewritten(mapping, file, &spots, false)).collect()
    }

    /// Compares the code of these spots of a file, which have no probes of ours, with the file where they are at these addresses,
    /// and the process executes them and cannot write to them.
    pub fn compare(&self, file: &File, mut spots: Vec<Spot>, addresses: &Range<u64>) -> CodeComparison {
        let (Some(module), Ok(space)) = (self.module(file), AddressSpace::of(self.pid)) else {
            return CodeComparison::default();
        };
        spots.sort_unstable_by_key(|spot| spot.site);
        // The kernel would take breakpoints of the program's own out with a probe.
        let is_strict = privilege::handles_breakpoints(self.pid) || privilege::debugger_of(self.pid).is_some();
        let (mut settled, mut changed) = (BTreeSet::new(), BTreeSet::new());
        let is_code = |area: &Area<'_>| {
            let Area { mapping, is_writable, is_shared, .. } = area;
            mapping.executable && !is_writable && !is_shared && module.mappings.contains(mapping)
        };
        for Area { mapping, .. } in space.areas().filter(is_code) {
            let is_settled =
                |spot: &&Spot| mapping.address_of(spot.site).is_some_and(|address| addresses.contains(&address));
            let spots: Vec<Spot> = spots.iter().filter(is_settled).copied().collect();
            settled.extend(spots.iter().map(|spot| spot.site));
            changed.extend(self.code.rewritten(&mapping, file, &spots, is_strict));
        }
        CodeComparison {
            unchanged: settled.difference(&changed).copied().collect(),
            changed: changed.into_iter().collect(),
        }
    }

    /// Waits until none of these probes of a file is in the process, or for so long; they are being taken out.
    pub fn wait_for_removal(&self, file: &File, mut spots: Vec<Spot>) {
        let Some(module) = self.module(file) else { return };
        spots.sort_unstable_by_key(|spot| spot.site);
        let begin = Instant::now();
        // The process may be about to make code of it again.
        while module.mappings.iter().any(|mapping| self.code.has_probes(mapping, file, &spots))
            && begin.elapsed() < REMOVAL
        {
            thread::sleep(STEP);
        }
    }

    /// What has become of these probes of a file; `None` where the process does not map it.
    pub fn presence(&self, file: &File, mut spots: Vec<Spot>) -> Option<Presence> {
        let module = self.module(file)?;
        spots.sort_unstable_by_key(|spot| spot.site);
        let (mut present, mut absent) = (0, Vec::new());
        for mapping in module.mappings.iter().filter(|mapping| mapping.executable) {
            let (there, gone) = self.code.reached(mapping, file, &spots);
            present += there;
            absent.extend(gone);
        }
        absent.sort_unstable();
        absent.dedup();
        let (path, mappings) = (module.path.clone(), module.mappings.clone());
        Some(Presence { path, pid: self.pid, mappings, present, absent })
    }
}

impl Presence {
    /// Refuses a file that has no probe at all in the process.
    ///
    /// # Errors
    /// It has none.
    pub fn check(self) -> Result<(), Absent> {
        match (self.present, self.absent.as_slice()) {
            (0, [_, ..]) => {
                let cause = AbsenceCause::of(self.pid, &self.mappings);
                Err(Absent { path: self.path, pid: self.pid, cause })
            }
            _ => Ok(()),
        }
    }
}
