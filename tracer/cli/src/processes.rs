//! The processes that the user means, found, and said where they are several.

use rtrace::target::names::{self, NamedProcess};
use rtrace::target::privilege;

use super::args::Processes;
use super::message::tell;

/// The ids of all processes chosen, each once: those given by id first.
///
/// Of the processes that a name finds, those that we may not look at are left out, unless that are all.
///
/// # Errors
/// A name finds none that can be traced.
pub fn find(chosen: &Processes) -> anyhow::Result<Vec<u32>> {
    let mut pids = chosen.pids();
    for name in chosen.names() {
        let found = of_name(name)?;
        say_several(name, &found);
        let new: Vec<u32> = found.iter().map(|process| process.pid).filter(|pid| !pids.contains(pid)).collect();
        pids.extend(new);
    }
    Ok(pids)
}

fn of_name(name: &str) -> anyhow::Result<Vec<NamedProcess>> {
    let mut refused = Vec::new();
    let mut found = names::find(name)?;
    let count = found.len();
    found.retain(|process| match privilege::check_process(process.pid) {
        Ok(()) => true,
        Err(error) => {
            refused.push((process.pid, error));
            false
        }
    });
    match refused.pop() {
        Some((_, error)) if refused.len() + 1 == count => Err(error.into()),
        last => {
            for (pid, error) in refused.into_iter().chain(last) {
                tell!("left out process {pid}: {error}");
            }
            Ok(found)
        }
    }
}

fn say_several(name: &str, found: &[NamedProcess]) {
    if let [_, _, ..] = found {
        let pids: Vec<u32> = found.iter().map(|process| process.pid).collect();
        tell!("{} processes are named {name}: {}", found.len(), names::list(&pids));
    }
}
