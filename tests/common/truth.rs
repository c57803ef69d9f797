//! What a target says of itself, in the form that `targets/harness.h` describes.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Output};

use rtrace_model::Timestamp;

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

/// The output before and behind the line `settled TIME`, with that time: until then, calls come from
/// places that a recorder has not met yet. `None` without such a line.
pub fn settled(stdout: &[u8]) -> Option<(&[u8], &[u8], Timestamp)> {
    let start = stdout.windows(SETTLED.len()).position(|window| window == SETTLED.as_bytes())?;
    let (before, behind) = stdout.split_at(start);
    let end = behind.iter().position(|&byte| byte == b'\n')?;
    let time = std::str::from_utf8(&behind[SETTLED.len()..end]).ok()?.parse().ok()?;
    Some((before, &behind[end + 1..], Timestamp(time)))
}

const SETTLED: &str = "settled ";

/// What must be the same with and without tracing: how the program ended, as a shell says it, and
/// what it printed, without process ids and times, and in an order that threads do not change.
pub fn behaviour(output: &Output) -> (i32, Vec<String>) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = stdout
        .lines()
        .filter(|line| !line.starts_with(SETTLED) && !line.starts_with("span "))
        .map(|line| truth(line).map_or_else(|| line.to_owned(), |(_, calls)| format!("truth {calls}")))
        .collect();
    lines.sort_unstable();
    (exit_code(output.status), lines)
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("a process exits or is killed"))
}
