//! What tracing costs the programs, in one measure for all who say it.

use std::fmt;

/// CPU time of programs of which nobody asks how much longer it is, as part of one CPU: of one that uses less, a few
/// calls would be a multiple of its time, and nobody would notice.
pub const LEAST_CPU: f64 = 0.04;

/// From here on it is said in a way that is not overlooked.
const HIGH: f64 = 0.2;

/// The most that is said. What calls cost is known to about a tenth, and the programs' own time is what they leave of
/// all: where they take two thirds of it, the overhead is right within a third, beyond that it can be anything.
const MOST_KNOWN: f64 = 2.0;

/// By how much tracing makes the programs' run time longer, as a part of it. Run time is CPU time: what programs wait for
/// does not take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Overhead(f64);

impl Overhead {
    /// Of so many nanoseconds of tracing, where the programs took `own` nanoseconds of CPU time for themselves in `time`
    /// nanoseconds. Of programs that use less than [`LEAST_CPU`], it is taken that they use that much.
    pub fn of(tracing: f64, own: f64, time: f64) -> Overhead {
        let own = own.max(time * LEAST_CPU).max(tracing / MOST_KNOWN);
        Overhead(if own > 0.0 { tracing / own } else { 0.0 })
    }

    /// So many percent.
    pub fn percent(percent: f64) -> Overhead {
        Overhead(percent / 100.0)
    }

    /// In percent.
    pub fn in_percent(self) -> f64 {
        self.0 * 100.0
    }

    /// Whether most would want to know.
    pub fn is_high(self) -> bool {
        self.0 > HIGH
    }

    /// Whether it may be more than it says, and nobody knows how much.
    pub fn is_least(self) -> bool {
        self.0 >= MOST_KNOWN
    }
}

impl Overhead {
    /// For a column of its own: the number alone.
    pub fn short(self) -> String {
        match self.in_percent() {
            _ if self.is_least() => format!(">= +{:.0} %", MOST_KNOWN * 100.0),
            0.0 => "+0 %".to_owned(),
            ..0.1 => "< +0.1 %".to_owned(),
            percent @ ..9.95 => format!("+{percent:.1} %"),
            percent => format!("+{percent:.0} %"),
        }
    }
}

/// As a part of a sentence.
impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_percent() {
            _ if self.is_least() => write!(f, "+{:.0} % run time or more", MOST_KNOWN * 100.0),
            percent if percent > 0.0 && percent < 0.1 => f.write_str("less than +0.1 % run time"),
            _ => write!(f, "{} run time", self.short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_part_of_the_programs_own_time() {
        let said = |tracing, own| Overhead::of(tracing, own, 1e9).to_string();
        assert_eq!(said(0.35e9, 1e9), "+35 % run time");
        assert_eq!(said(0.0123e9, 1e9), "+1.2 % run time");
        assert_eq!(said(1e3, 1e9), "less than +0.1 % run time");
        assert_eq!(said(0.0, 1e9), "+0 % run time");
        assert_eq!(said(9.96e6, 0.1e9), "+10 % run time");
        assert_eq!(said(5e9, 1e9), "+200 % run time or more");
    }

    #[test]
    fn programs_that_hardly_run_are_not_frightening() {
        assert_eq!(Overhead::of(1e6, 1e3, 1e9).to_string(), "+2.5 % run time");
        assert_eq!(Overhead::of(0.0, 0.0, 0.0), Overhead::default());
        assert!(!Overhead::percent(20.0).is_high() && Overhead::percent(20.1).is_high());
        assert!(Overhead::of(1.0, 0.0, 0.0).is_least());
    }
}
