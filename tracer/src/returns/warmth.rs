//! Keeps the kernel ready to place probes.
//!
//! Whoever places a probe excludes forks meanwhile, by a `percpu_rw_semaphore` (`dup_mmap_sem` in the kernel's
//! kernel/events/uprobes.c). Its first writer waits for a grace period of RCU, which takes 8 to 16 ms on a
//! machine that idles; one who comes within the next such period does not. While return addresses are met,
//! the next ones are likely soon: until then a probe is placed now and then in a file that nobody maps.

use std::fs::File;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rtrace_bpf::{Probes, Programs, Role, Site};
use rustix::fs::MemfdFlags;

use crate::attach::Closing;
use crate::host;
use crate::pinned::open_path;

/// Time between two probes: shorter than a grace period.
const PERIOD: Duration = Duration::from_millis(4);

/// How long more is expected after probes were wanted.
const EXPECTED: Duration = Duration::from_secs(1);

/// Probes that are taken out together.
const TOGETHER: usize = 16;

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

/// Until when more probes are expected; none: nobody asks any more.
pub struct Expected {
    until: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Expected {
    /// Expects probes soon.
    pub fn soon() -> Expected {
        Expected { until: Mutex::new(Some(Instant::now() + EXPECTED)), changed: Condvar::new() }
    }

    /// Probes were wanted, so others will be.
    pub fn expect(&self) {
        self.set(Some(Instant::now() + EXPECTED));
    }

    /// None are any more once this is dropped.
    pub fn until_dropped(&self) -> impl Drop {
        struct End<'a>(&'a Expected);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.set(None);
            }
        }
        End(self)
    }

    fn set(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        self.changed.notify_one();
    }

    /// Keeps the kernel ready whenever probes are expected, and until none are any more. On a thread of its own: who
    /// places probes also does what takes longer than a grace period.
    pub fn keep(&self, mut warmth: Warmth<'_>) -> Vec<Probes> {
        let _ahead = host::run_first();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(time) = *until {
            if Instant::now() >= time {
                until = self.changed.wait(until).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(until);
            warmth.make_ready();
            std::thread::sleep(PERIOD);
            until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        }
        drop(until);
        warmth.into_probes()
    }
}
