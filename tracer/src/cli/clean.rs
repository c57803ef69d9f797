//! `rtrace clean`: takes out breakpoints that a killed tracer left in programs.

use std::collections::HashMap;
use std::fmt::Write as _;

use rtrace::leftovers::{self, Breakpoints};
use rtrace::{host, privilege};
use rtrace_bpf::{LoadOptions, Programs};
use rtrace_model::escape;

use super::args::Clean;
use super::{Outcome, print, record};

/// Looks for breakpoints, takes out those that nobody uses, and says what came of it.
pub fn clean(options: &Clean) -> anyhow::Result<Outcome> {
    privilege::check_capabilities()?;
    let before = match options.pids.as_slice() {
        [] => host::processes().into_iter().filter_map(|pid| look(pid).ok()).flatten().collect(),
        pids => pids.iter().map(|&pid| look(pid)).collect::<anyhow::Result<Vec<_>>>()?.concat(),
    };
    let files = by_file(before);
    if files.is_empty() {
        print(b"no breakpoints found\n")?;
        return Ok(Outcome::Complete);
    }
    let programs = Programs::load(&LoadOptions::plain(record::mechanism()?))?;
    let mut text = String::new();
    for found in &files {
        leftovers::remove(&programs, found)?;
        let after = leftovers::find(found.module.pid).unwrap_or_default();
        let kept = after.iter().filter(|later| is_same_file(later, found)).map(|later| later.offsets.len()).sum();
        let removed = found.offsets.len().saturating_sub(kept);
        let path = found.module.path.display().to_string();
        writeln!(text, "{}: {removed} removed, {kept} in use", escape(&path)).expect("a string takes all");
    }
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}

/// The breakpoints of a process; those of a debugger look the same, so what one holds is left alone.
fn look(pid: u32) -> anyhow::Result<Vec<Breakpoints>> {
    if let Some(tracer) = privilege::debugger_of(pid) {
        anyhow::bail!("failed to clean process {pid}: process {tracer} debugs it, and its breakpoints look the same");
    }
    privilege::check_process(pid)?;
    Ok(leftovers::find(pid)?)
}

/// Each file once, with what any process has in it.
fn by_file(found: Vec<Breakpoints>) -> Vec<Breakpoints> {
    let mut files = HashMap::<(u64, u64), Breakpoints>::new();
    for breakpoints in found {
        let id = (breakpoints.module.device, breakpoints.module.inode);
        match files.get_mut(&id) {
            Some(known) => known.offsets.extend(breakpoints.offsets),
            None => drop(files.insert(id, breakpoints)),
        }
    }
    let mut files: Vec<_> = files.into_values().collect();
    files.sort_by(|a, b| a.module.path.cmp(&b.module.path));
    files
}

fn is_same_file(a: &Breakpoints, b: &Breakpoints) -> bool {
    (a.module.device, a.module.inode) == (b.module.device, b.module.inode)
}
