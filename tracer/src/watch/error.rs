//! Why a variable cannot be watched, and what helps.

use std::io;

use rtrace_bpf::MAX_WATCHES;
use rtrace_model::escape;

/// Why a variable cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More variables than the hardware has places for.
    #[error("failed to watch {count} variables: the hardware watches {MAX_WATCHES} at most")]
    TooMany {
        /// How many were named.
        count: usize,
    },
    /// The same variable again.
    #[error("failed to watch `{}`: it is named twice", escape(.0))]
    Twice(String),
    /// No file that was looked at has it.
    #[error("failed to watch `{}`: neither the program nor the libraries named have such a variable", escape(.0))]
    NotFound(String),
    /// Several files have one.
    #[error("failed to watch `{}`: {} have a variable of that name", escape(.name), escape(.places))]
    Ambiguous {
        /// The variable.
        name: String,
        /// The files.
        places: String,
    },
    /// One file has several.
    #[error("failed to watch `{}`: `{}` has {count} variables of that name, in several source files", escape(.name), escape(.file))]
    Several {
        /// The variable.
        name: String,
        /// The file.
        file: String,
        /// How many.
        count: usize,
    },
    /// The hardware cannot watch it.
    #[error("failed to watch `{}`: {cause}", escape(.name))]
    Unfit {
        /// The variable.
        name: String,
        /// Why not.
        cause: String,
    },
    /// The kernel does not open the breakpoint.
    #[error("failed to watch `{}` by a breakpoint in the hardware: {}", escape(.name), cause(.kernel))]
    Refused {
        /// The variable.
        name: String,
        /// What the kernel said.
        kernel: io::Error,
    },
    /// A file, process or command could not be looked at.
    #[error(transparent)]
    Inspect(#[from] rtrace_symbolizer::Error),
    /// The command could not be held at its begin.
    #[error("failed to hold the command until its variables are watched: {0}")]
    Hold(io::Error),
}

impl Error {
    /// The step that helps.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NotFound(_) => Some(
                "LIB:SYMBOL looks into other libraries; of one that is loaded later, LIB is its path. \
                 `nm FILE` and `nm -D FILE` list variables, if the file is not stripped",
            ),
            Error::Ambiguous { .. } => Some("name one with LIB:SYMBOL; LIB is `exe` for the program itself"),
            Error::Unfit { .. } => Some(
                "watch another variable, of 1, 2, 4 or 8 bytes that all threads share, or a part of it: SYMBOL+OFFSET/SIZE",
            ),
            Error::Refused { .. } => Some("counters do not need breakpoints: `rtrace counters` lists what works here"),
            Error::TooMany { .. } | Error::Twice(_) | Error::Several { .. } | Error::Inspect(_) | Error::Hold(_) => {
                None
            }
        }
    }
}

/// Why the kernel does not open a breakpoint, from its error number.
fn cause(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => "the debug registers are in use, by a debugger or another tracer".to_owned(),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            format!("this machine or its kernel has none ({error})")
        }
        Some(libc::EACCES | libc::EPERM) => "not permitted: CAP_PERFMON is missing".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n`".to_owned(),
        _ => error.to_string(),
    }
}
