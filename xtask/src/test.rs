//! `cargo xtask test`: all tests of the workspace, on a machine that may have nothing but Rust.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::counts::Counts;
use crate::{packages, process, python};

/// Installs what is missing, runs every test, and ends with a line of counts, after the time of each step.
pub fn run() -> Result<()> {
    let start = Instant::now();
    packages::require(packages::BUILD)?;
    match packages::require(packages::TEST).and_then(|()| python::prepare()) {
        Err(error) if !packages::is_root() => println!("some tests will be skipped: {error}"),
        result => result?,
    }
    if !packages::is_root() {
        println!("not root: tests that trace will be skipped");
    }
    println!("test packages: {:.0} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let (counts, success) = run_tests()?;
    println!("tests: {:.0} s", start.elapsed().as_secs_f64());
    println!("{counts}");
    if !success {
        bail!("failed to pass all tests");
    }
    Ok(())
}

fn run_tests() -> Result<(Counts, bool)> {
    let mut counts = Counts::default();
    let mut cargo = process::cargo(&["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    let success = process::listen(&mut cargo, |line| counts.read(line))?;
    Ok((counts, success))
}
