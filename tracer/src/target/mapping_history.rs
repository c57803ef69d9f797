//! What processes have mapped executable and executed, and when: a return address means the code that was there when its
//! call was made. Other code may be there now, as libraries are unloaded, and programs execute others.
//!
//! Of traced processes all is kept; of all processes what they did of late, for those that end before anybody looks.
//!
//! The kernel tells of a mapping before the process can call what is there. So who has read calls from the rings, and
//! then [catches up](MappingHistory::catch_up), knows what was mapped when these began.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_model::Timestamp;
use rtrace_symbolizer::address_space::{AddressSpace, FileId};

use crate::host;
use crate::perf::mappings::{CodeChange, CodeMapping, MappingRecords, Mappings};

/// What a process did is kept for so long after the last of it, of so many processes, and so much of each.
const KEPT_NS: u64 = 3_000_000_000;
const MOST_PROCESSES: usize = 1 << 13;
const MOST_CHANGES: usize = 1 << 12;

/// The history of processes; all copies are one.
#[derive(Clone, Default)]
pub struct MappingHistory(Arc<Mutex<ProcessHistory>>);

#[derive(Default)]
struct ProcessHistory {
    heard: Option<Mappings>,
    /// By process, by time.
    known: HashMap<u32, Vec<Piece>>,
    /// What any process did of late, by time.
    recent: HashMap<u32, Vec<CodeChange>>,
    /// Something is missing there.
    is_incomplete: bool,
    /// All before that is known.
    until: Timestamp,
    replaced: Vec<Replaced>,
    /// When the processes were forked.
    forked: HashMap<u32, Timestamp>,
    /// What was not [taken](MappingHistory::take) yet.
    untaken: MappingRecords,
}

/// What a process has mapped at some addresses for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    since: Timestamp,
    /// When the process executed another program.
    until: Timestamp,
    addresses: Range<u64>,
    /// Where in the file it begins.
    offset: u64,
    /// None for code that was made at run time.
    pub file: Option<FileId>,
    /// The file's path as the process sees it.
    pub path: Arc<Path>,
}

impl Piece {
    /// Where in the file an address of it is.
    pub fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.addresses.start))
    }

    fn overlaps(&self, other: &Piece) -> bool {
        self.addresses.start < other.addresses.end && other.addresses.start < self.addresses.end
    }

    /// Whether it has the same bytes at the same addresses as another one.
    fn agrees(&self, other: &Piece) -> bool {
        self.file == other.file && (self.file.is_none() || self.offset_of(other.addresses.start) == other.offset)
    }

    fn was_there(&self, address: u64, time: Timestamp) -> bool {
        self.addresses.contains(&address) && self.since <= time && time < self.until
    }
}

/// Addresses of a process at which there is something else than there was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The process.
    pub pid: u32,
    /// Since when.
    pub since: Timestamp,
    /// The addresses.
    pub addresses: Range<u64>,
}

impl MappingHistory {
    /// Takes down what is heard of from now on.
    pub fn hear(&self, mappings: Mappings) {
        self.history().heard = Some(mappings);
    }

    /// A process is traced from now on: what it maps was there before.
    pub fn begin(&self, pid: u32) {
        let mut history = self.history();
        if history.known.contains_key(&pid) {
            return;
        }
        history.known.insert(pid, pieces_of(pid, Timestamp(0)));
        history.let_in(pid, Timestamp(0));
    }

    /// A process has made a child, which maps what the process does.
    pub fn forked(&self, pid: u32, child: u32, time: Timestamp) {
        let mut history = self.history();
        if history.forked.insert(child, time) == Some(time) {
            return;
        }
        let Some(pieces) = history.known.get(&pid) else { return };
        let lasts = |piece: &&Piece| piece.since <= time && time < piece.until;
        let mut pieces: Vec<Piece> = pieces.iter().filter(lasts).cloned().collect();
        pieces.iter_mut().for_each(|piece| piece.until = Timestamp(u64::MAX));
        history.known.insert(child, pieces);
        history.let_in(child, time);
    }

    /// Hears what the kernel has told, and returns where something else is mapped since the last call.
    pub fn catch_up(&self) -> Vec<Replaced> {
        let mut history = self.history();
        history.catch_up();
        std::mem::take(&mut history.replaced)
    }

