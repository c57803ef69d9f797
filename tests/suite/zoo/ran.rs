//! What a program of the zoo prints, and how it ends.

use std::collections::BTreeMap;
use std::process::ExitStatus;

use anyhow::Result;

use crate::common::running::Running;

/// What a program printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Without what it says for others: that it is ready, and the truth.
    pub stdout: Vec<String>,
    pub status: ExitStatus,
}

impl Ran {
    /// How it differs from what was wanted: the first line that does, else the status.
    pub fn unlike(&self, wanted: &Ran) -> Option<String> {
        let line = |lines: &[String], place: usize| lines.get(place).cloned().unwrap_or_default();
        let longest = self.stdout.len().max(wanted.stdout.len());
        let pairs = (0..longest).map(|place| (line(&self.stdout, place), line(&wanted.stdout, place)));
        let of_output = pairs.into_iter().find(|(found, wanted)| found != wanted);
        let of_output = of_output.map(|(found, wanted)| format!("`{found}`, not `{wanted}`"));
        let of_status = (self.status != wanted.status).then(|| format!("{}, not {}", self.status, wanted.status));
        let differences: Vec<String> = [of_output, of_status].into_iter().flatten().collect();
        (!differences.is_empty()).then(|| differences.join(", "))
    }
}

/// What a program tells of its calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub calls: u64,
    /// Of these, calls that a jump or an exception left.
    pub left: u64,
}

/// Truths by function; several lines of one function add up.
pub type Truths = BTreeMap<String, Truth>;

/// Takes the truth out of what was printed.
pub fn told(lines: &[String]) -> Truths {
    let mut truths = Truths::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("truth ")) {
        let mut words = line.rsplitn(3, ' ').collect::<Vec<_>>();
        words.reverse();
        let number = |word: Option<&&str>| word.and_then(|word| word.parse().ok());
        // A name may hold blanks: the numbers stand at the end.
        let (name, calls, left) = match (words.as_slice(), number(words.get(1)), number(words.get(2))) {
            ([name, ..], Some(calls), Some(left)) => ((*name).to_owned(), calls, left),
            _ => match line.rsplit_once(' ') {
                Some((name, calls)) => (name.to_owned(), calls.parse().unwrap_or_default(), 0),
                None => continue,
            },
        };
        let truth = truths.entry(name).or_default();
        truth.calls += calls;
        truth.left += left;
    }
    truths
}

/// Whether a line says nothing about what the program computes.
pub fn is_talk(line: &str) -> bool {
    line.starts_with("ready") || line.starts_with("truth ")
}

impl Running {
    /// Waits for the end of a program of the zoo.
    pub fn finish(self) -> Result<Ran> {
        let (lines, status) = self.end()?;
        Ok(Ran { stdout: lines.into_iter().filter(|line| !is_talk(line)).collect(), status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_and_the_status_are_told() {
        use std::os::unix::process::ExitStatusExt as _;

        let ran = |lines: &[&str], status| Ran {
            stdout: lines.iter().map(|&line| line.to_owned()).collect(),
            status: ExitStatus::from_raw(status),
        };
        assert_eq!(ran(&["a"], 0).unlike(&ran(&["a"], 0)), None);
        let difference = ran(&["a", "b"], 5).unlike(&ran(&["a", "c", "d"], 256)).expect("they differ");
        assert_eq!(difference, "`b`, not `c`, signal: 5 (SIGTRAP), not exit status: 1");
        assert!(ran(&["a"], 0).unlike(&ran(&["a", "b"], 0)).is_some());
    }

    #[test]
    fn truths_add_up_and_names_may_hold_blanks() {
        let lines = ["truth f 3", "truth f 4 1", "truth g(int, long) 2", "truth nonsense", "sum 3"];
        let truths = told(&lines.map(str::to_owned));
        assert_eq!(truths["f"], Truth { calls: 7, left: 1 });
        assert_eq!(truths["g(int, long)"], Truth { calls: 2, left: 0 });
        assert_eq!(truths.len(), 2);
    }
}
