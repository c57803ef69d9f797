//! What is said of a format, wherever it is mentioned.

use std::io::Write;
use std::path::Path;

use super::{Excerpt, ExportError};

/// A named output form of a trace; see [`FORMATS`](super::FORMATS).
#[derive(Debug)]
pub struct ExportFormat {
    /// The word that chooses it.
    pub name: &'static str,
    /// What it is, for a line of help.
    pub summary: &'static str,
    /// Ending of its files' names, without the point.
    pub extension: &'static str,
    /// Programs that open it.
    pub opens_in: &'static str,
    /// What of a trace is in it.
    pub keeps: &'static str,
    /// What of a trace is not.
    pub omits: &'static str,
    /// How calls that were not timed, which end `unseen`, are shown.
    pub untimed: &'static str,
    pub(super) form: Form,
}

/// What a format consists of, and who writes it.
#[derive(Debug)]
pub(super) enum Form {
    /// One file, written from begin to end.
    File(fn(&Excerpt<'_>, &mut dyn Write) -> Result<(), ExportError>),
    /// A directory of files.
    Directory {
        /// A file that only directories of this format hold.
        marker: &'static str,
        /// Fills the empty directory.
        write: fn(&Excerpt<'_>, &Path) -> Result<(), ExportError>,
    },
}

impl ExportFormat {
    /// Whether it can be written to a pipe.
    pub fn is_stream(&self) -> bool {
        matches!(self.form, Form::File(_))
    }
}