    /// What any process has mapped since the last call.
    pub fn take(&self) -> MappingRecords {
        let mut history = self.history();
        history.catch_up();
        std::mem::take(&mut history.untaken)
    }

    /// What a process had mapped at an address, and when something else came there; none where nothing is known of it.
    pub fn at(&self, pid: u32, address: u64, time: Timestamp) -> Option<(Piece, Option<Timestamp>)> {
        let mut history = self.history();
        history.catch_up();
        let pieces = history.known.get(&pid)?;
        let place = pieces.iter().rposition(|piece| piece.was_there(address, time))?;
        let next = pieces[place + 1..].iter().find(|piece| piece.addresses.contains(&address));
        Some((pieces[place].clone(), next.map(|piece| piece.since)))
    }

    /// Whether all is known that was mapped and executed before that time.
    pub fn is_known(&self, time: Timestamp) -> bool {
        self.history().until > time
    }

    /// The program that a process had executed by that time, where that was not long ago and is known.
    pub fn executed(&self, pid: u32, by: Timestamp) -> Option<PathBuf> {
        let history = self.history();
        let changes = || history.recent.get(&pid).into_iter().flatten().filter(|change| change.time() <= by);
        let begin =
            changes().filter(|change| matches!(change, CodeChange::Executed { .. })).map(CodeChange::time).max()?;
        // The program itself is mapped first, then its dynamic linker.
        let mapped =
            changes().filter_map(CodeChange::mapped).filter(|mapping| mapping.time >= begin && mapping.file.1 != 0);
        mapped.min_by_key(|mapping| mapping.time).map(|mapping| mapping.path.clone())
    }

    /// Whether a process that was forked at that time may have mapped a file since, by its number or its name.
    pub fn may_have_mapped(&self, pid: u32, since: Timestamp, file: FileId, name: &OsStr) -> bool {
        let history = self.history();
        let is_it = |mapping: &CodeMapping| {
            mapping.time >= since && (mapping.file == file || mapping.path.file_name() == Some(name))
        };
        let has_it = |changes: &Vec<CodeChange>| changes.iter().filter_map(CodeChange::mapped).any(is_it);
        history.is_incomplete || history.recent.get(&pid).is_none_or(has_it)
    }

    /// Forgets the traced processes that have ended.
    pub fn keep(&self, lives: impl Fn(u32) -> bool) {
        let mut history = self.history();
        history.known.retain(|&pid, _| lives(pid));
        history.forked.retain(|&pid, _| lives(pid));
    }

    fn history(&self) -> MutexGuard<'_, ProcessHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessHistory {
    fn catch_up(&mut self) {
        let Some(heard) = &mut self.heard else { return };
        let now = host::now();
        let (changes, lost) = heard.read();
        self.until = now;
        self.untaken.lost += lost;
        self.is_incomplete |= lost > 0;
        let Some(newest) = changes.last().map(CodeChange::time) else { return };
        for change in changes {
            self.change(&change);
            self.untaken.mappings.extend(change.mapped().cloned());
            self.note(change);
        }
        let is_recent = |changes: &Vec<CodeChange>| changes.last().is_some_and(|last| now.since(last.time()) < KEPT_NS);
        self.recent.retain(|_, changes| is_recent(changes));
        if lost > 0 {
            let pids: Vec<u32> = self.known.keys().copied().collect();
            for pid in pids {
                pieces_of(pid, newest).into_iter().for_each(|piece| self.add(pid, piece));
            }
        }
    }

    /// Keeps it for a while.
    fn note(&mut self, change: CodeChange) {
        let pid = change.pid();
        // A traced process may make code all the time.
        let is_made = change.mapped().is_some_and(|mapping| mapping.file.1 == 0);
        if is_made && self.known.contains_key(&pid) {
            return;
        }
        let has_room = self.recent.len() < MOST_PROCESSES || self.recent.contains_key(&pid);
        match has_room.then(|| self.recent.entry(pid).or_default()) {
            Some(changes) if changes.len() < MOST_CHANGES => changes.push(change),
            _ => self.is_incomplete = true,
        }
    }

