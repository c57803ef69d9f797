//! What probes take of a program's memory.
//!
//! A page of code with a breakpoint is a copy for the process alone, which its memory cgroup is charged with. In a small
//! cgroup the kernel may end the program for that. So it is known beforehand how much there will be.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rtrace_model::grouped;
use rtrace_plan::Plan;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// This part of what is left may be taken for probes: the program goes on to need memory, too.
const SHARE: u64 = 2;

/// Probes would take more memory than is left.
#[derive(Debug, thiserror::Error)]
#[error(
    "probes would take {} KB of memory, which are copies of the pages of code that they are in, and {} has {} KB left",
    grouped(.needed / 1024),
    match .limit { Some(limit) => format!("the memory cgroup of process {} (`{}`)", .pid, .limit.display()), None => "the machine".to_owned() },
    grouped(.left / 1024)
)]
pub struct Error {
    pid: u32,
    needed: u64,
    left: u64,
    limit: Option<PathBuf>,
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        let fewer = "choose fewer functions with `--func`";
        match &self.limit {
            Some(limit) => format!("{fewer}, or raise the limit: `echo BYTES >{}`", limit.display()),
            None => fewer.to_owned(),
        }
    }
}

/// Bytes of code with entries of this plan, in each process that maps all its libraries.
pub fn of_entries(plan: &Plan) -> u64 {
    let page = |library: usize, offset: u64| (library, offset / PAGE);
    let libraries = plan.libraries.iter().enumerate();
    let pages: HashSet<_> = libraries
        .flat_map(|(index, library)| library.regions.iter().map(move |planned| page(index, planned.entry.file_offset)))
        .collect();
    pages.len() as u64 * PAGE
}

/// How many return sites may be placed ahead in each of these processes beside entries that take so much memory in each:
/// none shares its page with another at the worst.
///
/// # Errors
/// There is no room for the entries.
pub fn room_for_return_sites(pids: &[u32], entries: u64) -> Result<usize, Error> {
    let mut room = u64::MAX;
    for &pid in pids {
        let (left, limit) = left(pid);
        let needed = entries * pids.len() as u64;
        if needed > left / SHARE {
            return Err(Error { pid, needed, left, limit });
        }
        room = room.min((left / SHARE - needed) / pids.len() as u64);
    }
    Ok(usize::try_from(room / PAGE).unwrap_or(usize::MAX))
}

/// Bytes that a process may still have, and the file with the limit if its cgroup has less than the machine.
fn left(pid: u32) -> (u64, Option<PathBuf>) {
    let of_machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemAvailable:")).unwrap_or(u64::MAX);
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits(line, Path::new("/sys/fs/cgroup")));
    let smallest = limits.min_by_key(|(left, _)| *left).filter(|(left, _)| *left < of_machine);
    smallest.map_or((of_machine, None), |(left, limit)| (left, Some(limit)))
}

/// What is left in the cgroup of a line of `/proc/PID/cgroup` and in those above it, with the files of their limits.
fn limits(line: &str, root: &Path) -> Vec<(u64, PathBuf)> {
    let mut columns = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (columns.next(), columns.next()) else { return Vec::new() };
    let (roots, [limit, usage, cache]) = match controllers {
        "" => ([root.to_owned(), root.join("unified")], ["memory.max", "memory.current", "inactive_file"]),
        of if of.split(',').any(|controller| controller == "memory") => (
            [root.join("memory"), root.join(of)],
            ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
        ),
        _ => return Vec::new(),
    };
    let of_folder = |folder: PathBuf| {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let (most, used) = (number(limit)?, number(usage)?);
        // The kernel gives up pages of files that nobody has used for long before it ends a program.
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let spare = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()).unwrap_or(0);
        Some(((most.saturating_sub(used)).saturating_add(spare), folder.join(limit)))
    };
    let relative = Path::new(path.trim_start_matches('/'));
    let folders = roots.into_iter().flat_map(|root| relative.ancestors().map(move |folder| root.join(folder)));
    folders.filter_map(of_folder).collect()
}

/// The number behind a name, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_smallest_limit_of_all_groups_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write("a/memory.stat", "anon 5\ninactive_file 50\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "800\n");
        let left = |line: &str| limits(line, folder.path()).into_iter().min();
        assert_eq!(left("0::/a/b"), Some((150, folder.path().join("a/memory.max"))));
        write("memory/x/memory.limit_in_bytes", "4096");
        write("memory/x/memory.usage_in_bytes", "4000");
        assert_eq!(left("4:memory:/x"), Some((96, folder.path().join("memory/x/memory.limit_in_bytes"))));
        assert_eq!((left("3:cpuset:/x"), left("nonsense")), (None, None));
    }

    #[test]
    fn the_machine_has_memory_left() {
        assert!(left(std::process::id()).0 > 0);
        assert!(room_for_return_sites(&[std::process::id()], u64::MAX / 2).is_err());
    }
}
