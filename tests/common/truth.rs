//! What a target says of itself, in the form that `targets/harness.h` describes.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Output};

use super::tree::Forest;

/// A thread, as a target and a trace both know it: process id and thread id.
pub type Thread = (u32, u32);

/// The calls of each thread that made any.
pub type Trees = BTreeMap<Thread, Forest>;

/// The `truth` lines of an output.
pub fn trees(stdout: &[u8]) -> Trees {
    let mut trees = Trees::new();
    for line in String::from_utf8_lossy(stdout).lines() {
        if let Some((thread, calls)) = truth(line) {
            trees.entry(thread).or_default().append(Forest::parse(calls));
        }
    }
    trees
}

fn truth(line: &str) -> Option<(Thread, &str)> {
    let mut words = line.strip_prefix("truth ")?.splitn(3, ' ');
    let mut id = || words.next()?.parse().ok();
    let thread = (id()?, id()?);
    Some((thread, words.next().unwrap_or_default()))
}

/// What must be the same with and without tracing: how the program ended, as a shell says it, and
/// what it printed, without process ids and in an order that threads do not change.
pub fn behaviour(output: &Output) -> (i32, Vec<String>) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = stdout
        .lines()
        .map(|line| truth(line).map_or_else(|| line.to_owned(), |(_, calls)| format!("truth {calls}")))
        .collect();
    lines.sort_unstable();
    (exit_code(output.status), lines)
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("a process exits or is killed"))
}
