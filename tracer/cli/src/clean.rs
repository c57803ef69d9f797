//! `rtrace clean`: takes out breakpoints that a killed tracer left in programs.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr, stdin};
use std::slice;

use anyhow::Context as _;
use rtrace::host;
use rtrace::record::stale::{self, Breakpoints, Doubt, Judge};
use rtrace::session;
use rtrace::target::privilege;
use rtrace_bpf::{LoadOptions, Programs};
use rtrace_code::instruction::Emulation;
use rtrace_model::escape;

use super::args::Clean;
use super::message::{Hint as _, tell};
use super::{Outcome, print};

/// Looks for breakpoints, takes out those that nobody uses, and says what came of it. Those that may be the program's
/// own, and those of all processes at once, only after a question.
pub fn clean(options: &Clean) -> anyhow::Result<Outcome> {
    privilege::check_capabilities()?;
    let found = match options.pids().as_slice() {
        [] => host::processes().into_iter().filter_map(|pid| look(pid).ok()).flatten().collect(),
        pids => pids.iter().map(|&pid| look(pid)).collect::<anyhow::Result<Vec<_>>>()?.concat(),
    };
    if found.is_empty() {
        print(b"no breakpoints found\n")?;
        return Ok(Outcome::Complete);
    }
    let mechanism = session::mechanism()?;
    let mut judge = Judge::new(Emulation {
        long_nops: rtrace_bpf::nops().is_ok_and(|nops| nops.long_ones_are_emulated),
        steps: rtrace_bpf::may_step().is_ok(),
    });
    let (mut certain, mut doubtful) = (Vec::new(), Vec::new());
    for (sure, unsure) in found.into_iter().map(|found| judge.split(found)) {
        certain.extend(sure);
        doubtful.extend(unsure);
    }
    for (breakpoints, doubt) in &doubtful {
        tell!("{}: {doubt}", describe(breakpoints));
    }
    let is_named = !options.pids().is_empty();
    let allows = options.yes || ((!doubtful.is_empty() || !is_named) && asks(&certain, &doubtful, is_named)?);
    let programs = Programs::load(&LoadOptions::plain(mechanism))?;
    if allows || is_named {
        remove(&programs, &certain)?;
    }
    let doubtful: Vec<Breakpoints> = doubtful.into_iter().map(|(breakpoints, _)| breakpoints).collect();
    if allows {
        remove(&programs, &doubtful)?;
    }
    if !allows && !stdin().is_terminal() && (!doubtful.is_empty() || !is_named) {
        return Err(anyhow::anyhow!(
            "failed to remove breakpoints that others may use: there is no terminal to ask on"
        ))
        .hint("to remove them without being asked, add --yes; to clean a single process, name it with --pid");
    }
    Ok(Outcome::Complete)
}

/// Asks whether to take these out; nobody can be asked where there is no terminal.
fn asks(certain: &[Breakpoints], doubtful: &[(Breakpoints, Doubt)], is_named: bool) -> anyhow::Result<bool> {
    if !(stdin().is_terminal() && stderr().is_terminal()) {
        return Ok(false);
    }
    if !is_named {
        certain.iter().for_each(|breakpoints| tell!("{}", describe(breakpoints)));
    }
    let doubtful = doubtful.iter().map(|(breakpoints, _)| breakpoints);
    let asked = doubtful.chain(certain.iter().filter(|_| !is_named));
    let count: usize = asked.map(|breakpoints| breakpoints.offsets.len()).sum();
    tell!("remove those of the {count} breakpoints that no tracer uses? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer).context("failed to read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Takes out what nobody uses, and says what came of it.
fn remove(programs: &Programs, all: &[Breakpoints]) -> anyhow::Result<()> {
    let mut text = String::new();
    for found in all {
        stale::remove(programs, slice::from_ref(found))?;
        let after = stale::find(found.module.pid).unwrap_or_default();
        let is_same_file = |later: &&Breakpoints| {
            (later.module.device, later.module.inode) == (found.module.device, found.module.inode)
        };
        let kept = after.iter().filter(is_same_file).map(|later| later.offsets.intersection(&found.offsets).count());
        let kept: usize = kept.sum();
        let removed = found.offsets.len() - kept;
        writeln!(text, "{}: {removed} removed, {kept} in use", place(found)).expect("a string takes all");
    }
    print(text.as_bytes())?;
    Ok(())
}

/// Where breakpoints are, escaped.
fn place(breakpoints: &Breakpoints) -> String {
    let module = &breakpoints.module;
    format!("process {}: {}", module.pid, escape(&module.path.display().to_string()))
}

fn describe(breakpoints: &Breakpoints) -> String {
    let count = breakpoints.offsets.len();
    format!("{}: {count} breakpoint{}", place(breakpoints), if count == 1 { "" } else { "s" })
}

/// The breakpoints of a process.
fn look(pid: u32) -> anyhow::Result<Vec<Breakpoints>> {
    privilege::check_process(pid)?;
    Ok(stale::find(pid)?)
}