    /// What a process did before it was known.
    fn let_in(&mut self, pid: u32, since: Timestamp) {
        let own = self.recent.get(&pid).cloned().unwrap_or_default();
        own.iter().filter(|change| change.time() > since).for_each(|change| self.change(change));
    }

    fn change(&mut self, change: &CodeChange) {
        match change {
            CodeChange::Mapped(CodeMapping { pid, time, path, file, addresses, offset, .. }) => {
                let piece = Piece {
                    since: *time,
                    until: Timestamp(u64::MAX),
                    addresses: addresses.clone(),
                    offset: *offset,
                    file: (file.1 != 0).then_some(*file),
                    path: Arc::from(path.as_path()),
                };
                self.add(*pid, piece);
            }
            CodeChange::Executed { pid, time } => {
                for piece in self.known.get_mut(pid).into_iter().flatten() {
                    piece.until = piece.until.min(*time);
                }
            }
        }
    }

    fn add(&mut self, pid: u32, piece: Piece) {
        let Some(pieces) = self.known.get_mut(&pid) else { return };
        let lasts = |before: &&Piece| before.overlaps(&piece) && piece.since < before.until;
        match pieces.iter().rev().find(lasts) {
            // Code that is made at run time comes and goes all the time, where nothing else was.
            None if piece.file.is_none() => return,
            Some(before) if before.agrees(&piece) => {
                let is_within = |address| before.addresses.contains(&address);
                if piece.file.is_none() || (is_within(piece.addresses.start) && is_within(piece.addresses.end - 1)) {
                    return;
                }
            }
            None => {}
            Some(_) => self.replaced.push(Replaced { pid, since: piece.since, addresses: piece.addresses.clone() }),
        }
        pieces.push(piece);
    }
}

