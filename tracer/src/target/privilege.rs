//! What the caller may do: capabilities, other people's processes, and who asked under sudo.
//!
//! Keeps the rule that rtrace traces nothing that its caller could not ptrace, although the kernel
//! would let its probes in.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rtrace_bpf::Observer;
use rtrace_exporters::Owner;
use rtrace_model::{escape, text_of, words};

use crate::target::proc_files::ProcessStatus;

words! {
    /// A right that the kernel gives a process, of those that matter here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Capability {
        /// Load BPF programs.
        Bpf = "CAP_BPF",
        /// Let them observe, and place uprobes.
        Perfmon = "CAP_PERFMON",
        /// Trace processes of other users.
        SysPtrace = "CAP_SYS_PTRACE",
        /// Open the mapped files of containers, and deleted ones, through `/proc/PID/map_files`.
        CheckpointRestore = "CAP_CHECKPOINT_RESTORE",
        /// Stands for all others save [`SysPtrace`](Capability::SysPtrace).
        SysAdmin = "CAP_SYS_ADMIN",
    }
}

impl Capability {
    const fn bit(self) -> u32 {
        match self {
            Capability::SysPtrace => 19,
            Capability::SysAdmin => 21,
            Capability::Perfmon => 38,
            Capability::Bpf => 39,
            Capability::CheckpointRestore => 40,
        }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// What this process may do now.
    pub fn effective() -> Result<Capabilities, Error> {
        Capabilities::of_own("CapEff")
    }

    fn of_own(set: &str) -> Result<Capabilities, Error> {
        let status = ProcessStatus::of_own().map_err(Error::Status)?;
        let hexadecimal = status.field(set).unwrap_or_default();
        let bits = u64::from_str_radix(&hexadecimal, 16)
            .map_err(|error| Error::Status(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Ok(Capabilities(bits))
    }

    /// Whether the capability is given, be it by one that stands for it.
    pub fn allow(self, capability: Capability) -> bool {
        self.contains(capability) || (capability != Capability::SysPtrace && self.contains(Capability::SysAdmin))
    }

    /// What is missing without which nothing can be traced.
    pub fn missing_for_tracing(self) -> Vec<Capability> {
        [Capability::Bpf, Capability::Perfmon].into_iter().filter(|&capability| !self.allow(capability)).collect()
    }

    fn contains(self, capability: Capability) -> bool {
        self.0 & (1 << capability.bit()) != 0
    }
}

/// Who records, unless he may ptrace every process: `None`.
///
/// # Errors
/// The own capabilities cannot be read.
pub fn observer() -> Result<Option<Observer>, Error> {
    if Capabilities::effective()?.allow(Capability::SysPtrace) {
        return Ok(None);
    }
    let Capabilities(capabilities) = Capabilities::of_own("CapPrm")?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Ok(Some(Observer { user, group, capabilities }))
}

/// Refuses, with the remedy, where this process may not trace at all.
pub fn check_capabilities() -> Result<(), Error> {
    let missing = Capabilities::effective()?.missing_for_tracing();
    if missing.is_empty() { Ok(()) } else { Err(Error::Missing(missing)) }
}

/// Refuses to run where `/proc` and system calls mean different processes by one number, and where nobody tells what our
/// time namespace adds to our clock.
pub fn check_namespace() -> Result<(), Error> {
    let own = std::fs::read_link("/proc/self").ok();
    if own.is_some_and(|own| own.to_str() != Some(&std::process::id().to_string())) {
        return Err(Error::Namespace);
    }
    let namespace = |of: &str| std::fs::read_link(format!("/proc/self/ns/{of}")).ok();
    // The offsets that can be read are those of the children's namespace. Since Linux 6.1, to execute a program is to
    // enter that.
    if namespace("time") != namespace("time_for_children") {
        return Err(Error::TimeNamespace);
    }
    Ok(())
}

/// Refuses what is not a process with memory of its own, and what the caller could not ptrace.
///
/// The kernel itself is asked, so that its security modules and namespaces count too.
pub fn check_process(pid: u32) -> Result<(), Error> {
    let status = match ProcessStatus::of(pid) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NoProcess(pid)),
        Err(cause) => return Err(Error::Process { pid, cause }),
    };
    if let Some(process) = status.number("Tgid").filter(|&tgid| tgid != pid) {
        return Err(Error::Thread { tid: pid, process });
    }
    let name = || status.field("Name").map_or_else(|| "?".to_owned(), Cow::into_owned);
    let Err(cause) = peek(pid) else { return Ok(()) };
    match cause.raw_os_error() {
        Some(libc::EFAULT) => Ok(()),
        Some(libc::ESRCH) if has_more_threads(pid) => Err(Error::FirstThread { pid, name: name() }),
        Some(libc::ESRCH) => Err(Error::NoMemory { pid, name: name() }),
        Some(libc::EPERM | libc::EACCES) => {
            let users = status.field("Uid").unwrap_or_default();
            let owner = users.split_whitespace().next().unwrap_or("?").to_owned();
            Err(Error::Denied { pid, name: name(), owner })
        }
        _ => Err(Error::Process { pid, cause }),
    }
}

/// Whether a process has ended, or cannot be traced any more. One whose first thread alone has ended goes on, with the
/// probes that it has.
pub fn has_ended(pid: u32) -> bool {
    !matches!(check_process(pid), Ok(()) | Err(Error::FirstThread { .. }))
}

fn has_more_threads(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

/// Tries to read a byte at address 0, which the kernel checks as it checks ptrace's attach before
/// it looks for the byte: `EFAULT` means that it would be allowed.
fn peek(pid: u32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
    // SAFETY: the local vector names one byte that outlives the call; the remote one is only read
    // by the kernel, in the other process.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a seccomp filter decides which system calls this process may make, as in containers.
pub fn is_filtered() -> bool {
    const BY_FILTER: u32 = 2;
    ProcessStatus::of_own().is_ok_and(|status| status.number("Seccomp") == Some(BY_FILTER))
}

/// Who called sudo, where this process is root by sudo.
pub fn invoker() -> Option<Owner> {
    let id = |variable| std::env::var(variable).ok()?.parse().ok();
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(Owner { uid: id("SUDO_UID")?, gid: id("SUDO_GID")? })
}

/// Why tracing is not allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The own capabilities cannot be read.
    #[error("failed to read `/proc/self/status`: {0}")]
    Status(#[source] io::Error),
    /// Capabilities are missing without which nothing can be traced.
    #[error("failed to trace: missing {}", list(.0))]
    Missing(Vec<Capability>),
    /// `/proc` is that of another process-id namespace than ours.
    #[error("failed to trace: /proc is that of another process-id namespace")]
    Namespace,
    /// Our children would be in another time namespace than we are.
    #[error("failed to trace: rtrace's children are in another time namespace than rtrace, whose clock is not known")]
    TimeNamespace,
    /// There is no such process.
    #[error("failed to trace process {0}: no such process")]
    NoProcess(u32),
    /// The id is that of a thread.
    #[error("failed to trace process {tid}: it is a thread of process {process}")]
    Thread {
        /// The id given.
        tid: u32,
        /// The thread's process.
        process: u32,
    },
    /// A kernel thread, or a process that has ended and waits to be reaped.
    #[error("failed to trace process {pid} (`{}`): it is a kernel thread or has ended", escape(.name))]
    NoMemory {
        /// Process id.
        pid: u32,
        /// Its name, not escaped.
        name: String,
    },
    /// Its first thread has ended, others go on. The kernel, which asks the first one for its memory, accepts links for
    /// such a process, but writes no breakpoint (seen on 6.18).
    #[error(
        "failed to trace process {pid} (`{}`): its first thread has ended, and the kernel places no probes in such a process",
        escape(.name)
    )]
    FirstThread {
        /// Process id.
        pid: u32,
        /// Its name, not escaped.
        name: String,
    },
    /// The caller could not ptrace it.
    #[error("failed to trace process {pid} (`{}` of user {owner}): permission denied", escape(.name))]
    Denied {
        /// Process id.
        pid: u32,
        /// Its name, not escaped.
        name: String,
        /// Its real user id.
        owner: String,
    },
    /// The kernel would not say.
    #[error("failed to trace process {pid}: {cause}")]
    Process {
        /// Process id.
        pid: u32,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Missing(_) | Error::Denied { .. } => Some(become_able()),
            Error::Namespace => Some("mount the namespace's own: mount -t proc proc /proc".to_owned()),
            Error::TimeNamespace => Some("start it as a child of `unshare`: unshare --time --fork rtrace …".to_owned()),
            Error::Thread { process, .. } => {
                Some(format!("name the process, whose threads are all traced: -p {process}"))
            }
            Error::FirstThread { .. } => Some(
                "probes that are there before stay: let rtrace start the program, rtrace run … -- COMMAND".to_owned(),
            ),
            Error::Status(_) | Error::NoProcess(_) | Error::NoMemory { .. } | Error::Process { .. } => None,
        }
    }
}

