//! What the live view needs from outside: the size of a trace, and what may become of it.

use std::path::Path;
use std::{fs, io};

use rtrace_tui::{Fate, Host};

/// The host of a view on a trace directory.
pub struct TraceHost<'a> {
    path: &'a Path,
    fates: &'static [Fate],
}

impl<'a> TraceHost<'a> {
    /// That of a trace which the view does not change.
    pub fn stored(path: &'a Path) -> TraceHost<'a> {
        TraceHost { path, fates: &[Fate::Keep] }
    }

    /// That of a recording which the user of the view has started.
    pub fn recording(path: &'a Path) -> TraceHost<'a> {
        TraceHost { path, fates: &Fate::ALL }
    }
}

impl Host for TraceHost<'_> {
    fn size(&self) -> Option<u64> {
        size(self.path).ok()
    }

    fn fates(&self) -> &[Fate] {
        self.fates
    }
}

/// Bytes of the files in a folder and its folders.
fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file may have been renamed meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_size_of_a_trace_is_that_of_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("calls")).unwrap();
        fs::write(folder.path().join("calls/1"), "12345").unwrap();
        fs::write(folder.path().join("trace.json"), "12").unwrap();
        assert_eq!(TraceHost::stored(folder.path()).size(), Some(7));
    }
}
