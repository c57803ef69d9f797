//! What the traced processes mapped while they were recorded: for who asks why nothing was recorded.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::perf::mappings::CodeMapping;

/// So many files are kept by path: the first ones are those that every program has.
const MOST: usize = 512;

/// The files that were mapped executable; all copies are one.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(Arc<Mutex<KnownFiles>>);

#[derive(Debug, Default)]
struct KnownFiles {
    paths: BTreeSet<PathBuf>,
    recorded: BTreeSet<PathBuf>,
    patterns: BTreeSet<String>,
    is_incomplete: bool,
}

impl MappedFiles {
    /// Processes have mapped more than is known.
    pub(crate) fn miss(&self) {
        self.known().is_incomplete = true;
    }

    /// A process has mapped a file, which these patterns name; whether its calls are recorded.
    pub(crate) fn add<'p>(&self, mapping: &CodeMapping, patterns: impl Iterator<Item = &'p str>, is_recorded: bool) {
        let mut known = self.known();
        patterns.for_each(|pattern| _ = known.patterns.insert(pattern.to_owned()));
        if known.paths.len() < MOST {
            known.paths.insert(mapping.path.clone());
        }
        if is_recorded {
            known.recorded.insert(mapping.path.clone());
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

    /// Those that are not recorded under any path.
    pub fn unrecorded(&self) -> Vec<PathBuf> {
        let known = self.known();
        known.paths.difference(&known.recorded).cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, KnownFiles> {
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
        let (time, file) = (Timestamp(99), (8, 12));
        let mapping = CodeMapping {
            pid: 7,
            time,
            path: libc.clone(),
            file,
            addresses: 0..4096,
            offset: 0,
            takes_no_probes: false,
        };
        loaded.add(&mapping, ["libc"].into_iter(), false);
        assert_eq!(loaded.unrecorded(), vec![libc.clone()]);
        loaded.add(&mapping, ["libc"].into_iter(), true);
        assert!(loaded.never("libz") && !loaded.never("libc"));
        assert_eq!(loaded.clone().paths(), vec![libc]);
        assert!(loaded.unrecorded().is_empty());
        loaded.miss();
        assert!(!loaded.never("libz"), "it may be what is not known");
    }
}
