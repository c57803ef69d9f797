//! Why a trace directory could not be written or read.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// Why a trace directory could not be written or read; names the file and the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("failed to {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A new trace would mix with what is there.
    #[error("failed to create `{}`: the directory exists and is not empty", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to open.
    #[error("failed to open `{}`: not a trace directory, it holds no trace.json", path.display())]
    NotATrace {
        /// The directory.
        path: PathBuf,
    },
    /// Another rtrace wrote it, or nothing of the kind.
    #[error("failed to open `{}`: it has schema version {found}, this rtrace reads version {}", path.display(), crate::VERSION)]
    Version {
        /// The directory.
        path: PathBuf,
        /// The version in its `trace.json`.
        found: u64,
    },
    /// The text of `trace.json` is not what it should be.
    #[error("failed to read `{}`: {source}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// Calls come with other readings than the metrics that were defined before the first of them.
    #[error("failed to write calls: they have {found} readings each, and {defined} metrics of calls are defined")]
    Readings {
        /// Metrics whose scope is the call.
        defined: usize,
        /// Readings of each call.
        found: usize,
    },
    /// A Parquet file could not be encoded or decoded.
    #[error("failed to {action} `{}`: {source}", path.display())]
    Parquet {
        /// What was tried: a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the Parquet library said.
        source: ParquetError,
    },
    /// A Parquet file is sound but does not hold what the schema says.
    #[error("failed to read `{}`: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, naming the column.
        problem: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }

    /// Takes the operating system's error out of the Parquet library's where there is one, so that
    /// a full disk reads as a full disk.
    pub(crate) fn parquet(action: &'static str, path: &Path) -> impl FnOnce(ParquetError) -> Error {
        let path = path.to_owned();
        move |source| match source {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(source) => Error::Io { action, path, source: *source },
                Err(cause) => Error::Parquet { action, path, source: ParquetError::External(cause) },
            },
            source => Error::Parquet { action, path, source },
        }
    }
}