/// The process that debugs this one, if one does.
pub fn debugger_of(pid: u32) -> Option<u32> {
    ProcessStatus::of(pid).ok()?.number("TracerPid").filter(|&tracer| tracer != 0)
}

/// Whether the program of a process handles the signal of a breakpoint: it may set some for itself.
pub fn handles_breakpoints(pid: u32) -> bool {
    let caught = |status: ProcessStatus| u64::from_str_radix(&status.field("SigCgt")?, 16).ok();
    ProcessStatus::of(pid).ok().and_then(caught).is_some_and(|caught| caught >> (libc::SIGTRAP - 1) & 1 != 0)
}

/// How to come by the capabilities that are missing.
pub fn become_able() -> String {
    if rustix::process::geteuid().is_root() {
        return "this root is confined; in a container, start it with \
                --cap-add=BPF --cap-add=PERFMON --cap-add=SYS_PTRACE --cap-add=CHECKPOINT_RESTORE"
            .to_owned();
    }
    let executable = std::env::current_exe().map_or_else(|_| "rtrace".into(), OsString::from);
    let words: Vec<String> =
        std::iter::once(executable).chain(std::env::args_os().skip(1)).map(|word| shell_quote(&word)).collect();
    format!("run it as root: sudo {}", words.join(" "))
}

