//! What is wrong with a table, a prototype or a selection, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why nothing can be said of arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A table cannot be read.
    #[error("failed to read `{}`: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Something in a table is wrong.
    #[error("failed to understand {origin}: {message}")]
    Table {
        /// Where it stands.
        origin: TableLine,
        /// What is wrong.
        message: String,
    },
    /// Something in the selection of `--args` is wrong.
    #[error("failed to understand `--args {selection}`: {message}")]
    Selection {
        /// The part that is wrong.
        selection: String,
        /// What is wrong with it.
        message: String,
    },
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLine {
    /// The user's file; `None` for the built-in table.
    pub path: Option<PathBuf>,
    /// The name of the built-in table; empty for the user's file.
    pub name: &'static str,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for TableLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "`{}:{}`", path.display(), self.line),
            None => write!(formatter, "built-in table `{}.toml:{}`", self.name, self.line),
        }
    }
}
