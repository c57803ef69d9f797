//! Breakpoints that a killed tracer left in programs.
//!
//! A tracer that is killed while it places or takes out probes may leave breakpoints that belong to
//! nobody: the program runs as it should and pays for each. Placing a probe there once more and
//! taking it out makes the kernel put the instruction back. Probes that somebody uses stay.

use std::collections::BTreeSet;
use std::fs::File;

use rtrace_bpf::wire::{PolicyCode, TailsCode, entry_cookie};
use rtrace_bpf::{Error as BpfError, Programs, Role, Site};
use rtrace_symbolizer::Error;
use rtrace_symbolizer::modules::{self, Module};

use crate::altered::{BREAKPOINT, Code, Difference};

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
    let (modules, code) = (modules::of_process(pid)?, Code::of(pid)?);
    let is_breakpoint = |difference: &Difference| difference.live == BREAKPOINT;
    let found = modules.into_iter().filter_map(|module| {
        let file = File::open(module.open_path()).ok()?;
        let executable = module.mappings.iter().filter(|mapping| mapping.executable);
        let differences = executable.flat_map(|mapping| code.differences(mapping, &file));
        let offsets: BTreeSet<u64> = differences.filter(is_breakpoint).map(|difference| difference.offset).collect();
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
