//! The kernel side of rtrace: BPF programs, how they are loaded and attached, and the byte format
//! of what they send.
//!
//! The programs are C, in `kernel/`: `wire/` is what both sides share; `stack/` is the logic of which call
//! runs and how it ends, which is compiled for user space too and tested there; `hooks/` brings it what
//! happens in the kernel. Everything above this crate sees [`Programs`] and the types of [`wire`].

use std::io::Write as _;

mod actions;
mod allowance;
mod arrivals;
mod attach;
mod calibration;
mod check;
mod clock;
mod contexts;
mod cpus;
mod error;
mod fetch;
#[cfg(test)]
mod flags;
mod floor;
mod governed;
mod hits;
pub mod journal;
mod kernel_types;
mod load;
mod mapped;
mod namespace;
mod nops;
mod options;
mod profile;
mod programs;
mod reader;
mod registers;
mod sampling;
mod self_test;
mod site;
mod skeleton;
#[cfg(test)]
mod stack_depth;
#[cfg(test)]
mod stack_model;
mod watch;
pub mod wire;

/// Whether libbpf talks on standard error: the verifier's whole reasons, and its warnings.
pub fn set_verbose(verbose: bool) {
    let tell = |_, message: String| {
        // Nobody is left to tell when standard error has gone.
        let _ = std::io::stderr().write_all(message.as_bytes());
    };
    libbpf_rs::set_print(verbose.then_some((libbpf_rs::PrintLevel::Info, tell)));
}

pub use actions::{ENTER, LEAVE};
pub use allowance::ProbeLimit;
pub use arrivals::{ArrivalRule, Back, Behind, FilePlace, MAX_SITES, Since, Tidings};
pub use attach::Probes;
pub use calibration::MeasuredCost;
pub use clock::Ticks;
pub use contexts::{ContextReader, MAX_LEVELS, PythonFrame, PythonRun, PythonStack, Rest, Walked};
pub use cpus::online_cpus;
pub use error::Error;
pub use fetch::MAX_PROGRAMS;
pub use floor::attach_nothing;
pub use governed::Counted;
pub use hits::SiteHits;
pub use kernel_types::fills_tables;
pub use nops::{Nops, nops};
pub use options::{
    Counter, LoadOptions, MAX_COUNTERS, MAX_FETCHES, MAX_SUMS, MAX_WATCHES, MAX_WORDS, Mechanism, ProfileOptions,
};
pub use programs::{Observer, OpenThread, Programs, Unlinked};
pub use reader::{Records, RingReader};
pub use registers::may_step;
pub use sampling::{SampleDetail, Samples, Sampling, SamplingSetup, sample};
pub use self_test::{Abilities, best_mechanism, end_tries, probe};
pub use site::{AttachTarget, Role, Site};
