//! A gate in front of every program that a command executes, so that its probes come first.
//!
//! The kernel asks for permission before a file is opened to be executed (`FAN_OPEN_EXEC_PERM` of
//! fanotify(7)), by mount. The command gets a mount namespace of its own, whose mounts nobody else uses:
//! nobody else is held up. Files of the dynamic linker pass the same gate. If rtrace goes away, the kernel
//! lets all pass.
//!
//! Not held are programs on file systems that may refuse their files even to root, on mounts that came
//! later, and in namespaces that the command makes; their first calls are missed, as those of any child.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::{io, mem, ptr};

use crate::target::files::open_path;
use crate::target::identity;

/// File systems that decide by themselves who may read a file: one that rtrace cannot open could not be
/// executed any more.
const REFUSING: [&str; 5] = ["fuse", "nfs", "cifs", "smb", "9p"];

/// So many programs are looked at together, at most: each takes a descriptor while it waits.
const MOST_TOGETHER: usize = 8;

/// The gate of a command and of what it executes.
pub struct Gate(File);

/// A program that waits to be executed; it goes on when this is dropped.
pub struct Execution<'a> {
    gate: &'a File,
    file: OwnedFd,
    /// The process that is to execute it.
    pub pid: u32,
}

impl Gate {
    /// The gate of a process in a mount namespace of its own.
    ///
    /// # Errors
    /// The process shares our namespace, or the kernel does not let us hold anybody.
    pub fn of(pid: u32) -> io::Result<Gate> {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt"));
        if namespace("self")? == namespace(&pid.to_string())? {
            return Err(io::Error::other("it has no mount namespace of its own"));
        }
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: makes a descriptor from flags alone.
        let group = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u32) };
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let gate = Gate(unsafe { File::from_raw_fd(group) });
        let mounts = fs::read(format!("/proc/{pid}/mountinfo"))?;
        for mount in mount_points(&mounts) {
            // One that cannot be watched, such as those of the kernel's own file systems, has no programs.
            let mut path = format!("/proc/{pid}/root").into_bytes();
            path.extend(mount);
            path.push(0);
            // SAFETY: the path ends in null and lives through the call.
            unsafe {
                libc::fanotify_mark(
                    group,
                    libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT,
                    libc::FAN_OPEN_EXEC_PERM,
                    libc::AT_FDCWD,
                    path.as_ptr().cast(),
                )
            };
        }
        Ok(gate)
    }

    /// Programs that wait now; the others are still there when these have gone on.
    pub fn waiting(&self) -> Vec<Execution<'_>> {
        let mut waiting = Vec::new();
        // There is room for one.
        let mut event = [0; mem::size_of::<libc::fanotify_event_metadata>()];
        // The kernel refuses a program for which there is no descriptor: while there is none, it waits. Reading fails
        // where none waits.
        while waiting.len() < MOST_TOGETHER
            && self.0.try_clone().is_ok()
            && (&self.0).read(&mut event).is_ok_and(|length| length == event.len())
        {
            // SAFETY: the kernel has written an event, which is a plain structure; aligned or not.
            let event: libc::fanotify_event_metadata = unsafe { ptr::read_unaligned(event.as_ptr().cast()) };
            if event.fd >= 0 {
                // SAFETY: the kernel has opened the descriptor for us.
                let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
                waiting.push(Execution { gate: &self.0, file, pid: event.pid.cast_unsigned() });
            }
        }
        waiting
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Execution<'_> {
    /// A path to the program: as its process sees it, if that leads there from here.
    pub fn path(&self) -> PathBuf {
        let open = open_path(&self.file);
        let is_it = |path: &PathBuf| identity(path).is_ok_and(|of_path| identity(&open).is_ok_and(|id| id == of_path));
        let here = fs::read_link(&open).unwrap_or_default();
        let in_its_root = PathBuf::from(format!("/proc/{}/root{}", self.pid, here.display()));
        [here, in_its_root].into_iter().find(is_it).unwrap_or(open)
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        let response = libc::fanotify_response { fd: self.file.as_raw_fd(), response: libc::FAN_ALLOW };
        // A process that was killed meanwhile waits no more.
        // SAFETY: writes so many bytes of a plain structure.
        unsafe {
            libc::write(self.gate.as_raw_fd(), ptr::from_ref(&response).cast(), mem::size_of_val(&response));
        }
    }
}

/// Where the mounts are whose programs are held, of proc_pid_mountinfo(5).
fn mount_points(mounts: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    mounts.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = line.split(|&byte| byte == b' ');
        let point = words.nth(4)?;
        let kind = words.skip_while(|word| *word != b"-").nth(1)?;
        let refuses = REFUSING.iter().any(|refusing| kind.starts_with(refusing.as_bytes()));
        (!refuses).then(|| unescaped(point))
    })
}

/// Blanks and the like are written as a backslash with three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let octal = (*first == b'\\').then(|| behind.get(..3)).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        if code.is_some() {
            rest = &behind[3..];
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_those_whose_files_anybody_can_open() {
        let mounts = b"22 27 0:21 / /proc rw - proc proc rw\n\
            27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
            40 27 0:60 / /home/a\\040b\\134c rw - ext4 /dev/vdb rw\n\
            41 27 0:61 / /home/far rw - nfs4 host:/ rw\n\
            42 27 0:62 / /home/own rw - fuse.sshfs host rw\nbroken line\n";
        let points: Vec<_> = mount_points(mounts).collect();
        assert_eq!(points, [&b"/proc"[..], b"/", b"/home/a b\\c"]);
    }
}
