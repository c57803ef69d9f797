//! The processes that the user means, found, and said where they are several.

use rtrace::rank;
use rtrace::target::cgroups::{self, Cgroup};
use rtrace::target::names::{self, NamedProcess};
use rtrace::target::{descendants, privilege};
use rtrace_model::counted;

use super::args::Processes;
use super::message::tell;

/// The control groups that are chosen.
///
/// # Errors
/// There is no such group.
pub fn groups(chosen: &Processes) -> Result<Vec<Cgroup>, cgroups::Error> {
    chosen.groups().map(|name| Cgroup::find(&name)).collect()
}

/// The ids of all processes chosen, each once: those given by id first.
///
/// Of the processes that a name or a control group finds, those that we may not look at are left out, unless that are all.
///
/// # Errors
/// A name or a group finds none that can be traced.
pub fn find(chosen: &Processes) -> anyhow::Result<Vec<u32>> {
    let mut pids = chosen.pids();
    for name in chosen.names() {
        let found = of_name(name)?;
        say_several(name, &found);
        let new: Vec<u32> = found.iter().map(|process| process.pid).filter(|pid| !pids.contains(pid)).collect();
        pids.extend(new);
    }
    for (name, group) in chosen.groups().zip(groups(chosen)?) {
        let members: Vec<u32> = group.members().into_iter().collect();
        anyhow::ensure!(!members.is_empty(), "failed to find a process in {name}");
        let new: Vec<u32> = allowed(members, |pid| *pid)?.into_iter().filter(|pid| !pids.contains(pid)).collect();
        pids.extend(new);
    }
    if chosen.is_job() { ranks(&pids) } else { Ok(pids) }
}

/// The ranks of the job that these processes have started.
fn ranks(launchers: &[u32]) -> anyhow::Result<Vec<u32>> {
    let below = descendants::of(launchers).into_iter();
    let ranks: Vec<u32> = below.filter(|&pid| rank::of_process(pid).is_some()).collect();
    let launchers = names::list(launchers);
    anyhow::ensure!(!ranks.is_empty(), "failed to find a rank of a parallel job below process {launchers}");
    tell!("{} below process {launchers}: {}", counted(ranks.len() as u64, "rank"), names::list(&ranks));
    Ok(ranks)
}

fn of_name(name: &str) -> anyhow::Result<Vec<NamedProcess>> {
    allowed(names::find(name)?, |process| process.pid)
}

/// Those that we may look at.
fn allowed<T>(mut found: Vec<T>, pid: impl Fn(&T) -> u32) -> anyhow::Result<Vec<T>> {
    let mut refused = Vec::new();
    let count = found.len();
    found.retain(|process| match privilege::check_process(pid(process)) {
        Ok(()) => true,
        Err(error) => {
            refused.push((pid(process), error));
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
