//! Tests of the rtrace binary.
//!
//! `suite::cli` runs anywhere. `suite::kernel` traces real programs; where rtrace cannot trace,
//! those tests skip and print the reason. What they compare with comes from the traced programs,
//! which tell the truth about themselves, or from oracles that share nothing with uprobes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod suite;
