//! A process that outlives a tracer that is killed, and puts the traced code in order.
//!
//! The kernel closes what a killed process has left open one after another, and its probes take tens of milliseconds
//! per link: seconds in which others pay for a recording that is over. It also leaves breakpoints behind where a tracer
//! dies while it places or takes out probes: a fatal signal interrupts that halfway. So each recording has a guard: a
//! process that shares the tracer's descriptors, which therefore stay open when the tracer dies. It sleeps until then,
//! closes them many at a time, and takes out what is left at places that the tracer's [journal] names, and nowhere
//! else. A tracer that ends as it should ends its guard itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rtrace_bpf::journal::{self, Journal, Probed};
use rtrace_bpf::{LoadOptions, Programs, best_mechanism};
use rtrace_symbolizer::modules::Module;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, setpgid, waitpid};

use crate::host;
use crate::record::attach;
use crate::record::stale::{self, Breakpoints};
use crate::target::proc_files::Stat;

/// What it is called in a list of processes: it is not meant where somebody kills all that is called rtrace.
const NAME: &CStr = c"probe-guard";

/// Looks at the code: links that are being released, and probes of other tracers, look like stale ones.
const LOOKS: u32 = 8;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The guard of a recording. Dropping it ends it: nothing may be placed any more.
#[derive(Debug)]
pub struct Guard {
    pid: Pid,
    journal: File,
    /// By which the guard knows of the end of this process: closed here, it would be closed there.
    _tracer: OwnedFd,
}

impl Guard {
    /// Starts one. What it is copied from is small and has no other threads yet: whoever records calls this first.
    ///
    /// # Errors
    /// The system has no room for another process, or this one has more than one thread.
    pub fn start() -> anyhow::Result<Guard> {
        let start = || {
            let threads = fs::read_dir("/proc/self/task")?.count();
            ensure!(threads == 1, "it cannot share what {threads} threads have open");
            let journal = File::from(rustix::fs::memfd_create("rtrace journal", MemfdFlags::CLOEXEC)?);
            let tracer = pidfd_open(getpid(), PidfdFlags::empty())?;
            match fork_sharing_descriptors()? {
                Some(pid) => Ok(Guard { pid, journal, _tracer: tracer }),
                None => {
                    // Nobody reads what it says, and nothing is to be done about its errors. It closes nothing, because
                    // the tracer, which may go on, has the same descriptors.
                    let _ = outlive(&tracer, &journal);
                    std::process::exit(0);
                }
            }
        };
        start().context("failed to start the process that guards against stale probes")
    }

    /// What it will look at, to be written.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn journal(&self) -> io::Result<Journal> {
        Ok(Journal::new(self.journal.try_clone()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // One that has ended already guards nothing, which is what is wanted here.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Makes a copy of this process, which has one thread; what one of the two opens or closes, so does the other.
/// `None` in the copy.
fn fork_sharing_descriptors() -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    // SAFETY: as fork(): the copy has its own memory, and no thread of this process holds a lock.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(i32::try_from(pid).ok().and_then(Pid::from_raw)),
    }
}

/// Waits for the end of the tracer, and takes out what it left.
fn outlive(tracer: &OwnedFd, mut journal: &File) -> anyhow::Result<()> {
    // It guards under any name.
    let _ = rustix::thread::set_name(NAME);
    let _ = show_name();
    // What ends the tracer from a terminal does not end its guard.
    setpgid(None, None)?;
    wait_for(tracer)?;
    // Until the probes are gone the traced programs pay for a recording that is over.
    let _ahead = host::run_first();
    close_all_but(journal.as_raw_fd())?;
    let mut noted = Vec::new();
    journal.rewind()?;
    journal.read_to_end(&mut noted)?;
    let noted = journal::read(&noted);
    let mut programs = None;
    let mut pids: BTreeSet<u32> = noted.keys().map(|probed| probed.pid).collect();
    for look in 0..LOOKS {
        if look > 0 {
            sleep(PAUSE);
        }
        let mut unclean = BTreeSet::new();
        for pid in pids {
            // In a family what was put back in one process is so in the others: the kernel looks at all of them.
            let found = left(pid, &noted);
            if found.is_empty() {
                continue;
            }
            if programs.is_none() {
                let mechanism = best_mechanism().map_err(anyhow::Error::msg)?;
                programs = Some(Programs::load(&LoadOptions::plain(mechanism))?);
            }
            if let Some(programs) = &programs {
                // What fails for one, which may have ended, is wanted for the others all the same.
                let _ = stale::remove(programs, &found);
            }
            // Looked at without a pause: the tracer has ended and all its links are closed, so what is clean stays so,
            // and what is there after a while may be another tracer's.
            if !left(pid, &noted).is_empty() {
                unclean.insert(pid);
            }
        }
        pids = unclean;
        if pids.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Writes the name over the copy of the tracer's command line.
fn show_name() -> anyhow::Result<()> {
    // The bounds of the arguments.
    let stat = Stat::of_own()?;
    let (Some(start), Some(end)) = (stat.number(48), stat.number(49)) else { return Ok(()) };
    let mut line = NAME.to_bytes().to_vec();
    line.resize(usize::try_from(end.saturating_sub(start))?, 0);
    let arguments = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(start)?);
    // SAFETY: the kernel has put the arguments there, which are writable. Nothing in this copy of the tracer reads them.
    // /proc/self/mem would not do: it is root's where the file of the program has capabilities.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), arguments, line.len()) };
    Ok(())
}

fn wait_for(process: &OwnedFd) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)], None) {
            Err(rustix::io::Errno::INTR) => (),
            ended => return Ok(ended.map(drop)?),
        }
    }
}

/// Closes what the tracer had open, except the journal: what others wait for first, then probes, many at a time.
fn close_all_but(journal: RawFd) -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // Or it would be closed twice: it is among those that follow.
    drop(nothing);
    let numbers = fs::read_dir("/proc/self/fd")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut probes = Vec::new();
    for number in numbers.collect::<Vec<RawFd>>() {
        // That of the directory has gone.
        let Ok(target) = fs::read_link(format!("/proc/self/fd/{number}")) else { continue };
        if number <= 2 || number == journal {
            continue;
        }
        // SAFETY: the tracer, which opened it, has ended, and nothing here refers to it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let target = target.to_string_lossy();
        if target.starts_with("anon_inode:bpf") || target.contains("perf_event") {
            probes.push(descriptor);
        }
    }
    attach::detach_links(probes);
    Ok(())
}

/// What differs from the files of a process at places that were noted; nothing where it has ended.
fn left(pid: u32, noted: &BTreeMap<Probed, BTreeSet<u64>>) -> Vec<Breakpoints> {
    let of_file = |&Module { device, inode, .. }: &Module| noted.get(&Probed { pid, device, inode });
    let mut found = stale::find_in(pid, |module| of_file(module).is_some()).unwrap_or_default();
    found.retain_mut(|Breakpoints { module, offsets }| {
        offsets.retain(|offset| of_file(module).is_some_and(|noted| noted.contains(offset)));
        !offsets.is_empty()
    });
    found
}
