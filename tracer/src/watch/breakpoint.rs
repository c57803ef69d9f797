//! One breakpoint: an event of the kernel on one thread and the threads that it will make.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings::{HW_BREAKPOINT_R, HW_BREAKPOINT_W, PERF_TYPE_BREAKPOINT, perf_event_attr};
use perf_event_open_sys::ioctls;
use rtrace_bpf::MAX_WATCHES;

use super::{Access, Error, Watch};
use crate::perf::{self, PerfSubject};

/// Tells of accesses to some bytes of a thread's memory.
#[derive(Debug)]
pub struct Breakpoint(OwnedFd);

impl Breakpoint {
    /// Opens one that does not count yet. Threads inherit it; child processes, if `children` is set.
    /// It goes away where a process executes another program.
    ///
    /// # Errors
    /// The kernel does not have it, or the thread has ended (`ESRCH`).
    pub fn open(tid: u32, address: u64, size: u8, access: Access, children: bool) -> io::Result<Breakpoint> {
        let kind = match access {
            Access::Write => HW_BREAKPOINT_W,
            Access::ReadOrWrite => HW_BREAKPOINT_R | HW_BREAKPOINT_W,
        };
        let mut attributes =
            perf_event_attr { type_: PERF_TYPE_BREAKPOINT, bp_type: kind, ..perf_event_attr::default() };
        attributes.__bindgen_anon_1.sample_period = 1;
        attributes.__bindgen_anon_3.bp_addr = address;
        attributes.__bindgen_anon_4.bp_len = size.into();
        attributes.set_disabled(1);
        attributes.set_inherit(1);
        attributes.set_inherit_thread((!children).into());
        attributes.set_remove_on_exec(1);
        Ok(Breakpoint(perf::open(attributes, PerfSubject::Thread(tid))?))
    }

    /// Begins to count.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: an open event; the call takes no memory.
        done(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) })
    }

    /// Ends counting, in the threads that inherited it, too, and tells how many accesses there were.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn finish(&self) -> io::Result<u64> {
        // SAFETY: an open event; the call takes no memory.
        done(unsafe { ioctls::DISABLE(self.0.as_raw_fd(), 0) })?;
        let mut count = [0; 8];
        rustix::io::read(&self.0, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// Opens all of them at once, in our own thread and for memory of ours: what cannot work is refused
/// before a command runs.
///
/// # Errors
/// [`Error::Refused`] names the first that the kernel does not have.
pub fn try_out(watches: &[Watch]) -> Result<(), Error> {
    const CALLER: u32 = 0;
    let memory = [0_u64; MAX_WATCHES];
    let mut opened = Vec::new();
    for (place, Watch { name, size }) in memory.iter().zip(watches) {
        let address = std::ptr::from_ref(place) as u64;
        let refused = |kernel| Error::Refused { name: name.to_string(), kernel };
        opened.push(Breakpoint::open(CALLER, address, *size, name.access, false).map_err(refused)?);
    }
    Ok(())
}

impl AsFd for Breakpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
