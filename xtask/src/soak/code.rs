//! The code of the libraries under trace, in the processes of a server and in its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rtrace_symbolizer::address_space::{AddressSpace, Area};

/// What is traced.
pub const LIBRARIES: [&str; 3] = ["libc.so.6", "libcrypto.so.3", "libssl.so.3"];

/// Bytes that are compared at a time.
const PAGE: usize = 4096;

/// Reads the code of processes and compares it with that of the files, which are read once.
#[derive(Default)]
pub struct CodeReader {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl CodeReader {
    /// How many pages of code are not as in their files, by process. One that has ended has none.
    pub fn changed(&mut self, pids: &[u32]) -> BTreeMap<u32, usize> {
        let changes = pids.iter().map(|&pid| (pid, self.changes(pid).unwrap_or(0)));
        changes.filter(|&(_, changes)| changes > 0).collect()
    }

    /// Pages that differ; none where the process has ended.
    fn changes(&mut self, pid: u32) -> Option<usize> {
        let space = AddressSpace::of(pid).ok()?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let mut changes = 0;
        for Area { mapping, file, .. } in space.areas().filter(|area| area.mapping.executable) {
            let Some(path) = file.map(|file| file.path()) else { continue };
            if !LIBRARIES.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            let stored = self.files.entry(path).or_insert_with_key(|path| fs::read(path).unwrap_or_default());
            let from = mapping.offset as usize;
            let stored = &stored[from.min(stored.len())..(from + mapping.length() as usize).min(stored.len())];
            let mut live = vec![0; stored.len()];
            memory.read_exact_at(&mut live, mapping.start).ok()?;
            let pages = live.chunks(PAGE).zip(stored.chunks(PAGE));
            changes += pages.filter(|(live, stored)| live != stored).count();
        }
        Some(changes)
    }
}

/// The libraries that the process maps.
pub fn libraries(pid: u32) -> Vec<&'static str> {
    let Ok(space) = AddressSpace::of(pid) else { return Vec::new() };
    let maps = |name: &str| space.files().any(|file| file.path().ends_with(name));
    LIBRARIES.into_iter().filter(|name| maps(name)).collect()
}

/// A process and all that descend from it.
pub fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(pid) = family.get(at) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
            .collect();
        family.extend(children);
        at += 1;
    }
    family
}
