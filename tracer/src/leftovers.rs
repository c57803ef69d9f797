//! Breakpoints that a killed tracer left in programs.
//!
//! A tracer that is killed while it places or takes out probes may leave breakpoints that belong to
//! nobody: the program runs as it should and pays for each. Placing a probe there once more and
//! taking it out makes the kernel put the instruction back. Probes that somebody uses stay.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rtrace_bpf::wire::{PolicyCode, TailsCode, entry_cookie};
use rtrace_bpf::{Error as BpfError, Programs, Role, Site};
use rtrace_symbolizer::Error;
use rtrace_symbolizer::modules::{self, Mapping, Module};

const PAGE: usize = 4096;
const BREAKPOINT: u8 = 0xcc;

/// Breakpoints in a file that a process maps, which are not in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakpoints {
    /// The file.
    pub module: Module,
    /// Where in the file, in bytes.
    pub offsets: BTreeSet<u64>,
}

/// The breakpoints in the code of a process, those in use among them.
///
/// # Errors
/// The process cannot be inspected.
pub fn find(pid: u32) -> Result<Vec<Breakpoints>, Error> {
    let open = |name: &str| {
        let path = PathBuf::from(format!("/proc/{pid}/{name}"));
        File::open(&path).map_err(|source| Error::Read { path, source })
    };
    let modules = modules::of_process(pid)?;
    let code = Code { memory: open("mem")?, pages: open("pagemap")? };
    let found = modules.into_iter().filter_map(|module| {
        let file = File::open(module.open_path()).ok()?;
        let executable = module.mappings.iter().filter(|mapping| mapping.executable);
        let offsets: BTreeSet<u64> = executable.flat_map(|mapping| code.breakpoints(mapping, &file)).collect();
        (!offsets.is_empty()).then_some(Breakpoints { module, offsets })
    });
    Ok(found.collect())
}

/// Makes the kernel put the instructions back in the process.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single place.
pub fn remove(programs: &Programs, breakpoints: &Breakpoints) -> Result<(), BpfError> {
    let path = breakpoints.module.open_path();
    let cookie = entry_cookie(0, PolicyCode::RT_POLICY_ENTRY_ONLY, TailsCode::RT_TAILS_NEVER);
    let sites: Vec<Site> = breakpoints.offsets.iter().map(|&file_offset| Site { file_offset, cookie }).collect();
    let place = |sites: &[Site]| match programs.attach(Role::Enter, &path, &[breakpoints.module.pid], sites) {
        Err(error) if !error.is_about_a_site() => Err(error),
        placed => Ok(placed.is_ok()),
    };
    if !place(&sites)? {
        for site in &sites {
            place(std::slice::from_ref(site))?;
        }
    }
    Ok(())
}

/// The memory of a process.
struct Code {
    memory: File,
    pages: File,
}

impl Code {
    /// Offsets in `file` at which `mapping` has a breakpoint and the file has not. What cannot be
    /// read, because the process changes meanwhile, has none.
    fn breakpoints(&self, mapping: &Mapping, file: &File) -> Vec<u64> {
        let mut offsets = Vec::new();
        for start in (mapping.start..mapping.end).step_by(PAGE) {
            let (mut live, mut stored) = ([0; PAGE], [0; PAGE]);
            let offset = mapping.offset + (start - mapping.start);
            if !self.is_own(start) || self.memory.read_exact_at(&mut live, start).is_err() {
                continue;
            }
            let Ok(length) = file.read_at(&mut stored, offset) else { continue };
            let differs = |&at: &usize| live[at] == BREAKPOINT && stored[at] != BREAKPOINT;
            offsets.extend((0..length).filter(differs).map(|at| offset + at as u64));
        }
        offsets
    }

    /// Whether the process has a copy of the page for itself, as it has where a breakpoint was set:
    /// it is there or swapped out, and not the file's (bits 63, 62, 61 of its entry, as the kernel's
    /// Documentation/admin-guide/mm/pagemap.rst has them).
    fn is_own(&self, address: u64) -> bool {
        let mut entry = [0; 8];
        let place = address / PAGE as u64 * 8;
        if self.pages.read_exact_at(&mut entry, place).is_err() {
            return true;
        }
        let entry = u64::from_ne_bytes(entry);
        entry >> 62 != 0 && entry >> 61 & 1 == 0
    }
}
