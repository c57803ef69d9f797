//! What can fail between user space and the kernel side.

use std::path::PathBuf;

/// An operation on the kernel side that failed; names the object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel or its verifier refused the programs.
    #[error("failed to load the BPF programs for `{mechanism}`: {source}")]
    Load {
        /// How probes would have been attached.
        mechanism: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The kernel refused probes in a file.
    #[error("failed to attach {sites} probes to `{}`: {source}", path.display())]
    Attach {
        /// The file.
        path: PathBuf,
        /// How many sites were asked for.
        sites: usize,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// A map, link or iterator could not be used.
    #[error("failed to {action}: {source}")]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// A file of the system could not be read.
    #[error("failed to read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Bytes from the kernel that are no record of this version.
    #[error("failed to decode {what} from {bytes} bytes")]
    Decode {
        /// What was expected.
        what: &'static str,
        /// How many bytes there were.
        bytes: usize,
    },
}

impl Error {
    pub(crate) fn kernel(action: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
        move |source| Error::Kernel { action, source }
    }
}
