//! The members of control groups: who joins one is recorded from the next look on.
//!
//! The kernel tells nobody that a process is moved to a group, so the lists of members are read again and again. Children
//! of recorded processes are not waited for here: the kernel side tells of them.

use std::collections::BTreeSet;

use rtrace_bpf::{Error, Programs};
use rtrace_model::Timestamp;

use crate::host;
use crate::record::family::Followed;
use crate::record::source::Source;
use crate::target::cgroups::Cgroup;
use crate::target::{descendants, privilege};

/// Time between two looks.
const PERIOD_NS: u64 = 100_000_000;

/// Who is in the groups, and is recorded or not.
pub struct Members<'a> {
    programs: &'a Programs,
    followed: &'a Followed<'a>,
    groups: &'a [Cgroup],
    looked: Timestamp,
    /// Those that are not recorded.
    left_out: BTreeSet<u32>,
    /// Those that have joined since it was asked, and since when they may have been members.
    joined: Vec<(u32, Timestamp)>,
}

impl<'a> Members<'a> {
    /// Those that are recorded already are known to the kernel side.
    pub fn new(programs: &'a Programs, followed: &'a Followed<'a>, groups: &'a [Cgroup]) -> Members<'a> {
        Members { programs, followed, groups, looked: host::now(), left_out: BTreeSet::new(), joined: Vec::new() }
    }

    /// Whether some may join.
    pub fn may_come(&self) -> bool {
        self.groups.iter().any(Cgroup::exists)
    }

    /// Those that have joined since the last call, with the time since when they may have been members.
    pub fn take_joined(&mut self) -> Vec<(u32, Timestamp)> {
        std::mem::take(&mut self.joined)
    }

    /// Takes in the processes that have joined since the last look, if it is time for one, and gives their IDs.
    ///
    /// # Errors
    /// The kernel refuses probes, though the process runs, or a map of the programs cannot be read or written.
    pub fn look(&mut self, source: &mut Source<'_>) -> Result<Vec<u32>, Error> {
        let now = host::now();
        if self.groups.is_empty() || now.since(self.looked) < PERIOD_NS {
            return Ok(Vec::new());
        }
        let since = std::mem::replace(&mut self.looked, now);
        let joined = trace_running(self.programs, self.new_members(source, now)?)?;
        for &pid in &joined {
            source.join(pid, now);
            self.followed.join(pid, since)?;
            self.joined.push((pid, since));
        }
        Ok(joined)
    }

    /// Those that are to be recorded. Whom the caller may not trace is told once.
    fn new_members(&mut self, source: &mut Source<'_>, now: Timestamp) -> Result<Vec<u32>, Error> {
        let members: BTreeSet<u32> = self.groups.iter().flat_map(Cgroup::members).collect();
        self.left_out.retain(|pid| members.contains(pid));
        let mut new = Vec::new();
        for &pid in members.difference(&self.left_out) {
            if self.programs.space(pid)?.is_none() {
                new.push(pid);
            }
        }
        let ours = if new.is_empty() { Vec::new() } else { descendants::of(&[std::process::id()]) };
        new.retain(|&pid| match privilege::check_process(pid) {
            Ok(()) if pid != std::process::id() && !ours.contains(&pid) => true,
            Err(privilege::Error::NoProcess(_) | privilege::Error::NoMemory { .. }) => false,
            checked => {
                self.left_out.insert(pid);
                if checked.is_err() {
                    source.withhold(pid, pid, now);
                }
                false
            }
        });
        Ok(new)
    }
}

/// Lets the kernel side know of processes that run. Of one that ended before, that would never hear of its end: it is not
/// among those that are given back.
///
/// # Errors
/// A map of the programs cannot be written.
pub fn trace_running(programs: &Programs, mut pids: Vec<u32>) -> Result<Vec<u32>, Error> {
    for &pid in &pids {
        programs.trace(pid)?;
    }
    for ended in pids.extract_if(.., |pid| privilege::has_ended(*pid)) {
        programs.forget(ended)?;
    }
    Ok(pids)
}
