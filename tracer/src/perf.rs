//! The kernel's performance events, for what BPF does not report.

pub mod clocks;
pub mod mappings;

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};

/// Whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfSubject {
    /// Those of the calling thread.
    Caller,
    /// Those of a thread, by its id.
    Thread(u32),
    /// Those of everybody on one CPU.
    Cpu(u32),
}

/// Opens an event.
///
/// # Errors
/// The kernel does not know the event, or does not permit it.
pub fn open(mut attributes: perf_event_attr, subject: PerfSubject) -> io::Result<OwnedFd> {
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).expect("the structure is small");
    let (pid, cpu) = match subject {
        PerfSubject::Caller => (0, -1),
        PerfSubject::Thread(tid) => (tid.cast_signed(), -1),
        PerfSubject::Cpu(cpu) => (-1, cpu.cast_signed()),
    };
    let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attributes outlive the call, and their size is set.
    let descriptor = unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, pid, cpu, -1, flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A clock that interrupts a CPU whenever it has worked for so long. It does not run yet.
///
/// # Errors
/// As [`open`].
pub fn clock(cpu: u32, period: Duration) -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: u64::from(PERF_COUNT_SW_CPU_CLOCK),
        ..perf_event_attr::default()
    };
    attributes.__bindgen_anon_1.sample_period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    attributes.set_disabled(1);
    attributes.set_exclude_idle(1);
    open(attributes, PerfSubject::Cpu(cpu))
}

/// A counter of the calling thread's CPU cycles in user space. It does not run yet.
///
/// # Errors
/// As [`open`]; a machine without a PMU has no such counter.
pub fn count_cycles() -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_HARDWARE,
        config: u64::from(PERF_COUNT_HW_CPU_CYCLES),
        ..perf_event_attr::default()
    };
    attributes.set_disabled(1);
    attributes.set_exclude_kernel(1);
    open(attributes, PerfSubject::Caller)
}
