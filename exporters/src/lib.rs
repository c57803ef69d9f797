//! Where a trace goes: the trace directory, written and read, and the formats of other tools.
//!
//! A trace directory is a folder of Parquet files and one `trace.json` that any tool reads without
//! rtrace; `SCHEMA.md` describes it. [`TraceWriter`] is the sink that fills it while a recording
//! runs, [`Trace`] opens it again, whether the recording finished, still runs, or was killed.
//! [`export`] turns a stored trace into one of the [`FORMATS`].

mod directory;
mod error;
mod export;
mod file;
mod manifest;
mod reader;
mod schema;
mod segment;
mod table;
mod writer;

pub use directory::Owner;
pub use error::Error;
pub use export::{Destination, ExportError, Exported, FORMATS, Format, Selection, export};
pub use reader::{Trace, Warning};
pub use schema::VERSION;
pub use writer::TraceWriter;
