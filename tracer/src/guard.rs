//! A process that outlives a tracer that is killed, and puts the traced code in order.
//!
//! The kernel leaves breakpoints behind where a tracer dies while it places or takes out probes: a fatal signal
//! interrupts that halfway. So each recording has a guard: this program once more, which sleeps until the tracer has
//! ended and then takes out what is left at places that the tracer's [journal] names, and
//! nowhere else. A tracer that ends as it should ends its guard itself.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use rtrace_bpf::journal::{self, Journal, Probed};
use rtrace_bpf::{EVERYWHERE, LoadOptions, Programs, best_mechanism};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::host;
use crate::leftovers::{self, Breakpoints};

/// The verb that makes this program a guard.
pub const VERB: &str = "guard";

/// What it is called in a list of processes.
const NAME: &CStr = c"probe-guard";

/// Looks at the code: links that are being released, and probes of other tracers, look like leftovers.
const LOOKS: u32 = 8;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The guard of a recording. Dropping it ends it: nothing may be placed any more.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts one that knows what this journal will hold.
    ///
    /// # Errors
    /// The system has no room for another process.
    pub fn start() -> anyhow::Result<(Guard, Journal)> {
        let file = File::from(rustix::fs::memfd_create("rtrace journal", MemfdFlags::CLOEXEC)?);
        let tracer = pidfd_open(getpid(), PidfdFlags::empty())?;
        let guard = Command::new("/proc/self/exe")
            // A guard is not meant where somebody kills all that is called rtrace.
            .arg0(NAME.to_string_lossy().as_ref())
            .arg(VERB)
            .stdin(Stdio::from(file.try_clone()?))
            .stdout(Stdio::from(tracer))
            .stderr(Stdio::null())
            .current_dir("/")
            // What ends the tracer from a terminal does not end its guard.
            .process_group(0)
            .spawn()
            .context("failed to start the process that guards against leftovers")?;
        Ok((Guard(guard), Journal::new(file)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // One that has ended already guards nothing, which is what is wanted here.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end of the tracer, and takes out what it left. Standard input is its journal, standard output a
/// descriptor of its process.
///
/// # Errors
/// These are something else, or the kernel refuses programs or probes.
pub fn run() -> anyhow::Result<()> {
    rustix::thread::set_name(NAME)?;
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    file.rewind().context("failed to read the journal of a recording: this verb is for rtrace itself")?;
    wait_for(io::stdout().as_fd())?;
    let mut journal = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut journal)?;
    let noted = journal::read(&journal);
    let mut programs = None;
    for look in 0..LOOKS {
        if look > 0 {
            sleep(PAUSE);
        }
        for found in noted.iter().flat_map(|(probed, offsets)| left(*probed, offsets)) {
            if programs.is_none() {
                let mechanism = best_mechanism().map_err(anyhow::Error::msg)?;
                programs = Some(Programs::load(&LoadOptions::plain(mechanism))?);
            }
            if let Some(programs) = &programs {
                leftovers::remove(programs, &found)?;
            }
        }
    }
    Ok(())
}

fn wait_for(process: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
            Err(rustix::io::Errno::INTR) => (),
            ended => return Ok(ended.map(drop)?),
        }
    }
}

/// What differs from the file at these places; nothing where the process has ended.
fn left(probed: Probed, offsets: &BTreeSet<u64>) -> Vec<Breakpoints> {
    let pids = if probed.pid == EVERYWHERE { host::processes() } else { vec![probed.pid] };
    let mut found: Vec<_> = pids.into_iter().filter_map(|pid| leftovers::find(pid).ok()).flatten().collect();
    found.retain_mut(|found| {
        found.offsets.retain(|offset| offsets.contains(offset));
        (found.module.device, found.module.inode) == (probed.device, probed.inode) && !found.offsets.is_empty()
    });
    found
}
