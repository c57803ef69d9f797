//! Sums what the test programs of a workspace print.

use std::fmt;

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// Takes in a line that `cargo test -- --show-output` prints. A test that cannot run here
    /// prints "skipped: reason" and passes.
    pub fn read(&mut self, line: &str) {
        if line.starts_with("skipped: ") {
            self.skipped += 1;
            self.passed = self.passed.saturating_sub(1);
        } else if let Some(result) = line.strip_prefix("test result: ") {
            // ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
            let number = |word: &str| -> u64 {
                let part = result.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
                part.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.skipped += number("ignored");
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
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
test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 1.00s";
        output.lines().for_each(|line| counts.read(line));
        assert_eq!(counts, Counts { passed: 12, failed: 2, skipped: 2 });
        assert_eq!(counts.to_string(), "12 passed, 2 failed, 2 skipped");
    }
}
