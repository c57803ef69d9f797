//! Where a trace goes: the trace directory, written and read, and the formats of other tools.
//!
//! A trace directory is a folder of Parquet files and one `trace.json` that any tool reads without
//! rtrace; `SCHEMA.md` describes it. [`TraceWriter`] is the sink that fills it while a recording
//! runs, [`Trace`] opens it again, whether the recording finished, still runs, or was killed, and
//! [`TraceSet`] opens many as one, and [`views()`] is SQL over their files. [`export`] turns a stored trace into one of the [`FORMATS`].

mod consumer;
mod costs;
mod definitions;
mod directory;
mod error;
mod export;
mod file;
mod folding;
mod joined;
mod manifest;
mod messages;
mod openmetrics;
mod order;
mod parallel;
mod reader;
mod sampled;
mod schema;
mod segment;
mod set;
mod stream;
mod table;
mod untraced;
mod values;
mod views;
mod writer;

pub use consumer::{Consumer, Delivery};
pub use costs::{Cost, Costs, Traced};
pub use definitions::Definitions;
pub use directory::Owner;
pub use error::Error;
pub use export::{Destination, ExportError, ExportFormat, Exported, FORMATS, Selection, export};
pub use joined::ValueReader;
pub use messages::{
    AwaitedCall, CallTime, Collective, Communicator, CommunicatorId, Completion, FileAct, MatchedMessage, MessageEnd,
    MessageEvent, MessageGaps, MessageKind, Messages, RemoteAccess, RmaWindow, Size, Transfer, WindowId,
};
pub use openmetrics::OpenMetrics;
pub use parallel::in_order;
pub use reader::{Status, Trace, Warning};
pub use sampled::{SampledTime, TracedCode, sampled_beside_calls};
pub use schema::VERSION;
pub use set::{Folded, TraceSet};
pub use untraced::{ChainId, Led, Untraced, UntracedId};
pub use views::views;
pub use writer::TraceWriter;
