//! rtrace: exact, live, out-of-process tracing of library calls on Linux.
//!
//! A [`session`] records a program, phase by phase. `target` finds what the user named, [`plan`](rtrace_plan) decides
//! what is probed and how, [`attach`] places the probes, [`counters`] and [`watch`] make ready what is counted,
//! [`source`] turns the kernel's records into calls, [`pipeline`] hands them to sinks; `recorder` is the order in which
//! this happens. The binary adds the command line.
//!
//! ```no_run
#![doc = include_str!("../examples/record.rs")]
//! ```

mod address_spaces;
mod admission;
pub mod altered;
mod aside;
pub mod attach;
pub mod calibration;
pub mod callers;
pub mod command;
mod contexts;
mod copied;
pub mod counters;
pub mod descendants;
pub mod flight;
pub mod followed;
mod gate;
mod governor;
pub mod guard;
pub mod host;
mod inspection;
mod late_loads;
pub mod mapped_files;
mod mapping_history;
pub mod memory;
pub mod named;
mod options;
pub mod overhead;
pub mod perf;
pub(crate) mod pinned;
pub mod pipeline;
pub mod presence;
pub mod privilege;
pub mod proc_files;
pub mod rank;
mod recorder;
mod returns;
pub mod samples;
pub mod sampling;
pub mod session;
pub mod signatures;
pub mod source;
pub mod sources;
pub mod stale;
pub mod stubs;
pub mod target;
pub mod translated;
pub mod unmatched;
pub mod user;
mod values;
pub mod watch;
