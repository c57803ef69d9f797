//! Sums what the test programs of a workspace print.

use std::fmt;

/// Tests by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    /// The names of those that failed, and how many there are.
    pub failures: Vec<String>,
    pub failed: u64,
    /// Why some did not run, whose needs could be installed.
    pub skipped: Vec<String>,
    /// This kernel or machine cannot do what they need, or another task runs them.
    pub elsewhere: u64,
    /// How often tests tried again.
    pub tries: u64,
}

impl Counts {
    /// Takes in a line that `cargo test -- --show-output` prints. A test that cannot run here
    /// prints "skipped: reason" or "not here: reason" and passes.
    pub fn read(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("skipped: ") {
            self.skipped.push(reason.to_owned());
            self.passed = self.passed.saturating_sub(1);
        } else if line.starts_with("not here: ") {
            self.elsewhere += 1;
            self.passed = self.passed.saturating_sub(1);
        } else if let Some(tried) = line.strip_prefix("tried again ") {
            self.tries += tried.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(1);
        } else if let Some(name) = line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            // ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
            let number = |word: &str| -> u64 {
                let part = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
                part.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.elsewhere += number("ignored");
        }
    }

    /// How many did not run.
    pub fn not_run(&self) -> u64 {
        self.skipped.len() as u64 + self.elsewhere
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.not_run())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_skips_are_not_passes() {
        let mut counts = Counts::default();
        let output = "\
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
skipped: no BPF
tried again 2 times: [
not here: no such CPU
test suite::kernel::one ... FAILED
test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1.00s";
        output.lines().for_each(|line| counts.read(line));
        let failures = vec!["suite::kernel::one".to_owned()];
        let skipped = vec!["no BPF".to_owned()];
        assert_eq!(counts, Counts { passed: 11, failures, failed: 2, skipped, elsewhere: 2, tries: 2 });
        assert_eq!(counts.to_string(), "11 passed, 2 failed, 3 skipped");
    }
}
