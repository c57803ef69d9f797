//! Keeps the kernel ready to place probes.
//!
//! Whoever places a probe excludes forks meanwhile, by a `percpu_rw_semaphore` (`dup_mmap_sem` in the kernel's
//! kernel/events/uprobes.c). Its first writer waits for a grace period of RCU, which takes 8 to 16 ms on a
//! machine that idles; one who comes within the next such period does not. Threads wait for the probes at return addresses
//! that they meet, so a probe is placed now and then in a file that nobody maps.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rtrace_bpf::{Probes, Programs, Role, Site};
use rustix::fs::MemfdFlags;

use crate::host;
use crate::record::attach::Closing;
use crate::target::files::open_path;

/// Time between two probes: shorter than a grace period.
const PERIOD: Duration = Duration::from_millis(4);

/// Probes that are taken out together.
const TOGETHER: usize = 4;

/// Probes that make the kernel ready.
pub struct Warmth<'a> {
    programs: &'a Programs,
    /// Holds no code.
    file: Option<File>,
    probes: Vec<Probes>,
    closing: Closing,
}

impl<'a> Warmth<'a> {
    /// None yet.
    pub fn new(programs: &'a Programs) -> Warmth<'a> {
        let file = rustix::fs::memfd_create("rtrace", MemfdFlags::CLOEXEC).ok().map(File::from);
        Warmth { programs, file, probes: Vec::new(), closing: Closing::default() }
    }

    /// Waits until the kernel is ready.
    fn make_ready(&mut self) {
        let Some(file) = &self.file else { return };
        let nowhere = Site::new(0, 0);
        // Where it is refused, probes come later.
        self.probes.extend(self.programs.attach(Role::Return, &open_path(file), &[std::process::id()], &[nowhere]));
        if self.probes.len() >= TOGETHER {
            self.closing.close(std::mem::take(&mut self.probes));
        }
    }

    /// Keeps the kernel ready until somebody sends something, or cannot any more. On a thread of its own: who places probes
    /// also does what takes longer than a grace period.
    pub fn keep(mut self, ended: &Receiver<()>) -> Warmth<'a> {
        let _ahead = host::run_at_once();
        while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            self.make_ready();
        }
        self
    }

    /// The probes that are in place, once the others are gone.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.closing.finish();
        self.probes
    }
}
