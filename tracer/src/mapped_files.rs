//! What the traced processes mapped while they were recorded: for who asks why nothing was recorded, and for who
//! meets a file by its number when the process has ended.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::perf::mappings::Mapping;

/// So many files are kept by path: the first ones are those that every program has.
const MOST: usize = 512;

/// So many files are kept by number.
const MOST_NUMBERED: usize = 1 << 16;

/// Device and inode, as the kernel numbers them.
type FileId = (u64, u64);

/// The files that were mapped executable; all copies are one.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    paths: BTreeSet<PathBuf>,
    by_number: HashMap<FileId, PathBuf>,
    patterns: BTreeSet<String>,
    is_incomplete: bool,
}

impl MappedFiles {
    /// A process has mapped a file, which these patterns name.
    pub(crate) fn add<'p>(&self, mapping: &Mapping, patterns: impl Iterator<Item = &'p str>) {
        let mut known = self.known();
        patterns.for_each(|pattern| _ = known.patterns.insert(pattern.to_owned()));
        if known.paths.len() < MOST {
            known.paths.insert(mapping.path.clone());
        }
        if known.by_number.len() < MOST_NUMBERED {
            known.by_number.insert(mapping.file, mapping.path.clone());
        }
    }

    /// The path by which a process has mapped the file last.
    pub(crate) fn path_of(&self, file: FileId) -> Option<PathBuf> {
        self.known().by_number.get(&file).cloned()
    }

    /// Something was mapped of which nothing is known.
    pub(crate) fn lose(&self) {
        self.known().is_incomplete = true;
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

#[cfg(test)]
mod tests {
    use rtrace_model::Timestamp;

    use super::*;

    #[test]
    fn nothing_is_said_that_is_not_certain() {
        let loaded = MappedFiles::default();
        assert!(!loaded.never("libz"), "nothing was heard");
        let libc = PathBuf::from("/lib/libc.so.6");
        let mapping = Mapping { pid: 7, time: Timestamp(99), path: libc.clone(), file: (8, 12) };
        loaded.add(&mapping, ["libc"].into_iter());
        assert!(loaded.never("libz") && !loaded.never("libc"));
        assert_eq!(loaded.path_of((8, 12)), Some(libc.clone()));
        assert_eq!((loaded.path_of((8, 13)), loaded.clone().paths()), (None, vec![libc]));
        loaded.lose();
        assert!(!loaded.never("libz"), "it may be what is not known");
    }
}