/// What a process maps now; nothing where it has ended.
fn pieces_of(pid: u32, since: Timestamp) -> Vec<Piece> {
    let Ok(space) = AddressSpace::of(pid) else { return Vec::new() };
    let areas = space.areas().filter(|area| area.mapping.executable && area.mapping.start < area.mapping.end);
    let piece = areas.filter_map(|area| {
        let file = area.file?;
        Some(Piece {
            since,
            until: Timestamp(u64::MAX),
            addresses: area.mapping.start..area.mapping.end,
            offset: area.mapping.offset,
            file: Some((file.device, file.inode)),
            path: Arc::from(file.path()),
        })
    });
    piece.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::PathBuf;

    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn mapped(pid: u32, time: u64, addresses: Range<u64>, inode: u64) -> CodeChange {
        let path = PathBuf::from(format!("/lib/{inode}"));
        let addresses = BASE + addresses.start..BASE + addresses.end;
        let (time, file) = (Timestamp(time), (8, inode));
        CodeChange::Mapped(CodeMapping { pid, time, path, file, addresses, offset: 0x1000, takes_no_probes: false })
    }

    fn history(changes: &[CodeChange]) -> MappingHistory {
        let history = MappingHistory::default();
        history.history().known.insert(7, Vec::new());
        changes.iter().for_each(|change| history.history().change(change));
        history
    }

    fn inode(history: &MappingHistory, pid: u32, address: u64, time: u64) -> Option<u64> {
        let (piece, _) = history.at(pid, BASE + address, Timestamp(time))?;
        Some(piece.file.map_or(0, |(_, inode)| inode))
    }

    #[test]
    fn an_address_means_what_was_there_at_the_time() {
        let history = history(&[mapped(7, 10, 0..100, 1), mapped(7, 20, 50..150, 2), mapped(7, 30, 0..100, 1)]);
        let at = |address, time| inode(&history, 7, address, time);
        assert_eq!(
            [at(60, 9), at(60, 10), at(60, 20), at(60, 29), at(60, 30)],
            [None, Some(1), Some(2), Some(2), Some(1)]
        );
        assert_eq!([at(40, 25), at(120, 35), at(150, 35)], [Some(1), Some(2), None]);
        let (piece, next) = history.at(7, BASE + 60, Timestamp(12)).unwrap();
        assert_eq!((piece.offset_of(BASE + 60), next), (0x1000 + 60, Some(Timestamp(20))));
        let since: Vec<u64> = history.catch_up().iter().map(|replaced| replaced.since.0).collect();
        assert_eq!(since, [20, 30]);
        assert!(history.catch_up().is_empty());
    }

    #[test]
    fn the_same_again_replaces_nothing() {
        let history = history(&[mapped(7, 10, 0..100, 1), mapped(7, 20, 0..100, 1), mapped(7, 30, 0..100, 0)]);
        assert_eq!(history.at(7, BASE, Timestamp(25)).unwrap().1, Some(Timestamp(30)));
        // Code that is made at run time, where a file was, and where nothing is known to have been.
        assert_eq!(inode(&history, 7, 5, 30), Some(0));
        history.history().change(&mapped(7, 40, 0..50, 0));
        history.history().change(&mapped(7, 40, 500..600, 0));
        assert_eq!((history.catch_up().len(), inode(&history, 7, 550, 50)), (1, None));
    }

    #[test]
    fn a_child_has_what_its_parent_had_until_it_executes_a_program() {
        let history = history(&[mapped(7, 10, 0..100, 1)]);
        let of_child =
            [mapped(9, 25, 200..300, 3), CodeChange::Executed { pid: 9, time: Timestamp(40) }, mapped(9, 41, 0..50, 4)];
        of_child.into_iter().for_each(|change| history.history().note(change));
        history.forked(7, 9, Timestamp(20));
        let of_parent = CodeChange::Executed { pid: 7, time: Timestamp(30) };
        history.history().change(&of_parent);
        let at = |address, time| inode(&history, 9, address, time);
        assert_eq!(
            [at(0, 39), at(250, 39), at(0, 41), at(60, 41), at(250, 41)],
            [Some(1), Some(3), Some(4), None, None]
        );
        assert_eq!((inode(&history, 7, 0, 29), inode(&history, 7, 0, 30)), (Some(1), None));
        assert!(history.catch_up().is_empty(), "what a program maps replaces nothing of the one before");
        history.keep(|pid| pid == 7);
        assert!(history.at(9, BASE, Timestamp(41)).is_none());
    }

    #[test]
    fn what_a_process_maps_at_first_was_always_there() {
        let history = MappingHistory::default();
        history.begin(std::process::id());
        let own = what_a_process_maps_at_first_was_always_there as *const () as u64;
        let (piece, next) = history.at(std::process::id(), own, Timestamp(1)).unwrap();
        assert_eq!((piece.path.as_ref(), next), (std::env::current_exe().unwrap().as_path(), None));
    }

    #[test]
    fn a_process_that_has_ended_is_known_by_what_it_mapped() {
        let history = MappingHistory::default();
        let mapping = |time, file, path: &str| {
            let (pid, time, path) = (7, Timestamp(time), path.into());
            CodeChange::Mapped(CodeMapping {
                pid,
                time,
                path,
                file,
                addresses: 0..4096,
                offset: 0,
                takes_no_probes: false,
            })
        };
        for change in [
            mapping(10, (8, 12), "/lib/libz.so.1"),
            CodeChange::Executed { pid: 7, time: Timestamp(20) },
            mapping(30, (8, 13), "/bin/true"),
            mapping(40, (8, 14), "/lib/ld.so"),
        ] {
            history.history().note(change);
        }
        history.history().until = Timestamp(50);
        assert!(history.is_known(Timestamp(49)) && !history.is_known(Timestamp(50)));
        assert_eq!(history.executed(7, Timestamp(45)), Some("/bin/true".into()));
        assert_eq!((history.executed(7, Timestamp(19)), history.executed(8, Timestamp(45))), (None, None));
        let may_have_mapped =
            |since, file, name: &str| history.may_have_mapped(7, Timestamp(since), file, OsStr::new(name));
        assert!(may_have_mapped(5, (8, 12), "libz.so"));
        assert!(may_have_mapped(5, (9, 99), "libz.so.1"), "where a file system has numbers of its own");
        assert!(!may_have_mapped(15, (8, 12), "libz.so.1"));
        assert!(history.may_have_mapped(8, Timestamp(5), (8, 1), OsStr::new("x")), "nothing is known of it");
    }
}
