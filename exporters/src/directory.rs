//! The folder that holds a trace, and how files come into it.
//!
//! A file appears whole or not at all: it is written under a temporary, hidden name in the folder
//! where it belongs and renamed. Nothing is synced to the disk: a recorder that is killed loses
//! nothing that was renamed, a machine that loses power may lose what the kernel had not yet
//! written, and the reader copes with files that this leaves empty or short.
//!
//! The writer may be root while the folder belongs to another user, who can move it away and put a link in its place.
//! So the folder is used through the descriptor with which it was opened, never by its path, and links are not followed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::fs::{fchown, flock, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::Error;

/// Name of the file that makes a directory a trace.
pub(crate) const MANIFEST: &str = "trace.json";

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
    /// For messages.
    path: PathBuf,
    handle: Arc<OwnedFd>,
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

/// Opens a file of a trace to read it. A trace may come from anybody, and a pipe or a device in the place of a file
/// would keep its reader waiting for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let file = File::from(openat(CWD, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

impl Directory {
    /// Makes the directory, which its owner alone may read, or takes one that is there and empty.
    pub(crate) fn create(path: &Path, owner: Option<Owner>) -> Result<Directory, Error> {
        let directory = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => Directory::made(CWD, path, path.to_owned(), owner)?,
            Err(Errno::EXIST) => Directory::open(CWD, path, path.to_owned(), owner)?,
            Err(error) => return Err(Error::io("create", path)(error.into())),
        };
        if directory.names().map_err(Error::io("create", path))?.next().is_some() {
            return Err(Error::NotEmpty { path: path.to_owned() });
        }
        Ok(directory)
    }

    /// Opens a directory that was just made, and gives it away.
    fn made(at: impl AsFd, name: &Path, path: PathBuf, owner: Option<Owner>) -> Result<Directory, Error> {
        let directory = Directory::open(at, name, path, owner)?;
        give_away(&directory.handle, owner).map_err(Error::io("change the owner of", &directory.path))?;
        Ok(directory)
    }

    /// Opens a directory that is ours or its owner's.
    fn open(at: impl AsFd, name: &Path, path: PathBuf, owner: Option<Owner>) -> Result<Directory, Error> {
        let open = || -> io::Result<OwnedFd> {
            let handle = openat(at, name, DIRECTORY, Mode::empty())?;
            let holder = fstat(&handle)?.st_uid;
            if holder != geteuid().as_raw() && owner.is_none_or(|owner| holder != owner.uid) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
            }
            Ok(handle)
        };
        let handle = Arc::new(open().map_err(Error::io("create", &path))?);
        Ok(Directory { path, handle, owner })
    }

    /// The names in the directory.
    fn names(&self) -> io::Result<impl Iterator<Item = std::ffi::CString> + use<>> {
        let entries = Dir::read_from(&self.handle)?.filter_map(Result::ok);
        let names = entries.map(|entry| entry.file_name().to_owned());
        Ok(names.filter(|name| ![c".", c".."].contains(&name.as_c_str())))
    }

    /// Removes the directory with its folders, where nothing was written.
    pub(crate) fn discard(&self) {
        for name in self.names().into_iter().flatten() {
            // A folder that holds something stays, and so does what is not a folder.
            let _ = unlinkat(&self.handle, name, AtFlags::REMOVEDIR);
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Makes the directory for several traces, or takes one that is there and no trace itself.
    /// Others may make it at the same time.
    pub(crate) fn create_around(path: &Path, owner: Option<Owner>) -> Result<(), Error> {
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => Directory::made(CWD, path, path.to_owned(), owner).map(drop),
            Err(error) if error != Errno::EXIST => Err(Error::io("create", path)(error.into())),
            Err(_) if path.join(MANIFEST).exists() => Err(Error::NotEmpty { path: path.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Shows that the directory is being written. Not every file system has locks: a recording does
    /// not fail because it has none.
    pub(crate) fn lock(&self) -> Lock {
        // Opened once more: a lock goes with the last descriptor of an opening.
        let opened = openat(&self.handle, c".", DIRECTORY, Mode::empty()).ok().map(File::from);
        Lock(opened.filter(|directory| flock(directory, FlockOperation::NonBlockingLockExclusive).is_ok()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder in the directory.
    pub(crate) fn folder(&self, name: &str) -> Result<Directory, Error> {
        let path = self.path.join(name);
        mkdirat(&self.handle, name, Mode::RWXU).map_err(|error| Error::io("create", &path)(error.into()))?;
        Directory::made(self.handle.as_fd(), Path::new(name), path, self.owner)
    }

    /// A folder in the directory that was made before.
    pub(crate) fn existing_folder(&self, name: &str) -> Result<Directory, Error> {
        Directory::open(self.handle.as_fd(), Path::new(name), self.path.join(name), self.owner)
    }

    /// Begins a file; it takes its name, and the place of an older file of that name, when
    /// committed.
    pub(crate) fn stage(&self, name: &str) -> Result<(File, Staged), Error> {
        let staged = Staged {
            folder: Arc::clone(&self.handle),
            temporary: format!(".{name}.tmp"),
            name: name.to_owned(),
            target: self.path.join(name),
            committed: false,
        };
        let create = || -> io::Result<File> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&self.handle, &staged.temporary, flags, Mode::from_raw_mode(0o666))?;
            give_away(&file, self.owner)?;
            Ok(file.into())
        };
        let file = create().map_err(Error::io("create", &staged.target))?;
        Ok((file, staged))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.handle, name, AtFlags::empty());
    }

    /// Writes a small file at once.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let (mut file, staged) = self.stage(name)?;
        file.write_all(content).map_err(Error::io("write", staged.target()))?;
        staged.commit()
    }
}

/// How directories are opened: not through a link.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn give_away(file: impl AsFd, owner: Option<Owner>) -> io::Result<()> {
    if let Some(Owner { uid, gid }) = owner {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// A file under its temporary name; dropped without commit, it is removed.
#[derive(Debug)]
pub(crate) struct Staged {
    folder: Arc<OwnedFd>,
    temporary: String,
    name: String,
    /// For messages.
    target: PathBuf,
    committed: bool,
}

impl Staged {
    /// The name it will have.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn commit(mut self) -> Result<(), Error> {
        renameat(&self.folder, &self.temporary, &self.folder, &self.name)
            .map_err(|error| Error::io("write", &self.target)(error.into()))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.committed {
            // A leftover is harmless: readers do not look at hidden names.
            let _ = unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::MetadataExt as _;

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
        fs::write(around.join(MANIFEST), "{}").unwrap();
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

    #[test]
    fn what_comes_into_the_place_of_a_directory_gets_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (parent.path().join("trace"), parent.path().join("elsewhere"));
        fs::create_dir_all(elsewhere.join("calls")).unwrap();
        let directory = Directory::create(&path, None).unwrap();
        let calls = directory.folder("calls").unwrap();
        fs::rename(path.join("calls"), parent.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("calls"), path.join("calls")).unwrap();
        calls.write("a", b"").unwrap();
        assert_eq!((names(&elsewhere.join("calls")).len(), names(&parent.path().join("moved"))), (0, vec!["a".into()]));
    }

    #[test]
    fn only_its_owner_reads_a_directory_and_no_link_leads_to_it() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let parent = tempfile::tempdir().unwrap();
        let (path, empty, link) =
            (parent.path().join("trace"), parent.path().join("empty"), parent.path().join("link"));
        Directory::create(&path, None).unwrap().folder("calls").unwrap();
        for path in [&path, &path.join("calls")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::create_dir(&empty).unwrap();
        symlink(&empty, &link).unwrap();
        assert!(Directory::create(&link, None).is_err());
        if fs::metadata(parent.path()).unwrap().uid() == 0 {
            std::os::unix::fs::lchown(&empty, Some(12), Some(34)).unwrap();
            let error = Directory::create(&empty, None).unwrap_err();
            assert!(error.to_string().ends_with("it belongs to another user"), "{error}");
            Directory::create(&empty, Some(Owner { uid: 12, gid: 34 })).unwrap();
            // One that was there stays whose it is.
            std::os::unix::fs::lchown(&empty, Some(0), Some(0)).unwrap();
            Directory::create(&empty, Some(Owner { uid: 12, gid: 34 })).unwrap();
            assert_eq!(fs::metadata(&empty).unwrap().uid(), 0);
        }
    }
}
