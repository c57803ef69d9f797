//! Which content of which file was looked at.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Tells a file, and what it held, from others, and from what it holds later.
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
    /// What changes that, too, and not the content: number of links, mode, owner and group.
    standing: (u64, u32, u32, u32),
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
            standing: (metadata.nlink(), metadata.mode(), metadata.uid(), metadata.gid()),
        })
    }

    /// Whether it is the same file, and holds the same, at another time. A file that was removed or replaced is still
    /// the same for those who map it, and so is one with another mode or owner. A change within the step of the file
    /// system's clock (some milliseconds before Linux 6.13) that keeps the size goes unseen.
    pub fn holds_the_same(&self, other: &Stamp) -> bool {
        let content = |stamp: &Stamp| (stamp.device, stamp.inode, stamp.size, stamp.modified);
        let is_explained = self.changed == other.changed || self.standing != other.standing;
        content(self) == content(other) && is_explained
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn files_and_their_contents_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let stamp = |path: &Path| Stamp::of(&File::open(path).unwrap()).unwrap();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "one").unwrap();
        let held = File::open(&path).unwrap();
        let first = stamp(&path);
        assert!(first.holds_the_same(&stamp(&path)));
        pause();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(first.holds_the_same(&stamp(&path)), "another mode");
        fs::write(&path, "two").unwrap();
        let second = stamp(&path);
        assert!(!first.holds_the_same(&second), "written to");
        pause();
        held.set_modified(held.metadata().unwrap().modified().unwrap()).unwrap();
        assert!(!second.holds_the_same(&stamp(&path)), "the time was set back, if to what it was");
        let second = stamp(&path);
        let other = folder.path().join("other");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!second.holds_the_same(&stamp(&path)), "replaced");
        assert!(second.holds_the_same(&Stamp::of(&held).unwrap()), "it lives on without a name");
    }
}
