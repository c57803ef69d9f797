//! A command that waits in front of its first instruction until probes are in.
//!
//! The child process exists before it executes the command, so that the kernel side knows it when
//! it does; it then waits on a pipe. If rtrace goes away meanwhile, the pipe closes and the child
//! ends without having run anything.

use std::ffi::{CString, OsString, c_char};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::target::user::User;

/// What a command inherits.
pub struct Inherited<'a> {
    /// Its environment, in this order.
    pub environment: Vec<CString>,
    /// A descriptor that it inherits, though it is closed on exec.
    pub descriptor: BorrowedFd<'a>,
}

/// A child process that waits for [`release`](Waiting::release).
pub struct Waiting {
    pid: u32,
    go: PipeWriter,
    spawning: JoinHandle<io::Result<Child>>,
}

impl Waiting {
    /// Makes the child process, which executes the command with what is `inherited`, by default with what
    /// we have, as this user or as us, and in a mount namespace of its own if it is to have one and the system allows
    /// it.
    ///
    /// # Errors
    /// The system refuses a process or a pipe.
    pub fn spawn(
        words: &[OsString],
        inherited: Option<Inherited<'_>>,
        own_mounts: bool,
        user: Option<&User>,
    ) -> io::Result<Waiting> {
        let (mut tell, told) = pipe()?;
        let (wait, go) = pipe()?;
        let mut command = Command::new(words.first().map(OsString::as_os_str).unwrap_or_default());
        command.args(words.iter().skip(1));
        hold_before_exec(&mut command, told, wait, go.as_raw_fd(), own_mounts);
        if let Some(user) = user {
            user.run(&mut command);
        }
        if let Some(inherited) = inherited {
            let environment = match user {
                Some(user) => user.adapt(inherited.environment),
                None => inherited.environment,
            };
            execute_with(&mut command, words, Inherited { environment, ..inherited })?;
        }
        // `Command::spawn` returns only once the command is executed.
        let spawning = std::thread::spawn(move || command.spawn());
        let mut pid = [0; 4];
        match tell.read_exact(&mut pid) {
            Ok(()) => Ok(Waiting { pid: u32::from_ne_bytes(pid), go, spawning }),
            Err(error) => Err(join(spawning).err().unwrap_or(error)),
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute the command.
    ///
    /// # Errors
    /// The command cannot be executed.
    pub fn release(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        join(self.spawning)
    }
}

fn join(spawning: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn hold_before_exec(
    command: &mut Command,
    mut told: PipeWriter,
    mut wait: PipeReader,
    other_end: i32,
    own_mounts: bool,
) {
    let parent = std::process::id().cast_signed();
    let hold = move || {
        // The child's copy of the other end would keep its own read from ending.
        // SAFETY: closes a descriptor that nothing in the child uses.
        unsafe { libc::close(other_end) };
        if own_mounts {
            // SAFETY: changes what this process alone sees of mounts; what is shared stays shared.
            unsafe { libc::unshare(libc::CLONE_NEWNS) };
        }
        told.write_all(&std::process::id().to_ne_bytes())?;
        let mut go = [0];
        wait.read_exact(&mut go).inspect_err(|_| {
            // SAFETY: both take no pointers. The standard library would abort, as nobody is left to tell of the error.
            unsafe {
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
            }
        })
    };
    // SAFETY: between fork and exec the closure only makes system calls on descriptors it owns.
    unsafe { command.pre_exec(hold) };
}

/// Executes the command itself, since `Command` would sort the variables by name.
fn execute_with(command: &mut Command, words: &[OsString], inherited: Inherited<'_>) -> io::Result<()> {
    let words: Vec<CString> = words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let (words, environment) = (Strings::of(words), Strings::of(inherited.environment));
    let descriptor = inherited.descriptor.as_raw_fd();
    let execute = move || {
        let words = words.pointers();
        // SAFETY: changes the child's descriptor alone; both lists end in null and hold strings that
        // live as long as the closure.
        unsafe {
            if libc::fcntl(descriptor, libc::F_SETFD, 0) == 0 {
                libc::execvpe(*words, words, environment.pointers());
            }
        }
        Err(io::Error::last_os_error())
    };
    // SAFETY: between fork and exec the closure makes system calls on memory that is ready.
    unsafe { command.pre_exec(execute) };
    Ok(())
}

/// A list of strings as the system takes it.
struct Strings {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

// SAFETY: the pointers lead to strings that go with them.
unsafe impl Send for Strings {}
// SAFETY: as above, and nothing changes them.
unsafe impl Sync for Strings {}

impl Strings {
    fn of(strings: Vec<CString>) -> Strings {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect();
        Strings { pointers, _strings: strings }
    }

    fn pointers(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// What a process and those of its children took for which it has waited, as the kernel counts it.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTotals {
    /// How it ended.
    pub status: ExitStatus,
    /// CPU time in user space.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The most memory that one of the processes had resident at a time, in KiB.
    pub peak_kib: u64,
    /// Page faults that needed no storage.
    pub minor_faults: u64,
    /// Page faults for which storage was read.
    pub major_faults: u64,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches though it could have gone on.
    pub involuntary: u64,
    /// Bytes that it read and wrote; none where we may not look.
    pub io: Option<IoBytes>,
}

/// Bytes as `/proc/PID/io` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoBytes {
    /// By system calls.
    pub read: u64,
    /// By system calls.
    pub written: u64,
    /// From storage.
    pub from_storage: u64,
    /// To storage, as far as it was caused here.
    pub to_storage: u64,
}

impl IoBytes {
    fn parse(text: &str) -> Option<IoBytes> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line?.trim().parse().ok()
        };
        Some(IoBytes {
            read: field("rchar")?,
            written: field("wchar")?,
            from_storage: field("read_bytes")?,
            to_storage: field("write_bytes")?,
        })
    }
}

/// Waits for a child to end.
///
/// # Errors
/// Somebody else has waited for it.
pub fn wait_with_totals(child: Child) -> io::Result<ProcessTotals> {
    let pid = Pid::from_child(&child);
    // It is there until somebody waits for it, and so is what it read and wrote. Who waits for its status would also be told
    // when another thread of rtrace stops it.
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let ended = || poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
    while ended().is_err_and(|error| error == Errno::INTR) {}
    let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).ok();
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both outlive the call, and the kernel writes no more than them.
    while unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, usage.as_mut_ptr()) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: it was all zero, which is a value of it, before the kernel wrote to it.
    let usage = unsafe { usage.assume_init() };
    let number = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let time =
        |time: libc::timeval| Duration::from_secs(number(time.tv_sec)) + Duration::from_micros(number(time.tv_usec));
    Ok(ProcessTotals {
        status: ExitStatus::from_raw(status),
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        peak_kib: number(usage.ru_maxrss),
        minor_faults: number(usage.ru_minflt),
        major_faults: number(usage.ru_majflt),
        voluntary: number(usage.ru_nvcsw),
        involuntary: number(usage.ru_nivcsw),
        io: io.as_deref().and_then(IoBytes::parse),
    })
}

