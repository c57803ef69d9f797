//! What can fail between user space and the kernel side.

use std::path::PathBuf;

use libbpf_rs::ErrorKind;

use crate::ProbeLimit;

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
    /// So many probes are not allowed at a time.
    #[error(
        "failed to attach {sites} probes to `{}`: at most {} probes in {} processes are allowed without CAP_SYS_PTRACE",
        path.display(), limit.sites, limit.processes
    )]
    Limited {
        /// The file.
        path: PathBuf,
        /// How many sites were asked for.
        sites: usize,
        /// What is allowed.
        limit: ProbeLimit,
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

    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Kernel { action, source: source.into() }
    }

    /// Whether the kernel refuses one of the sites, rather than attaching as such.
    pub fn is_about_a_site(&self) -> bool {
        let Error::Attach { source, .. } = self else { return false };
        !self.is_gone() && !self.is_shortage() && source.kind() != ErrorKind::PermissionDenied
    }

    /// Whether there are no descriptors or no memory left for more probes, or more are not allowed. Those that are in place
    /// stay.
    pub fn is_shortage(&self) -> bool {
        let short_of = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
        match self {
            Error::Attach { source, .. } => short_of.iter().any(|&number| is_errno(source, number)),
            Error::Limited { .. } => true,
            _ => false,
        }
    }

    /// Whether the file is no longer there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Attach { source, .. } if source.kind() == ErrorKind::NotFound)
    }

    /// The kernel's own words, without what was tried.
    pub fn cause(&self) -> String {
        match self {
            Error::Load { source, .. } | Error::Attach { source, .. } | Error::Kernel { source, .. } => {
                source.to_string()
            }
            Error::Read { source, .. } => source.to_string(),
            Error::Limited { .. } | Error::Decode { .. } => self.to_string(),
        }
    }
}

/// Whether the system gave this number, for those of which libbpf-rs makes no kind.
pub(crate) fn is_errno(error: &libbpf_rs::Error, number: i32) -> bool {
    // The other form leaves out the cause.
    format!("{error:#}").contains(&format!("(os error {number})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_is_short_of_is_no_fault_of_a_site() {
        let is_about_a_site = |number| {
            let source = libbpf_rs::Error::from_raw_os_error(number);
            Error::Attach { path: PathBuf::new(), sites: 1, source }.is_about_a_site()
        };
        assert!(is_about_a_site(libc::EINVAL));
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(!is_about_a_site(number), "{number}");
        }
    }
}
