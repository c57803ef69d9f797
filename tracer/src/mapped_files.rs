//! What the traced processes mapped while they were recorded, for who asks why nothing was recorded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// So many files are kept: the first ones are those that every program has.
const MOST: usize = 512;

/// The files that were mapped executable; all copies are one.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    paths: BTreeSet<PathBuf>,
    patterns: BTreeSet<String>,
    is_incomplete: bool,
}

impl MappedFiles {
    /// A process has mapped a file, which these patterns name.
    pub(crate) fn add<'p>(&self, path: &Path, patterns: impl Iterator<Item = &'p str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        patterns.for_each(|pattern| _ = known.patterns.insert(pattern.to_owned()));
        if known.paths.len() < MOST {
            known.paths.insert(path.to_owned());
        }
    }

    /// Something was mapped of which nothing is known.
    pub(crate) fn lose(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_incomplete = true;
    }

    /// Whether it is certain that no process mapped a library that this pattern names.
    pub fn never(&self, pattern: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !known.is_incomplete && !known.paths.is_empty() && !known.patterns.contains(pattern)
    }

    /// The files, by path.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).paths.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_that_is_not_certain() {
        let loaded = MappedFiles::default();
        assert!(!loaded.never("libz"), "nothing was heard");
        loaded.add(Path::new("/lib/libc.so.6"), ["libc"].into_iter());
        assert!(loaded.never("libz") && !loaded.never("libc"));
        assert_eq!(loaded.clone().paths(), [Path::new("/lib/libc.so.6")]);
        loaded.lose();
        assert!(!loaded.never("libz"), "it may be what is not known");
    }
}
