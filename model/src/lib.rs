//! The words of rtrace: the values that travel between its parts.
//!
//! Nothing here does I/O, calls the kernel or draws. One word stands for one thing, here and in
//! every column, option and message:
//!
//! | word | OTF2 / Score-P | means |
//! |---|---|---|
//! | [`Region`] | Region | one function at one address of one library, with all its names |
//! | [`Library`] | – | one ELF object file that processes map: device, inode, build id, path |
//! | [`Location`] | Location | the lifetime of one thread; a thread id that is used again is another location |
//! | [`Process`] | LocationGroup | the lifetime of one process id |
//! | enter / exit | Enter / Leave | the two ends of a call |
//! | [`Call`] | – | one enter with its exit; its id counts up from 1 on its location |
//! | call path | callpath | the chain of regions from a root call to a call |
//! | inclusive / exclusive | – | a call's duration with / without that of the traced calls it made |
//! | probe site | – | the instruction at which a probe sits |
//! | [`CallSite`] | – | the instruction behind a call, to which it returns |
//! | [`ExitPolicy`] | – | how a region's exit is seen |
//! | [`Ending`] | – | how a call ended, or why that is not known |
//! | [`Level`] | – | how the calls of a region are recorded now, where a budget decides |
//! | [`Loss`] | – | calls or events known to be missing, with the reason |
//! | [`Untimed`] | – | calls without a duration, as their return was not observed, with the reason |
//! | [`Wait`] | – | what a function that does no work meanwhile waits for |
//! | [`Metric`] | Metric | something counted on every call, or sampled beside the calls |
//! | [`ValueColumn`] | Parameter | an argument or result of a region's calls |
//! | [`Reading`] | – | what one metric counted during one call |
//! | [`Item`] | – | one thing that a recording tells its sinks |
//! | [`Sink`] | substrate | a consumer of calls |
//!
//! Times are [`Timestamp`]s of `CLOCK_MONOTONIC` in nanoseconds, durations are `u64` nanoseconds. What
//! was not timed has no duration, which is not a duration of 0.

mod batch;
mod calibration;
mod call;
mod call_site;
mod context;
pub mod counter;
mod cpu_samples;
mod definition;
mod estimate;
mod event;
mod guard;
mod id;
mod item;
mod known;
mod latency;
mod libraries;
mod loss;
mod metric;
pub mod names;
mod overhead;
mod peaks;
mod probe;
mod profile;
mod role;
mod sink;
mod summary;
mod text;
mod time;
mod totals;
pub mod units;
mod untimed;
mod unwind;
mod values;
mod waiting;
mod words;

pub use batch::{Batch, Measured, Reading};
pub use calibration::{CallCost, MOSTLY_TRACING, is_mostly_tracing};
pub use call::{Call, Ending};
pub use call_site::{CallSite, Inlined, SourceLine};
pub use context::{Context, ContextEnding};
pub use cpu_samples::CpuSamples;
pub use definition::{Definition, ExitPolicy, Library, Location, Process, Region, SymbolName};
pub use estimate::{Estimate, Known, Level, Missed};
pub use event::{Event, EventKind, slowdown};
pub use guard::{guarded, is_guarded};
pub use id::{CallSiteId, ContextId, LibraryId, LocationId, MetricId, PathId, RegionId};
pub use item::Item;
pub use known::known;
pub use latency::{FEW_DURATIONS, Latency, three_digits};
pub use libraries::name_apart;
pub use loss::{Loss, LossReason};
pub use metric::{Base, Metric, Sample, Scope, Span, Tally};
pub use overhead::{LEAST_CPU, Overhead, SAMPLE_PERIOD};
pub use peaks::{PeakRates, Peaks};
pub use probe::{HeldBytes, Jump, MOST_MOVED, MOST_WORDS, Step};
pub use profile::{Count, FoldedPath, HISTOGRAM_BUCKETS, PathDetail, PathProfile, histogram_bucket};
pub use role::{FunctionEvent, Role};
pub use sink::{Sink, SinkError};
pub use summary::{Header, HitsInVain, Percent, Rank, ReturnSites, Summary, Window};
pub use text::{counted, csv_field, escape, grouped, name_of, text_of, text_of_os};
pub use time::{ClockAnchor, Timestamp, format_ns};
pub use totals::Totals;
pub use untimed::{Untimed, UntimedReason};
pub use unwind::{CallerFrame, CallerStack, UnwindRule};
pub use values::{
    CallValues, Value, ValueBatch, ValueColumn, ValueRef, ValueType, Values, code, value_bounds, value_step,
};
pub use waiting::Wait;
