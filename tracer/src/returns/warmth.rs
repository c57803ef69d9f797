//! Keeps the kernel ready to place probes.
//!
//! Whoever places a probe excludes forks meanwhile, by a `percpu_rw_semaphore` (`dup_mmap_sem` in the kernel's
//! kernel/events/uprobes.c). Its first writer waits for a grace period of RCU, which takes 8 to 16 ms on a
//! machine that idles; one who comes within the next such period does not. While return addresses are met,
//! the next ones are likely soon: until then a probe is placed now and then in a file that nobody maps.

use std::fs::File;
use std::time::{Duration, Instant};

use rtrace_bpf::{Probes, Programs, Role, Site};
use rustix::fs::MemfdFlags;

use crate::attach::Closing;
use crate::pinned::open_path;

/// Time between two probes: shorter than a grace period.
pub(super) const PERIOD: Duration = Duration::from_millis(4);

/// How long more is expected after probes were wanted.
const EXPECTED: Duration = Duration::from_secs(1);

/// Probes that are taken out together.
const TOGETHER: usize = 16;

/// Whether the kernel is kept ready, and the probes that keep it so.
pub struct Warmth<'a> {
    programs: &'a Programs,
    /// Holds no code.
    file: Option<File>,
    until: Instant,
    next: Instant,
    probes: Vec<Probes>,
    closing: Closing,
}

impl<'a> Warmth<'a> {
    /// Expects nothing yet.
    pub fn new(programs: &'a Programs) -> Warmth<'a> {
        let file = rustix::fs::memfd_create("rtrace", MemfdFlags::CLOEXEC).ok().map(File::from);
        let now = Instant::now();
        Warmth { programs, file, until: now, next: now, probes: Vec::new(), closing: Closing::default() }
    }

    /// Probes were wanted, so others will be.
    pub fn expect(&mut self) {
        self.until = Instant::now() + EXPECTED;
    }

    /// Whether probes are expected.
    pub fn expects(&self) -> bool {
        Instant::now() < self.until
    }

    /// Keeps the kernel ready, if it is time to.
    pub fn keep(&mut self) {
        if self.expects() && Instant::now() >= self.next {
            self.next = Instant::now() + PERIOD;
            self.make_ready();
        }
    }

    /// Waits until the kernel is ready.
    pub fn make_ready(&mut self) {
        let Some(file) = &self.file else { return };
        let nowhere = Site { file_offset: 0, cookie: 0 };
        // Where it is refused, probes come later.
        self.probes.extend(self.programs.attach(Role::Return, &open_path(file), &[std::process::id()], &[nowhere]));
        if self.probes.len() >= TOGETHER {
            self.closing.close(std::mem::take(&mut self.probes));
        }
    }

    /// The probes that are in place, once the others are gone.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.closing.finish();
        self.probes
    }
}
