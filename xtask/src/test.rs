//! `cargo xtask test`: all tests of the workspace, on a machine that may have nothing but Rust.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::counts::Counts;
use crate::{packages, process, python};

/// Tests that trace, which a busy machine may delay.
const KERNEL: &str = "suite::kernel::";

/// Those that rtrace does no harm, which have one try.
const HARMLESS: &str = "suite::kernel::harmless::";

/// So many tests may fail once in a run, a hundredth of those that trace, if each passes by itself.
const MOST_FAILURES: usize = 4;

/// So many tries more may all tests take, a fiftieth of their number.
const MOST_TRIES: u64 = 30;

/// Installs what is missing, runs every test, and ends with a line of counts, after the time of each step; `strict`: a
/// test that is skipped fails.
pub fn run(strict: bool) -> Result<()> {
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
    println!("tried again: {} times", counts.tries);
    println!("{counts}");
    ensure!(success, "failed to pass all tests");
    ensure!(counts.tries <= MOST_TRIES, "failed to pass all tests with at most {MOST_TRIES} tries more");
    ensure!(!strict || counts.skipped.is_empty(), "failed to run all tests: {}", counts.skipped.join("; "));
    Ok(())
}

fn run_tests() -> Result<(Counts, bool)> {
    let mut counts = Counts::default();
    let mut cargo = process::cargo(&["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    let success = process::listen(&mut cargo, |line| counts.read(line))?;
    if success || counts.failures.len() as u64 != counts.failed || !may_try_again(&counts.failures) {
        return Ok((counts, success));
    }
    let mut again = Counts::default();
    let mut cargo = process::cargo(&["test", "--package", "rtrace-cli", "--test", "integration", "--"]);
    cargo.args(["--show-output", "--test-threads", "1", "--exact"]).args(&counts.failures);
    let success = process::listen(&mut cargo, |line| again.read(line))?;
    println!("failed once: {}", counts.failures.join(", "));
    counts.tries += again.tries + counts.failed;
    (counts.passed, counts.failed) = (counts.passed + again.passed, again.failed);
    Ok((counts, success))
}

fn may_try_again(failures: &[String]) -> bool {
    let may_be_late = |name: &String| name.starts_with(KERNEL) && !name.starts_with(HARMLESS);
    failures.len() <= MOST_FAILURES && failures.iter().all(may_be_late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tests_that_trace_may_try_again_and_none_that_shows_harm() {
        let failures = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(may_try_again(&failures(&["suite::kernel::live::a", "suite::kernel::ranks::b"])));
        assert!(!may_try_again(&failures(&["suite::kernel::live::a", "suite::kernel::harmless::b"])));
        assert!(!may_try_again(&failures(&["text::tests::a"])));
        assert!(!may_try_again(&failures(&["suite::kernel::live::a"; 5])));
    }
}
