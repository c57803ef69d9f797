//! Keeps a command from running ahead of its breakpoints.
//!
//! Where a variable will be is known only when its file is mapped. While the dynamic linker loads the
//! files of a program that has just been executed, the process stops for us (`ptrace(2)`) at each
//! mapping; at the first system call from elsewhere all of them are loaded, and it is let go. The
//! audit library of [`stubs`](crate::stubs) takes part in the loading.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;

use rtrace_symbolizer::modules::{self, Module};

/// A process that will stop when it executes a program. If rtrace goes away it runs on.
pub struct HeldProcess {
    pid: libc::pid_t,
    /// Device and inode of the audit library, if there is one.
    audit: Option<(u64, u64)>,
}

/// Why the process stopped.
enum Stop {
    /// It has executed a program.
    Exec,
    /// A system call begins or ends.
    SystemCall,
    /// It got a signal.
    Signal(i32),
    /// It has ended, or stands still for another reason.
    Other,
}

impl HeldProcess {
    /// Takes hold of a child of ours that waits to execute a program; `audit`: device and inode of the
    /// audit library that it gets.
    ///
    /// # Errors
    /// The system does not permit it.
    pub fn take(pid: u32, audit: Option<(u64, u64)>) -> io::Result<HeldProcess> {
        let held = HeldProcess { pid: pid.cast_signed(), audit };
        held.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD)?;
        Ok(held)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// Lets the process execute its program and load the files of it; `is_enough` is asked after
    /// each of them. The thread that has taken hold of the process must call this.
    ///
    /// # Errors
    /// The system refuses; the process runs on then.
    pub fn run_until(self, mut is_enough: impl FnMut() -> bool) -> io::Result<()> {
        let mut linker = None;
        let mut maps = false;
        loop {
            let mut signal = 0;
            match self.next_stop()? {
                Stop::Exec => {
                    linker = linker_of(self.pid());
                    if is_enough() || linker.is_none() {
                        break;
                    }
                }
                Stop::SystemCall => {
                    let call = self.system_call()?;
                    if call.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                        let caller = call.instruction_pointer;
                        let is_linker = linker.as_ref().is_some_and(|linker| linker.contains(&caller));
                        if !is_linker && !self.is_audit(caller) {
                            break;
                        }
                        // SAFETY: the kernel says that it has filled this member.
                        maps = unsafe { call.u.entry.nr } == libc::SYS_mmap.cast_unsigned();
                    } else if maps && is_enough() {
                        break;
                    }
                }
                Stop::Signal(number) => signal = number,
                Stop::Other => break,
            }
            // Before the program is executed, nothing but that is of interest.
            let next = if linker.is_some() { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
            self.ask(next, signal)?;
        }
        // It may have ended.
        let _ = self.ask(libc::PTRACE_DETACH, 0);
        Ok(())
    }

    /// Whether the address lies in the audit library.
    fn is_audit(&self, address: u64) -> bool {
        let Some(audit) = self.audit else { return false };
        let modules = modules::of_process(self.pid()).unwrap_or_default();
        let is_there = |module: &Module| module.mappings.iter().any(|mapping| mapping.contains(address));
        modules.iter().any(|module| (module.device, module.inode) == audit && is_there(module))
    }

    fn next_stop(&self) -> io::Result<Stop> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // A process that has ended is left to whoever waits for its status.
        let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: the kernel fills the structure, of which zeros are a value.
        let waited = unsafe { libc::waitid(libc::P_PID, self.pid.cast_unsigned(), info.as_mut_ptr(), flags) };
        check(waited.into())?;
        // SAFETY: filled just now, for a child, as `waitid` says.
        let (code, status) = unsafe { (info.assume_init_ref().si_code, info.assume_init_ref().si_status()) };
        if code != libc::CLD_TRAPPED {
            return Ok(Stop::Other);
        }
        // SAFETY: the stop is taken note of; no status is asked for.
        let noted = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
        check(noted.into())?;
        Ok(match (status & 0xff, status >> 8) {
            (_, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
            (_, libc::PTRACE_EVENT_STOP) => Stop::Other,
            (number, _) if number == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            (number, _) => Stop::Signal(number),
        })
    }

    fn system_call(&self) -> io::Result<libc::ptrace_syscall_info> {
        let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        // SAFETY: the kernel writes no more than the size, into a structure of which zeros are a value.
        unsafe {
            check(libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, self.pid, size, info.as_mut_ptr()))?;
            Ok(info.assume_init())
        }
    }

    fn ask(&self, request: libc::c_uint, data: i32) -> io::Result<()> {
        // SAFETY: none of the requests made here takes memory.
        check(unsafe { libc::ptrace(request, self.pid, 0, libc::c_long::from(data)) })
    }
}

/// Where the dynamic linker of the process lies, if it has one.
fn linker_of(pid: u32) -> Option<Range<u64>> {
    const AT_BASE: u64 = 7;
    let base = modules::auxiliary(pid, AT_BASE)?;
    let modules = modules::of_process(pid).ok()?;
    let linker = modules.iter().find(|module| module.mappings.iter().any(|mapping| mapping.start == base))?;
    Some(base..linker.mappings.last()?.end)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
