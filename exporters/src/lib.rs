//! Where a trace goes: the trace directory, written and read.
//!
//! A trace directory is a folder of Parquet files and one `trace.json` that any tool reads without
//! rtrace; `SCHEMA.md` describes it. [`TraceWriter`] is the sink that fills it while a recording
//! runs, [`Trace`] opens it again, whether the recording finished, still runs, or was killed, and
//! [`TraceSet`] opens many as one.

mod directory;
mod error;
mod file;
mod manifest;
mod reader;
mod schema;
mod segment;
mod set;
mod table;
mod writer;

pub use directory::Owner;
pub use error::Error;
pub use reader::{Trace, Warning};
pub use schema::VERSION;
pub use set::TraceSet;
pub use writer::TraceWriter;