/// How rtrace gets the capabilities that are missing for good: its file, where not everybody may execute that.
pub fn enable() -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let executable = std::env::current_exe().unwrap_or_default();
    let is_for_some = std::fs::metadata(&executable).is_ok_and(|file| file.permissions().mode() & 0o001 == 0);
    if rustix::process::geteuid().is_root() || !is_for_some {
        return become_able();
    }
    format!("sudo setcap cap_bpf,cap_perfmon,cap_checkpoint_restore=ep {}", shell_quote(executable))
}

/// A word as a shell reads it back.
pub fn shell_quote(word: impl AsRef<OsStr>) -> String {
    let Some(word) = word.as_ref().to_str() else {
        let quoted = |text: &str| text.replace('\\', r"\\").replace('\'', r"\'");
        let chunks = word.as_ref().as_bytes().utf8_chunks();
        let text = chunks.map(|chunk| quoted(chunk.valid()) + &text_of(chunk.invalid()));
        return format!("$'{}'", text.collect::<String>());
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn list(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;
    use crate::target::proc_files::Stat;

    fn of(capabilities: &[Capability]) -> Capabilities {
        Capabilities(capabilities.iter().map(|capability| 1 << capability.bit()).sum())
    }

    #[test]
    fn tracing_needs_bpf_and_perfmon_or_admin() {
        use Capability::{Bpf, Perfmon, SysAdmin, SysPtrace};
        assert_eq!(of(&[]).missing_for_tracing(), [Bpf, Perfmon]);
        assert_eq!(of(&[Bpf, SysPtrace]).missing_for_tracing(), [Perfmon]);
        assert_eq!(of(&[Bpf, Perfmon]).missing_for_tracing(), []);
        assert_eq!(of(&[SysAdmin]).missing_for_tracing(), []);
        assert!(!of(&[SysAdmin]).allow(SysPtrace));
    }

    #[test]
    fn own_child_may_be_traced_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let running = check_process(child.id());
        assert!(!has_ended(child.id()));
        child.kill().unwrap();
        while Stat::of(child.id()).unwrap().field(3) != Some("Z") {
            std::thread::yield_now();
        }
        let zombie = check_process(child.id());
        assert!(has_ended(child.id()));
        child.wait().unwrap();
        assert!(running.is_ok(), "{running:?}");
        assert!(matches!(zombie, Err(Error::NoMemory { .. })), "{zombie:?}");
        assert!(matches!(check_process(child.id()), Err(Error::NoProcess(_))));
    }

    #[test]
    fn a_thread_is_not_a_process() {
        let id = std::thread::spawn(|| {
            let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            (tid, check_process(tid))
        });
        let (thread, refusal) = id.join().unwrap();
        let process = std::process::id();
        let refusal = refusal.unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!("failed to trace process {thread}: it is a thread of process {process}")
        );
        assert!(refusal.hint().unwrap().ends_with(&format!("-p {process}")));
    }

    #[test]
    fn messages_escape_names() {
        let denied = Error::Denied { pid: 7, name: "a\u{1b}[2J".to_owned(), owner: "1000".to_owned() };
        assert_eq!(denied.to_string(), "failed to trace process 7 (`a\\x1b[2J` of user 1000): permission denied");
        assert_eq!(
            Error::Missing(vec![Capability::Bpf, Capability::Perfmon]).to_string(),
            "failed to trace: missing CAP_BPF, CAP_PERFMON"
        );
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        assert_eq!(shell_quote("--lib=libz.so"), "--lib=libz.so");
        assert_eq!(shell_quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(shell_quote(OsStr::from_bytes(b"m\xff's")), r"$'m\xff\'s'");
    }
}
