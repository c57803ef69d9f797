//! What the traced processes mapped while they were recorded: for who asks why nothing was recorded.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_model::Timestamp;

use crate::perf::mappings::{Mapping, Told};

/// So many files are kept by path: the first ones are those that every program has.
const MOST: usize = 512;

/// What a process has mapped and executed is kept for so long after the last of it, for so many processes.
const KEPT_NS: u64 = 3_000_000_000;
const MOST_PROCESSES: usize = 1 << 13;

/// Device and inode, as the kernel numbers them.
type FileId = (u64, u64);

/// The files that were mapped executable; all copies are one.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    paths: BTreeSet<PathBuf>,
    patterns: BTreeSet<String>,
    is_incomplete: bool,
    /// What any process has mapped of late.
    recent: HashMap<u32, Recent>,
    /// All before that is known.
    until: Timestamp,
}

/// What a process has mapped, and when it began to execute programs.
#[derive(Debug, Default)]
struct Recent {
    mapped: Vec<(Timestamp, FileId, PathBuf)>,
    executed: Vec<Timestamp>,
}

impl Recent {
    fn last(&self) -> Timestamp {
        let times = self.mapped.iter().map(|(time, ..)| *time).chain(self.executed.iter().copied());
        times.max().unwrap_or_default()
    }
}

impl MappedFiles {
    /// This is all that any process has mapped and executed since the last time, until then.
    pub(crate) fn hear(&self, told: &Told, until: Timestamp) {
        let mut known = self.known();
        known.is_incomplete |= told.lost > 0;
        known.until = until;
        known.recent.retain(|_, recent| until.since(recent.last()) < KEPT_NS);
        for mapping in &told.mappings {
            if let Some(recent) = known.recent_of(mapping.pid) {
                recent.mapped.push((mapping.time, mapping.file, mapping.path.clone()));
            }
        }
        for &(pid, time) in &told.executed {
            if let Some(recent) = known.recent_of(pid) {
                recent.executed.push(time);
            }
        }
    }

    /// Whether all is known that was mapped and executed before that time.
    pub(crate) fn is_known(&self, time: Timestamp) -> bool {
        self.known().until > time
    }

    /// The program that a process had executed by that time, where that was not long ago and is known.
    pub(crate) fn executed(&self, pid: u32, by: Timestamp) -> Option<PathBuf> {
        let known = self.known();
        let recent = known.recent.get(&pid)?;
        let begin = recent.executed.iter().filter(|time| **time <= by).max()?;
        // The program itself is mapped first, then its dynamic linker.
        let mapped = recent.mapped.iter().filter(|(time, file, _)| time >= begin && *time <= by && file.1 != 0);
        mapped.min_by_key(|(time, ..)| *time).map(|(.., path)| path.clone())
    }

    /// Whether a process that was forked at that time may have mapped a file since, by its number or its name.
    pub(crate) fn may_have_mapped(&self, pid: u32, since: Timestamp, file: FileId, name: &OsStr) -> bool {
        let known = self.known();
        let is_it = |(time, id, path): &(Timestamp, FileId, PathBuf)| {
            *time >= since && (*id == file || path.file_name() == Some(name))
        };
        known.is_incomplete || known.recent.get(&pid).is_none_or(|recent| recent.mapped.iter().any(is_it))
    }

    /// A process has mapped a file, which these patterns name.
    pub(crate) fn add<'p>(&self, mapping: &Mapping, patterns: impl Iterator<Item = &'p str>) {
        let mut known = self.known();
        patterns.for_each(|pattern| _ = known.patterns.insert(pattern.to_owned()));
        if known.paths.len() < MOST {
            known.paths.insert(mapping.path.clone());
        }
    }

    /// Whether it is certain that no process mapped a library that this pattern names.
    pub fn never(&self, pattern: &str) -> bool {
        let known = self.known();
        !known.is_incomplete && !known.paths.is_empty() && !known.patterns.contains(pattern)
    }

    /// The files, by path.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.known().paths.iter().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Of a process; none if there are too many.
    fn recent_of(&mut self, pid: u32) -> Option<&mut Recent> {
        if self.recent.len() >= MOST_PROCESSES && !self.recent.contains_key(&pid) {
            self.is_incomplete = true;
            return None;
        }
        Some(self.recent.entry(pid).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_that_is_not_certain() {
        let loaded = MappedFiles::default();
        assert!(!loaded.never("libz"), "nothing was heard");
        let libc = PathBuf::from("/lib/libc.so.6");
        let (time, file) = (Timestamp(99), (8, 12));
        let mapping =
            Mapping { pid: 7, time, path: libc.clone(), file, addresses: 0..4096, offset: 0, takes_no_probes: false };
        loaded.add(&mapping, ["libc"].into_iter());
        assert!(loaded.never("libz") && !loaded.never("libc"));
        assert_eq!(loaded.clone().paths(), vec![libc]);
        loaded.hear(&Told { lost: 1, ..Told::default() }, Timestamp(100));
        assert!(!loaded.never("libz"), "it may be what is not known");
    }

    #[test]
    fn a_process_that_has_ended_is_known_by_what_it_mapped() {
        let loaded = MappedFiles::default();
        let mapping = |time, file, path: &str| Mapping {
            pid: 7,
            time: Timestamp(time),
            path: path.into(),
            file,
            addresses: 0..4096,
            offset: 0,
            takes_no_probes: false,
        };
        let mappings = vec![
            mapping(40, (8, 14), "/lib/ld.so"),
            mapping(30, (8, 13), "/bin/true"),
            mapping(10, (8, 12), "/lib/libz.so.1"),
        ];
        let executed = vec![(7, Timestamp(20))];
        loaded.hear(&Told { mappings, executed, lost: 0 }, Timestamp(50));
        assert!(loaded.is_known(Timestamp(49)) && !loaded.is_known(Timestamp(50)));
        assert_eq!(loaded.executed(7, Timestamp(45)), Some("/bin/true".into()));
        assert_eq!((loaded.executed(7, Timestamp(19)), loaded.executed(8, Timestamp(45))), (None, None));
        let may_have_mapped =
            |since, file, name: &str| loaded.may_have_mapped(7, Timestamp(since), file, OsStr::new(name));
        assert!(may_have_mapped(5, (8, 12), "libz.so"));
        assert!(may_have_mapped(5, (9, 99), "libz.so.1"), "where a file system has numbers of its own");
        assert!(!may_have_mapped(15, (8, 12), "libz.so.1"));
        assert!(loaded.may_have_mapped(8, Timestamp(5), (8, 1), OsStr::new("x")), "nothing is known of it");
    }
}
