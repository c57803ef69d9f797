//! Containers of one image: what they have in common is one file, which lies below the overlay that each has for its root.
//!
//! In each overlay the file goes by other numbers, but the kernel places all probes in the one below. If a process had those
//! of another overlay, too, each of its calls would be hit twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rtrace_symbolizer::modules;
use rustix::fs::statfs;

/// `OVERLAYFS_SUPER_MAGIC` of include/uapi/linux/magic.h.
const OVERLAY: i64 = 0x794c_7630;

/// The overlays that are the roots of processes.
static ROOTS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Those of the processes that are to have probes in this file: all but those in another overlay.
pub fn reaching(file: &Path, pids: &[u32]) -> Vec<u32> {
    let device = fs::metadata(file).map(|file| file.dev());
    let (true, Ok(device)) = (is_overlay(file), device) else { return pids.to_vec() };
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let others = |pid| {
        let root = format!("/proc/{pid}/root");
        let is_apart = is_overlay(Path::new(&root));
        fs::metadata(root).map(|root| root.dev()).ok().filter(|_| is_apart)
    };
    let rooted: Vec<(u32, Option<u64>)> = pids.iter().map(|&pid| (pid, others(pid))).collect();
    roots.extend(rooted.iter().filter_map(|(_, root)| *root));
    // A file may go by a number that is no overlay's.
    let is_root = roots.contains(&device);
    let reaches = |(pid, root): &(u32, Option<u64>)| {
        !is_root || root.is_none_or(|root| root == device) || mounts(*pid, device) || maps(*pid, device)
    };
    rooted.into_iter().filter(reaches).map(|(pid, _)| pid).collect()
}

fn is_overlay(path: &Path) -> bool {
    statfs(path).is_ok_and(|of| of.f_type == OVERLAY)
}

/// Whether the process can see files of this device; it can as long as nobody knows.
fn mounts(pid: u32, device: u64) -> bool {
    let named = format!("{}:{}", libc::major(device), libc::minor(device));
    let is_it = |mounts: String| mounts.lines().any(|line| line.split(' ').nth(2) == Some(&*named));
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_or(true, is_it)
}

/// Whether it has mapped one, though it may not see it any more.
fn maps(pid: u32, device: u64) -> bool {
    modules::of_process(pid).map_or(true, |modules| modules.iter().any(|module| module.device == device))
}
