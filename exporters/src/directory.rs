//! The folder that holds a trace, and how files come into it.
//!
//! A file appears whole or not at all: it is written under a temporary, hidden name in the folder
//! where it belongs and renamed. Nothing is synced to the disk: a recorder that is killed loses
//! nothing that was renamed, a machine that loses power may lose what the kernel had not yet
//! written, and the reader copes with files that this leaves empty or short.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{fchown, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, manifest};

/// The user whom a trace belongs to: under `sudo` not the one who writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A trace directory that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    owner: Option<Owner>,
}

/// The sign that a directory is being written: the kernel takes the lock back when its holder
/// ends, however that happens.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held until dropped")] Option<File>);

/// Whether somebody holds the [`Lock`] of a directory.
pub(crate) fn is_being_written(path: &Path) -> bool {
    let Ok(directory) = File::open(path) else { return false };
    flock(&directory, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

impl Directory {
    /// Makes the directory, or takes one that is there and empty.
    pub(crate) fn create(path: &Path, owner: Option<Owner>) -> Result<Directory, Error> {
        let directory = Directory { path: path.to_owned(), owner };
        match fs::create_dir(path) {
            Ok(()) => directory.give_away(path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(path).map_err(Error::io("create", path))?;
                if entries.next().is_some() {
                    return Err(Error::NotEmpty { path: path.to_owned() });
                }
            }
            Err(error) => return Err(Error::io("create", path)(error)),
        }
        Ok(directory)
    }

    /// Removes the directory with its folders, where nothing was written.
    pub(crate) fn discard(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            // A folder that holds something stays, and so does what is not a folder.
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Makes the directory for several traces, or takes one that is there and no trace itself.
    /// Others may make it at the same time.
    pub(crate) fn create_around(path: &Path, owner: Option<Owner>) -> Result<(), Error> {
        match fs::create_dir(path) {
            Ok(()) => Directory { path: path.to_owned(), owner }.give_away(path),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("create", path)(error)),
            Err(_) if path.join(manifest::NAME).exists() => Err(Error::NotEmpty { path: path.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Shows that the directory is being written. Not every file system has locks: a recording does
    /// not fail for want of one.
    pub(crate) fn lock(&self) -> Lock {
        let locked = |directory: &File| flock(directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        Lock(File::open(&self.path).ok().filter(locked))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder in the directory.
    pub(crate) fn folder(&self, name: &str) -> Result<Directory, Error> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(Error::io("create", &path))?;
        self.give_away(&path)?;
        Ok(Directory { path, owner: self.owner })
    }

    /// Begins a file; it takes its name, and the place of an older file of that name, when
    /// committed.
    pub(crate) fn stage(&self, name: &str) -> Result<(File, Staged), Error> {
        let staged = Staged {
            temporary: self.path.join(format!(".{name}.tmp")),
            target: self.path.join(name),
            committed: false,
        };
        let file = File::create_new(&staged.temporary).map_err(Error::io("create", &staged.temporary))?;
        if let Some(owner) = self.owner {
            fchown(&file, Some(owner.uid), Some(owner.gid))
                .map_err(Error::io("change the owner of", &staged.temporary))?;
        }
        Ok((file, staged))
    }

    /// Writes a small file at once.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let (mut file, staged) = self.stage(name)?;
        file.write_all(content).map_err(Error::io("write", staged.target()))?;
        staged.commit()
    }

    fn give_away(&self, path: &Path) -> Result<(), Error> {
        match self.owner {
            Some(owner) => {
                lchown(path, Some(owner.uid), Some(owner.gid)).map_err(Error::io("change the owner of", path))
            }
            None => Ok(()),
        }
    }
}

/// A file under its temporary name; dropped without commit, it is removed.
#[derive(Debug)]
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl Staged {
    /// The name it will have.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn commit(mut self) -> Result<(), Error> {
        fs::rename(&self.temporary, &self.target).map_err(Error::io("write", &self.target))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.committed {
            // A leftover is harmless: readers do not look at hidden names.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn takes_an_empty_directory_and_refuses_a_full_one() {
        let parent = tempfile::tempdir().unwrap();
        Directory::create(parent.path(), None).unwrap();
        let error = Directory::create(&parent.path().join("a/b"), None).unwrap_err();
        assert!(error.to_string().ends_with("a/b`: No such file or directory (os error 2)"), "{error}");

        fs::write(parent.path().join("x"), "").unwrap();
        let error = Directory::create(parent.path(), None).unwrap_err();
        assert!(error.to_string().ends_with("the directory exists and is not empty"), "{error}");
        let error = Directory::create(&parent.path().join("x"), None).unwrap_err();
        assert!(error.to_string().ends_with("Not a directory (os error 20)"), "{error}");
    }

    #[test]
    fn a_directory_of_traces_is_shared_but_no_trace_itself() {
        let parent = tempfile::tempdir().unwrap();
        let around = parent.path().join("job");
        Directory::create_around(&around, None).unwrap();
        Directory::create_around(&around, None).unwrap();
        fs::write(around.join(manifest::NAME), "{}").unwrap();
        assert!(matches!(Directory::create_around(&around, None), Err(Error::NotEmpty { .. })));
        assert!(Directory::create_around(&parent.path().join("no/job"), None).is_err());
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::create(parent.path(), None).unwrap();
        directory.write("a", b"old").unwrap();

        let (mut file, staged) = directory.stage("a").unwrap();
        file.write_all(b"half").unwrap();
        drop(staged);
        assert_eq!(names(parent.path()), ["a"]);
        assert_eq!(fs::read(parent.path().join("a")).unwrap(), b"old");

        directory.write("a", b"new").unwrap();
        assert_eq!(fs::read(parent.path().join("a")).unwrap(), b"new");
    }

    #[test]
    fn files_and_folders_belong_to_the_owner() {
        use std::os::unix::fs::MetadataExt;

        let parent = tempfile::tempdir().unwrap();
        if fs::metadata(parent.path()).unwrap().uid() != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let path = parent.path().join("trace");
        let directory = Directory::create(&path, Some(Owner { uid: 12, gid: 34 })).unwrap();
        directory.folder("calls").unwrap().write("a", b"").unwrap();
        for path in [&path, &path.join("calls"), &path.join("calls/a")] {
            let metadata = fs::metadata(path).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
        }
    }
}
