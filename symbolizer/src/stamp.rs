//! Which content of which file was looked at.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Tells a file, and what it held, from others, and from what it holds later. A change within the step of the file
/// system's clock that keeps the size goes unseen (some milliseconds before Linux 6.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Device number of the file, as `stat` reports it.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// In bytes.
    size: u64,
    /// When its content was last written, in seconds and nanoseconds of the system's clock.
    modified: (i64, i64),
    /// When anything of it was last changed, which a program cannot set back; as before.
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file as it is now.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(file: &File) -> io::Result<Stamp> {
        let metadata = file.metadata()?;
        Ok(Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn files_and_their_contents_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let stamp = |path: &Path| Stamp::of(&File::open(path).unwrap()).unwrap();
        fs::write(&path, "one").unwrap();
        let held = File::open(&path).unwrap();
        let first = stamp(&path);
        assert_eq!(first, stamp(&path));
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        let second = stamp(&path);
        assert_ne!(first, second, "written to");
        assert_eq!(second, Stamp::of(&held).unwrap());
        let other = folder.path().join("other");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_ne!(stamp(&path).inode, second.inode, "replaced");
    }
}
