//! What the traced processes have mapped executable, and when: a return address means the code that was there when its
//! call was made. Other code may be there now, as libraries are unloaded, and programs execute others.
//!
//! The kernel tells of a mapping before the process can call what is there. So who has read calls from the rings, and
//! then [catches up](MappingHistory::catch_up), knows what was mapped when these began.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_model::Timestamp;
use rtrace_symbolizer::address_space::AddressSpace;

use crate::perf::mappings::{Change, Mapping, Mappings, Told};

/// A process that maps something may be a child of which nobody has heard yet; somebody does within this time.
const UNTIL_KNOWN_NS: u64 = 500_000_000;

/// Device and inode, as the list of a process's mappings has them.
type FileId = (u64, u64);

/// The history of all traced processes; all copies are one.
#[derive(Clone, Default)]
pub struct MappingHistory(Arc<Mutex<History>>);

#[derive(Default)]
struct History {
    heard: Option<Mappings>,
    /// By process, by time.
    known: HashMap<u32, Vec<Piece>>,
    /// What processes did that are not known.
    strangers: VecDeque<Change>,
    replaced: Vec<Replaced>,
    /// When the processes were forked.
    forked: HashMap<u32, Timestamp>,
    /// What was not [taken](MappingHistory::take) yet.
    untaken: Told,
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

    /// What any process has mapped or executed since the last call.
    pub fn take(&self) -> Told {
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

    /// Forgets the processes that have ended.
    pub fn keep(&self, lives: impl Fn(u32) -> bool) {
        let mut history = self.history();
        history.known.retain(|&pid, _| lives(pid));
        history.forked.retain(|&pid, _| lives(pid));
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    fn catch_up(&mut self) {
        let Some(heard) = &mut self.heard else { return };
        let (changes, lost) = heard.read();
        self.untaken.lost += lost;
        let Some(newest) = changes.last().map(Change::time) else { return };
        for change in changes {
            self.change(&change);
            if !self.known.contains_key(&change.pid()) {
                self.strangers.push_back(change.clone());
            }
            match change {
                Change::Mapped(mapping) => self.untaken.mappings.push(mapping),
                Change::Executed { pid, time } => self.untaken.executed.push((pid, time)),
            }
        }
        while self.strangers.front().is_some_and(|change| newest.since(change.time()) > UNTIL_KNOWN_NS) {
            self.strangers.pop_front();
        }
        if lost > 0 {
            let pids: Vec<u32> = self.known.keys().copied().collect();
            for pid in pids {
                pieces_of(pid, newest).into_iter().for_each(|piece| self.add(pid, piece));
            }
        }
    }

    /// What a process did before it was known.
    fn let_in(&mut self, pid: u32, since: Timestamp) {
        let strangers = std::mem::take(&mut self.strangers);
        let (own, others) = strangers.into_iter().partition(|change| change.pid() == pid);
        self.strangers = others;
        own.iter().filter(|change| change.time() > since).for_each(|change| self.change(change));
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Mapped(Mapping { pid, time, path, file, addresses, offset, .. }) => {
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
            Change::Executed { pid, time } => {
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

    fn mapped(pid: u32, time: u64, addresses: Range<u64>, inode: u64) -> Change {
        let path = PathBuf::from(format!("/lib/{inode}"));
        let addresses = BASE + addresses.start..BASE + addresses.end;
        let (time, file) = (Timestamp(time), (8, inode));
        Change::Mapped(Mapping { pid, time, path, file, addresses, offset: 0x1000, takes_no_probes: false })
    }

    fn history(changes: &[Change]) -> MappingHistory {
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
        history
            .history()
            .strangers
            .extend([mapped(9, 25, 200..300, 3), Change::Executed { pid: 9, time: Timestamp(40) }]);
        history.history().strangers.push_back(mapped(9, 41, 0..50, 4));
        history.forked(7, 9, Timestamp(20));
        let of_parent = Change::Executed { pid: 7, time: Timestamp(30) };
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
}
