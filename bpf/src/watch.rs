//! Watched variables: breakpoints in the hardware that run a program at each access.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::{MapCore as _, MapFlags};

use crate::options::{Counter, MAX_WATCHES};
use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{self, LossCode, LossKey, bytes_of};
use crate::{Error, Programs};

/// Room for values between two looks at them: some hundred thousand.
const RING_BYTES: u32 = 8 << 20;

/// `PERF_EVENT_IOC_SET_BPF` of `linux/perf_event.h`.
const SET_BPF: libc::c_ulong = 0x4004_2408;

/// Tells the programs which counters are variables.
pub(crate) fn configure(open: &mut OpenRtraceSkel, counters: &[Counter]) -> libbpf_rs::Result<()> {
    let first = counters.iter().position(|counter| matches!(counter, Counter::Accesses { .. }));
    let first = first.unwrap_or(counters.len());
    let constants = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
    constants.first_watch = u32::try_from(first).expect("a small number");
    let mut used = [false; MAX_WATCHES];
    let mut any_values = false;
    for (watch, counter) in counters[first..].iter().enumerate().take(MAX_WATCHES) {
        let Counter::Accesses { size, values } = *counter else { continue };
        constants.watch_sizes[watch] = u32::from(size);
        constants.watch_values[watch] = values;
        used[watch] = true;
        any_values |= values;
    }
    let programs = &mut open.progs;
    let all =
        [&mut programs.rt_access_0, &mut programs.rt_access_1, &mut programs.rt_access_2, &mut programs.rt_access_3];
    for (program, is_used) in all.into_iter().zip(used) {
        program.set_autoload(is_used);
    }
    if any_values { open.maps.accesses.set_max_entries(RING_BYTES) } else { Ok(()) }
}

impl Programs {
    /// From now on the accesses that this event tells of count for the variable at this place among
    /// the watched ones. The event is a breakpoint with a sample period of 1; events that threads
    /// inherit from it count, too.
    ///
    /// # Errors
    /// The kernel refuses to run a program at the event, or there is no such variable.
    pub fn watch(&self, watch: usize, event: BorrowedFd<'_>) -> io::Result<()> {
        let programs = &self.skel.progs;
        let all = [&programs.rt_access_0, &programs.rt_access_1, &programs.rt_access_2, &programs.rt_access_3];
        let program = all.get(watch).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = program.as_fd().as_raw_fd();
        // SAFETY: both are open descriptors; the call takes no memory.
        match unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, descriptor) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adds accesses that no program saw to the [losses](Programs::losses).
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn lose_accesses(&self, count: u64) -> Result<(), Error> {
        let key = LossKey { region: wire::NO_REGION, reason: LossCode::RT_LOSS_ACCESS };
        let losses = &self.skel.maps.losses;
        let known = losses.lookup(bytes_of(&key), MapFlags::ANY).map_err(Error::kernel("look up a loss"))?;
        let known = known.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let count = known.saturating_add(count).to_ne_bytes();
        losses.update(bytes_of(&key), &count, MapFlags::ANY).map_err(Error::kernel("count a loss"))
    }
}
