//! Why a counter does not work here, and what does.

use std::io;
use std::path::Path;

use perf_event_open_sys::bindings::{PERF_TYPE_BREAKPOINT, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT};
use rtrace_bpf::MAX_COUNTERS;
use rtrace_model::counter::{self, TABLE};
use rtrace_model::escape;

use super::EventCode;

/// Why calls cannot be counted as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More counters than a record holds.
    #[error("failed to count {count} things on every call: {MAX_COUNTERS} is the limit")]
    TooMany {
        /// How many were named.
        count: usize,
    },
    /// The same counter again.
    #[error("failed to count `{}`: it is named twice", escape(name))]
    Twice {
        /// The counter.
        name: String,
    },
    /// No counter has this name.
    #[error("failed to count `{}`: {}", escape(name), escape(cause))]
    Unknown {
        /// The counter.
        name: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The kernel does not open the event.
    #[error("failed to count `{}`: {cause}", escape(name))]
    Refused {
        /// The counter.
        name: String,
        /// What stands in the way.
        cause: String,
        /// What the kernel said; the cause explains it.
        kernel: io::Error,
    },
}

impl Error {
    pub(super) fn unknown(name: &str, cause: String) -> Error {
        Error::Unknown { name: name.to_owned(), cause }
    }

    pub(super) fn refused(name: &str, event: EventCode, kernel: io::Error) -> Error {
        Error::Refused { name: name.to_owned(), cause: cause(event, &kernel), kernel }
    }

    /// The step that helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::TooMany { .. } | Error::Twice { .. } => None,
            Error::Unknown { .. } | Error::Refused { .. } => {
                let everywhere = TABLE.iter().filter(|known| matches!(known.source, counter::CounterSource::Kernel(_)));
                let names: Vec<&str> = everywhere.map(|known| known.name).collect();
                Some(format!("`rtrace counters` lists what works here; {} always do", names.join(", ")))
            }
        }
    }
}

/// Why the kernel does not open an event, from its error number as `perf_event_open(2)` explains it.
pub(super) fn cause(event: EventCode, error: &io::Error) -> String {
    let of_kernel = matches!(event.kind, PERF_TYPE_SOFTWARE | PERF_TYPE_TRACEPOINT | PERF_TYPE_BREAKPOINT);
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            let paranoid = paranoid.trim();
            format!("not permitted: CAP_PERFMON is missing and kernel.perf_event_paranoid is {paranoid}")
        }
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) if !of_kernel && !has_core_unit() => {
            "this machine shows no hardware counters: most virtual machines have none".to_owned()
        }
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL) => {
            format!("this machine's hardware or kernel does not have it ({error})")
        }
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n`".to_owned(),
        Some(libc::EBUSY) => "another tool holds the hardware counters".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether a unit of the CPU's cores counts cycles and the like.
fn has_core_unit() -> bool {
    ["cpu", "cpu_core", "cpu_atom"].iter().any(|unit| Path::new("/sys/bus/event_source/devices").join(unit).exists())
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings::PERF_TYPE_HARDWARE;

    use super::*;

    fn refused(kind: u32, code: i32) -> String {
        Error::refused("x", EventCode::new(kind, 0), io::Error::from_raw_os_error(code)).to_string()
    }

    #[test]
    fn the_kernels_refusals_are_explained() {
        if !has_core_unit() {
            let text = "failed to count `x`: this machine shows no hardware counters: most virtual machines have none";
            assert_eq!(refused(PERF_TYPE_HARDWARE, libc::ENOENT), text);
        }
        assert!(refused(PERF_TYPE_SOFTWARE, libc::EACCES).contains("CAP_PERFMON is missing"));
        assert!(refused(PERF_TYPE_SOFTWARE, libc::ENOENT).contains("does not have it (No such file"));
        assert!(refused(PERF_TYPE_SOFTWARE, libc::EMFILE).contains("ulimit -n"));
    }

    #[test]
    fn hints_name_what_always_works() {
        let hint = Error::unknown("x", String::new()).hint().unwrap_or_default();
        assert!(hint.contains("task-clock, page-faults, "), "{hint}");
        assert!(!hint.contains("cycles"), "{hint}");
    }
}
