//! Which part of the traced processes' CPU time is tracing, by clocks that interrupt the CPUs.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use libbpf_rs::{Link, ProgramMut};

use crate::{Error, Programs};

/// Ticks of the clocks that found a traced process, since recording was switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// All of them.
    pub all: u64,
    /// Those that found a thread at a breakpoint: in the kernel because of it, or just behind it.
    pub of_tracing: u64,
}

impl Programs {
    /// Counts ticks of `clocks`, which are performance events of one CPU each that do not run yet, as long as the programs
    /// are loaded.
    ///
    /// # Errors
    /// [`Error::Kernel`] where the kernel takes no such program.
    pub fn count_ticks(&mut self, clocks: Vec<OwnedFd>) -> Result<(), Error> {
        self.clocks = started(clocks, &self.skel.progs.rt_tick)?;
        Ok(())
    }

    /// The ticks so far; none where they are not counted.
    pub fn ticks(&self) -> Option<Ticks> {
        let [all, of_tracing] = self.shared.clock_ticks.map(|ticks| ticks.load(Ordering::Relaxed));
        (!self.clocks.is_empty()).then_some(Ticks { all, of_tracing })
    }
}

/// Starts clocks, at whose ticks this program runs as long as the links are there.
pub(crate) fn started(clocks: Vec<OwnedFd>, program: &ProgramMut<'_>) -> Result<Vec<Link>, Error> {
    let attach = |clock: OwnedFd| {
        let link = program.attach_perf_event(clock.as_raw_fd())?;
        // The link closes it.
        let _ = clock.into_raw_fd();
        Ok(link)
    };
    let links = clocks.into_iter().map(attach).collect::<libbpf_rs::Result<Vec<_>>>();
    links.map_err(Error::kernel("run a BPF program at the clocks of the CPUs"))
}
