//! Opening files so that their file systems can be unmounted: the one way in which files of traced programs are opened.
//!
//! An open file, and a link with probes in it, keeps the mount busy by which it was opened: a program that unmounts what it
//! has mounted would be refused that. So a file is opened by a mount of its own, a copy that is in no namespace. Nobody
//! sees it, and it goes with the last that uses it. Until then the file system itself is in use: one on a device would not be
//! written out when it is unmounted. So this is done only where nothing is to be written, or the root file system stays
//! anyway; the others stay busy, of which the program learns.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::thread;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, fstat, fstatfs, statx};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// File systems in memory, upon others, and that are only read: tmpfs, ramfs, overlay, squashfs, erofs.
const WITHOUT_DEVICE: [i64; 5] = [0x0102_1994, 0x8584_58f6, 0x794c_7630, 0x7371_7368, 0xe0f5_e1e2];

/// Opens a file, but no pipe or device, which could keep us waiting for ever, or do something because it is opened. Where
/// there can be no mount of its own, it keeps its mount busy.
///
/// # Errors
/// What the system says, or [`io::ErrorKind::InvalidInput`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    if let Some(tree) = apart(path)
        && let Ok(file) = open_place(&tree)
    {
        return Ok(file);
    }
    open_place(&open_with(path, OFlags::PATH)?)
}

/// The file that is in this place, if it is a regular one.
fn open_place(place: &impl AsFd) -> io::Result<File> {
    let place = place.as_fd();
    if FileType::from_raw_mode(fstat(place)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // A lease on the file could keep us waiting, too.
    open_with(&open_path(&place), OFlags::NONBLOCK)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// What a path leads to, by a mount that is in no namespace; none where that has no use or cannot be.
fn apart(path: &Path) -> Option<OwnedFd> {
    // Nobody unmounts that.
    let root = root_of_process(path).unwrap_or_else(|| PathBuf::from("/"));
    let mount = mount_of(path)?;
    if Some(mount) == mount_of(&root) {
        return None;
    }
    // Before the file is open: to keep the mount busy for a moment is enough to refuse who unmounts it then.
    let tree = copy_mount(path).or_else(|_| in_namespace(path, || copy_mount(path))).ok()?;
    is_left_alone(&tree).unwrap_or(false).then_some(tree)
}

/// Whether nothing has to be written when the mount goes.
fn is_left_alone(tree: &OwnedFd) -> io::Result<bool> {
    let kind = fstatfs(tree)?.f_type;
    let is_of_root = || Ok::<bool, io::Error>(fstat(tree)?.st_dev == fs::metadata("/")?.dev());
    Ok(WITHOUT_DEVICE.contains(&kind) || is_of_root()?)
}

fn copy_mount(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(CWD, path, flags)?)
}

fn mount_of(path: &Path) -> Option<u64> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// The folder of the process by which a path leads.
fn process_of(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let is_process = parts.next() == Some(Component::RootDir)
        && parts.next() == Some(Component::Normal(OsStr::new("proc")))
        && matches!(parts.next(), Some(Component::Normal(pid)) if pid.to_str()?.parse::<u32>().is_ok());
    is_process.then(|| path.iter().take(3).collect())
}

fn root_of_process(path: &Path) -> Option<PathBuf> {
    Some(process_of(path)?.join("root"))
}

/// Does something in the mount namespace of the process by which a path leads: only there can its mounts be copied.
fn in_namespace<T: Send>(path: &Path, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let process = process_of(path).ok_or(io::ErrorKind::NotFound)?;
    let namespace = File::open(process.join("ns/mnt"))?;
    let enter = || {
        // SAFETY: the thread shares its root and its working directory with nobody then, and ends soon.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        act()
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// A path that leads to an open file, whatever becomes of its name.
pub fn open_path(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

    use super::*;

    /// What is open does not keep a file system in memory from being unmounted; opened as others do, it does.
    #[test]
    fn an_open_file_leaves_its_mount_free() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_owned();
        let unmounts = move || -> Option<[bool; 2]> {
            // SAFETY: the thread is the only one with this namespace, and ends soon.
            unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.ok()?;
            mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).ok()?;
            mount("none", &place, "tmpfs", MountFlags::empty(), None).ok()?;
            let path = place.join("file");
            fs::write(&path, "content").unwrap();
            let usual = File::open(&path).unwrap();
            let is_busy = unmount(&place, UnmountFlags::empty()) == Err(rustix::io::Errno::BUSY);
            drop(usual);
            let open = open_regular(&path).unwrap();
            let is_free = unmount(&place, UnmountFlags::empty()).is_ok();
            let content = io::read_to_string(open).unwrap();
            Some([is_busy, is_free && content == "content"])
        };
        match thread::spawn(unmounts).join().unwrap() {
            Some(unmounts) => assert_eq!(unmounts, [true, true]),
            None => eprintln!("skipped: needs the right to mount"),
        }
    }

    #[test]
    fn paths_by_processes_are_known() {
        let process = |path: &str| process_of(Path::new(path)).map(|path| path.display().to_string());
        assert_eq!(process("/proc/12/root/tmp/x"), Some("/proc/12".to_owned()));
        assert_eq!(process("/proc/12/map_files/1000-2000"), Some("/proc/12".to_owned()));
        for other in ["/proc/self/fd/7", "/tmp/proc/12", "proc/12", "/"] {
            assert_eq!(process(other), None, "{other}");
        }
    }
}
