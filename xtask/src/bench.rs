//! `cargo xtask bench`: what tracing costs the traced program, beside bpftrace doing the same job.
//!
//! `bench.py` beside this file measures it, and writes `docs/benchmarks.md` if all parts are measured.

use std::process::Command;

use anyhow::Result;

use crate::{files, packages, process};

/// What can be measured alone, by name.
pub const PARTS: [&str; 7] = ["loop", "counters", "values", "libraries", "programs", "many", "budget"];

/// Measures these parts, or all if none is named, in so many rounds.
pub fn run(rounds: u32, parts: &[String]) -> Result<()> {
    packages::require(&[packages::BUILD, packages::BENCH].concat())?;
    let rtrace = process::release()?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "rtrace-bpf", "--example", "nothing"]))?;
    let mut bench = Command::new("/usr/bin/python3");
    bench.arg(crate::root().join("xtask/src/bench.py")).arg(&rtrace);
    bench.arg(rtrace.with_file_name("examples/nothing")).arg(files::folder(process::target_directory().join("bench"))?);
    process::run(bench.arg(rounds.to_string()).args(parts))
}
