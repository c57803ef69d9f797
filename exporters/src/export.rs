//! A stored trace in the format of another tool.
//!
//! [`FORMATS`] is the one list of formats: help, file names, documents and tests follow from it. A
//! format sees the trace through a [`Excerpt`]: the chosen calls in any order, or thread by thread
//! with callers before callees. Either way memory stays bounded, whatever the length of the trace.

mod destination;
mod flow;
mod format;
mod formats;
mod json;
mod nesting;
mod paths;
mod protobuf;
mod remarks;
mod samples;
mod selection;
mod source;
mod spool;
mod step;
mod threads;
mod values;
mod variety;
mod varint;

use std::io;
use std::path::PathBuf;

pub use destination::Destination;
pub use format::ExportFormat;
pub use formats::FORMATS;
pub use selection::Selection;

use crate::{Error, TraceSet};
use format::Form;
use source::Excerpt;

/// Why there is no export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] Error),
    /// The output cannot be written; the message names it.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// The output would take the place of something else.
    #[error("failed to create `{}`: it exists", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// The format is a directory of files.
    #[error("failed to write {format} to a stream: it is a directory of files")]
    NotAStream {
        /// Name of the format.
        format: &'static str,
    },
}

/// What came of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Calls chosen and written.
    pub calls: u64,
    /// Of these, calls whose caller was chosen or recorded by no one, so that they stand under the
    /// caller's caller; unknown (0) where the format does not nest.
    pub lost_callers: u64,
    /// Enters and exits whose time was moved because it lay outside their caller's: the trace is
    /// damaged where this is not 0.
    pub moved: u64,
}

/// Writes the calls of `trace` that `selection` keeps to `destination`.
///
/// # Errors
/// The trace cannot be read, the output not be written, or it is there already. What was written
/// to a file is gone then; what went into a stream is not.
pub fn export(
    trace: &TraceSet,
    format: &ExportFormat,
    selection: &Selection,
    destination: &Destination,
) -> Result<Exported, ExportError> {
    let source = Excerpt::new(trace, selection);
    match format.form {
        Form::File(write) => destination.file(|output| write(&source, output))?,
        Form::Directory { marker, write } => destination.directory(format.name, marker, |path| write(&source, path))?,
    }
    Ok(source.exported())
}
