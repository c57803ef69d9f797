//! The children of processes, their children and so on, as `/proc` lists them.
//!
//! A process whose parent has ended is no child of anybody that is named: it belongs to init, or to whoever has
//! asked for it.

use std::collections::{HashMap, HashSet};

use crate::host;
use crate::target::proc_files::Stat;

/// All that descend from these processes and are none of them, parents first; without rtrace and what it has started.
pub fn of(processes: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, parent) in all() {
        children.entry(parent).or_default().push(pid);
    }
    let mut known: HashSet<u32> = processes.iter().copied().chain([std::process::id()]).collect();
    let mut found = Vec::new();
    let mut next: Vec<u32> = processes.to_vec();
    while !next.is_empty() {
        next = next.iter().filter_map(|pid| children.remove(pid)).flatten().filter(|&pid| known.insert(pid)).collect();
        found.extend(&next);
    }
    found
}

/// The parent of a process; `None` for one that has ended.
pub fn parent_of(pid: u32) -> Option<u32> {
    Stat::of(pid)?.parent()
}

/// All processes that have not ended, with their parents.
fn all() -> impl Iterator<Item = (u32, u32)> {
    host::processes().into_iter().filter_map(|pid| Some((pid, parent_of(pid)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn grandchildren_are_found_and_rtrace_is_not() {
        let script = "sleep 1000 & echo $!; (sleep 1000 & echo $!; wait) & echo $!; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines().take(3);
        let mut told: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
        let mut found = of(&[shell.id()]);
        let of_ours = of(&[std::os::unix::process::parent_id()]);
        for pid in &told {
            // SAFETY: sends a signal to a process of this test.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        shell.wait().unwrap();
        told.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, told);
        assert!(!of_ours.contains(&std::process::id()) && !of_ours.contains(&shell.id()), "{of_ours:?}");
    }
}
