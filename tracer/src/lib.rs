//! rtrace: exact, live, out-of-process tracing of library calls on Linux.
//!
//! A [`session`] records a program, phase by phase. [`target`] finds what the user named, [`plan`](rtrace_plan) decides
//! what is probed and how, [`counters`] and [`watch`] make ready what is counted, and [`record`] is the recording at work:
//! it places the probes, turns the kernel's records into calls, and hands them to sinks. The binary adds the command line.
//!
//! ```no_run
#![doc = include_str!("../examples/record.rs")]
//! ```

pub mod actions;
pub mod counters;
pub mod flight;
pub mod host;
mod limits;
mod options;
pub mod peaks;
pub mod perf;
pub mod rank;
pub mod record;
pub(crate) mod samples;
pub mod sampling;
pub mod session;
pub mod stubs;
pub mod suggestions;
pub mod target;
pub mod watch;
