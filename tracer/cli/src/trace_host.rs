//! What the live view needs from outside: the size of a trace, and files beside it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use rtrace::target::privilege;
use rtrace_tui::{Fate, Host, ViewEnd};

use super::message::tell;

/// Files of one kind beside a trace, at most.
const MOST_FILES: u32 = 10_000;

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

/// Names the files that a view has written, which its last line did for a moment only.
pub fn tell_saved(shown: &ViewEnd) {
    shown.saved.iter().for_each(|file| tell!("wrote {file}"));
}

impl Host for TraceHost<'_> {
    fn size(&self) -> Option<u64> {
        size(self.path).ok()
    }

    fn fates(&self) -> &[Fate] {
        self.fates
    }

    fn save(&self, kind: &str, extension: &str, content: &str) -> io::Result<String> {
        let (path, mut file) = create(self.path, kind, extension)?;
        if let Some(owner) = privilege::invoker() {
            fchown(&file, Some(owner.uid), Some(owner.gid))?;
        }
        file.write_all(content.as_bytes())?;
        Ok(path.display().to_string())
    }
}

/// The first free name; an existing file, or a link that somebody put there, is left alone.
fn create(trace: &Path, kind: &str, extension: &str) -> io::Result<(PathBuf, fs::File)> {
    let name = trace.file_name().unwrap_or(trace.as_os_str()).to_string_lossy();
    for number in 1..MOST_FILES {
        let path = trace.with_file_name(format!("{name}.{kind}-{number}.{extension}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (path, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
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
    fn files_beside_a_trace_do_not_replace_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("a.rtrace");
        fs::create_dir_all(trace.join("calls")).unwrap();
        fs::write(trace.join("calls/1"), "12345").unwrap();
        let host = TraceHost::stored(&trace);
        assert_eq!(host.size(), Some(5));
        let names = ["one", "two"].map(|content| host.save("screen", "txt", content).unwrap());
        assert!(names[0].ends_with("/a.rtrace.screen-1.txt") && names[1].ends_with("/a.rtrace.screen-2.txt"));
        assert_eq!(names.map(|name| fs::read_to_string(name).unwrap()), ["one", "two"]);
    }
}