/// The status of a command in the form that shells use: its exit code, or 128 + signal.
pub fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::fd::AsFd as _;

    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn nothing_runs_before_the_release() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ran");
        let waiting = Waiting::spawn(&words(&["touch", file.to_str().unwrap()]), None, false, None).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!file.exists());
        let pid = waiting.pid();
        let mut child = waiting.release().unwrap();
        assert_eq!(child.id(), pid);
        assert_eq!(shell_status(child.wait().unwrap()), 0);
        assert!(file.exists());
    }

    #[test]
    fn a_child_that_is_never_released_runs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ran");
        let Waiting { go, spawning, .. } =
            Waiting::spawn(&words(&["touch", file.to_str().unwrap()]), None, false, None).unwrap();
        drop(go);
        assert!(join(spawning).is_err());
        assert!(!file.exists());
    }

    #[test]
    fn statuses_are_those_of_shells() {
        let status = |script: &str| {
            let mut child =
                Waiting::spawn(&words(&["sh", "-c", script]), None, false, None).unwrap().release().unwrap();
            shell_status(child.wait().unwrap())
        };
        assert_eq!(status("exit 3"), 3);
        assert_eq!(status("kill -9 $$"), 137);
    }

    #[test]
    fn a_command_that_does_not_exist_is_an_error() {
        let waiting = Waiting::spawn(&words(&["/no/such/command"]), None, false, None).unwrap();
        assert_eq!(waiting.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        let (reader, _writer) = pipe().unwrap();
        let inherited = Inherited { environment: Vec::new(), descriptor: reader.as_fd() };
        let waiting = Waiting::spawn(&words(&["/no/such/command"]), Some(inherited), false, None).unwrap();
        assert_eq!(waiting.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_environment_and_a_descriptor_are_given_to_the_command_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("environment");
        let script = format!("tr '\\0' ' ' </proc/self/environ >{}", file.display());
        let environment = vec![c"B=2".to_owned(), c"PATH=/usr/bin:/bin".to_owned(), c"A=1".to_owned()];
        let descriptor = std::fs::File::open("/").unwrap();
        let script = format!("{script}; readlink /proc/self/fd/{} >>{}", descriptor.as_raw_fd(), file.display());
        let inherited = Inherited { environment, descriptor: descriptor.as_fd() };
        let waiting = Waiting::spawn(&words(&["sh", "-c", &script]), Some(inherited), false, None).unwrap();
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(waiting.release().unwrap().wait().unwrap().success());
        let told = std::fs::read_to_string(file).unwrap();
        assert!(told.starts_with("B=2 PATH=/usr/bin:/bin A=1") && told.ends_with("/\n"), "{told}");
    }
}
