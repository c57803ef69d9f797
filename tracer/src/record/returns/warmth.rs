//! Keeps the kernel ready to place probes.
//!
//! Whoever places a probe excludes forks meanwhile, by a `percpu_rw_semaphore` (`dup_mmap_sem` in the kernel's
//! kernel/events/uprobes.c). Its first writer waits for a grace period of RCU, which takes 8 to 16 ms on a
//! machine that idles; one who comes within the next such period does not. Threads wait for the probes at return addresses
//! that they meet, so a probe is placed now and then in a file that nobody maps, as long as addresses are met.
//!
//! That makes a busy machine slower: an nginx that used both of its CPUs answered a seventh less. So with a budget it ends once
//! nobody has met an address for a while, and who meets the next one waits longer. Without one, every call is to be timed.

use std::fs::File;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_bpf::{Probes, Programs, Role, Site};
use rustix::fs::MemfdFlags;

use crate::host;
use crate::record::attach::Closing;
use crate::target::files::open_path;

/// Time between two probes: shorter than a grace period.
const PERIOD: Duration = Duration::from_millis(4);

/// For so long the kernel is kept ready after something has been met that takes probes.
const KEPT: Duration = Duration::from_millis(500);

/// How long a thread waits at most for the probe at a return address that it meets: while the kernel is ready, and while it is not.
const WAIT: Duration = Duration::from_millis(3);
const LONG_WAIT: Duration = Duration::from_millis(20);

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
    pub fn make_ready(&mut self) {
        let Some(file) = &self.file else { return };
        let nowhere = Site::new(0, 0);
        // Where it is refused, probes come later.
        self.probes.extend(self.programs.attach(Role::Return, &open_path(file), &[std::process::id()], &[nowhere]));
        if self.probes.len() >= TOGETHER {
            self.closing.close(std::mem::take(&mut self.probes));
        }
    }

    /// Keeps the kernel ready, with a budget for a while, and again whenever it is told that something has been `met`, until nobody
    /// can tell it any more. On a thread of its own: who places probes also does what takes longer than a grace period.
    pub fn keep(mut self, met: &Receiver<()>) -> Warmth<'a> {
        let _ahead = host::run_at_once();
        while self.keep_for_a_while(met) {
            self.let_wait(LONG_WAIT);
            if met.recv().is_err() {
                break;
            }
        }
        // Nobody answers any more.
        self.let_wait(Duration::ZERO);
        self
    }

    /// Whether somebody can still tell.
    fn keep_for_a_while(&mut self, met: &Receiver<()>) -> bool {
        self.let_wait(WAIT);
        let mut until = Instant::now() + KEPT;
        while !self.programs.is_governed() || Instant::now() < until {
            thread::sleep(PERIOD);
            match met.try_recv() {
                Ok(()) => until = Instant::now() + KEPT,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return false,
            }
            self.make_ready();
        }
        true
    }

    fn let_wait(&self, longest: Duration) {
        self.programs.wait_for_sites(longest.as_nanos() as u64);
    }

    /// The probes that are in place, once the others are gone.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.closing.finish();
        self.probes
    }
}
