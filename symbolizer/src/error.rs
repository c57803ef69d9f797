//! The one error type of this crate.
//!
//! Paths and commands stand in the messages as they are; whoever prints a message escapes it.

use std::io;
use std::path::PathBuf;

/// Why something could not be found or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or read.
    #[error("failed to read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file was read but is no ELF file that this crate understands.
    #[error("failed to read `{}`: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with its contents.
        source: Box<Error>,
    },
    /// The bytes do not begin like an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// The ELF file is of another class, byte order or machine than x86-64.
    #[error("{0} is not supported, only 64-bit x86-64 ELF is")]
    Unsupported(String),
    /// The ELF file contradicts itself.
    #[error("malformed ELF file: {0}")]
    Malformed(String),
    /// No process has this id, or it has ended meanwhile.
    #[error("failed to inspect process {pid}: no such process")]
    NoSuchProcess {
        /// The process id.
        pid: u32,
    },
    /// The kernel does not let us look into the process.
    #[error("failed to inspect process {pid} of {owner}: permission denied")]
    PermissionDenied {
        /// The process id.
        pid: u32,
        /// Who owns the process, `user NAME` or `uid NUMBER`.
        owner: String,
    },
    /// A command is neither a path to a program nor in a folder of `PATH`.
    #[error("failed to find `{command}`: not an executable file, nor the name of one in PATH")]
    NoSuchCommand {
        /// The command as it was typed.
        command: String,
    },
    /// Scripts whose interpreters are scripts, deeper than the kernel follows them.
    #[error("failed to resolve `{command}`: too many interpreters in a chain")]
    TooManyInterpreters {
        /// The command as it was typed.
        command: String,
    },
}

impl From<object::read::Error> for Error {
    fn from(error: object::read::Error) -> Error {
        Error::Malformed(error.to_string())
    }
}
