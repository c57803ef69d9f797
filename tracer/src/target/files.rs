//! Files in which probes are placed.
//!
//! A probe at an offset that was found in other content of the file would change what programs do. So a file is held open
//! from the look at it on, whatever becomes of its name, and gets no probe once it has changed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rtrace_bpf::Error;
pub use rtrace_symbolizer::open_path;
use rtrace_symbolizer::{Stamp, open_regular};

/// A file that was looked at, open.
#[derive(Debug)]
pub struct Pinned {
    file: File,
    stamp: Stamp,
}

impl Pinned {
    /// The file that this path leads to, which is to hold what was `looked_at`, if it was.
    ///
    /// # Errors
    /// It cannot be opened, or another one is there now, or it holds something else.
    pub fn open(path: &Path, looked_at: Option<Stamp>) -> Result<Pinned, Error> {
        let pin = || {
            let file = open_regular(path)?;
            let stamp = Stamp::of(&file)?;
            match looked_at.is_none_or(|looked_at| looked_at.holds_the_same(&stamp)) {
                true => Ok(Pinned { file, stamp }),
                false => Err(changed()),
            }
        };
        pin().map_err(|source| Error::Read { path: path.to_owned(), source })
    }

    /// Fails where the file, which has this name for users, has changed since it was looked at.
    ///
    /// # Errors
    /// It has.
    pub fn check(&self, name: &Path) -> Result<(), Error> {
        match self.is_unchanged() {
            true => Ok(()),
            false => Err(Error::Read { path: name.to_owned(), source: changed() }),
        }
    }

    /// Whether it still holds what it held.
    pub fn is_unchanged(&self) -> bool {
        Stamp::of(&self.file).is_ok_and(|now| now.holds_the_same(&self.stamp))
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that leads to the file as long as this is there.
    pub fn path(&self) -> PathBuf {
        open_path(&self.file)
    }

    /// The path by which processes know the file, beside which debug information may be, if it still leads there.
    pub fn reachable(&self, path: Option<&str>) -> PathBuf {
        let holds_the_same = |path: &&Path| {
            let there = open_regular(path).and_then(|file| Stamp::of(&file));
            there.ok().zip(Stamp::of(&self.file).ok()).is_some_and(|(there, here)| there.holds_the_same(&here))
        };
        path.map(Path::new).filter(holds_the_same).map_or_else(|| self.path(), Path::to_path_buf)
    }
}

fn changed() -> io::Error {
    io::Error::other("it was changed or replaced while rtrace looked at it; start again")
}
