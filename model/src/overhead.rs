//! What tracing costs the programs, in one measure for all who say it.

use std::fmt;

/// CPU time of programs of which nobody asks how much longer it is, with tracing, as part of one CPU: of one that uses less,
/// a few calls would be a multiple of its time, and nobody would notice.
pub const LEAST_CPU: f64 = 0.04;

/// From here on it is said in a way that is not overlooked.
const HIGH: f64 = 0.2;

/// From here on it is said how many times longer the time is, and not by how many percent.
const FACTOR: f64 = 1.0;

/// Standard deviations between which the truth is 95 times of 100.
const SIGMAS: f64 = 1.96;

/// How wrong it may be however many samples there are, as a part of it.
const UNEXPLAINED: f64 = 0.1;

/// Of the time that programs take for themselves, at least this part is their own, and not that of code which is slower
/// behind a probe: of what is less, nothing is known.
const LEAST_OWN: f64 = 2.0 / 3.0;

/// Samples of the programs' own code, at least: one that was nearly found is not none.
const FEWEST: f64 = 0.5;

/// By how much tracing makes the programs' CPU time longer, as a part of what they take for themselves. What programs wait
/// for does not take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Overhead(f64);

impl Overhead {
    /// Of so many nanoseconds of tracing, where the programs took `own` nanoseconds of CPU time for themselves in `time`
    /// nanoseconds. Of programs that use less than [`LEAST_CPU`] in all, it is taken that they use that much.
    pub fn of(tracing: f64, own: f64, time: f64) -> Overhead {
        let own = own.max(time * LEAST_CPU - tracing);
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

    /// From samples of the programs' CPU time that found tracing, and of others. Of these, about as many as are `doubtful`
    /// found the program's code, but slower than it is without tracing.
    pub fn sampled(tracing: f64, others: f64, doubtful: f64) -> Overhead {
        Overhead::of(tracing, (others - doubtful).max(others * LEAST_OWN).max(FEWEST), 0.0)
    }

    /// How many of `samples` of the programs' CPU time found them at work for themselves.
    pub fn own_of(self, samples: f64) -> f64 {
        samples / (1.0 + self.0)
    }

    /// Between which it is, if it was found by so many samples of the programs' CPU time of which some are `doubtful`;
    /// infinite at the end where nothing is known of the most.
    pub fn range(self, samples: f64, doubtful: f64) -> [Overhead; 2] {
        let own = self.own_of(samples);
        let tracing = (samples - own).max(1.0);
        let margin = (SIGMAS * (1.0 / own.max(1.0) + 1.0 / tracing).sqrt()).hypot(UNEXPLAINED);
        let least = self.0 / (1.0 + margin) * own / (own + doubtful);
        match doubtful < own / 2.0 {
            true => [Overhead(least), Overhead(self.0 * (1.0 + margin) * own / (own - doubtful))],
            false => [self, Overhead(f64::INFINITY)],
        }
    }

    /// The same with its range.
    pub fn with_range(self, samples: f64, doubtful: f64) -> String {
        let bound = |Overhead(bound): Overhead| match self.0 {
            FACTOR.. => figure(1.0 + bound),
            _ => figure(bound * 100.0),
        };
        match self.range(samples, doubtful) {
            [_, Overhead(f64::INFINITY)] => format!("more than {self}"),
            range => {
                let [least, most] = range.map(bound);
                format!("about {self} ({least} to {most})")
            }
        }
    }
}

/// With two digits at least.
fn figure(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// As a part of a sentence.
impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FACTOR.. => write!(f, "{} times slower", figure(1.0 + self.0)),
            part if part > 0.0 && part < 0.001 => f.write_str("less than 0.1 % slower"),
            0.0 => f.write_str("0 % slower"),
            part => write!(f, "{} % slower", figure(part * 100.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_part_of_the_programs_own_time() {
        let said = |tracing, own| Overhead::of(tracing, own, 1e9).to_string();
        assert_eq!(said(0.35e9, 1e9), "35 % slower");
        assert_eq!(said(0.0123e9, 1e9), "1.2 % slower");
        assert_eq!(said(1e3, 1e9), "less than 0.1 % slower");
        assert_eq!(said(0.0, 1e9), "0 % slower");
        assert_eq!(said(9.96e6, 0.1e9), "10 % slower");
        assert_eq!(said(5e9, 1e9), "6.0 times slower");
        assert_eq!(said(27e9, 1e9), "28 times slower");
    }

    #[test]
    fn programs_that_hardly_run_are_not_frightening() {
        assert_eq!(Overhead::of(1e6, 1e3, 1e9).to_string(), "2.6 % slower");
        assert_eq!(Overhead::of(0.0, 0.0, 0.0), Overhead::default());
        assert!(!Overhead::percent(20.0).is_high() && Overhead::percent(20.1).is_high());
    }

    #[test]
    fn few_samples_say_less_than_many() {
        let overhead = Overhead::percent(2_700.0);
        assert_eq!(overhead.own_of(2_800.0), 100.0);
        assert_eq!(overhead.with_range(2_800.0, 0.0), "about 28 times slower (23 to 34)");
        assert_eq!(overhead.with_range(112_000.0, 0.0), "about 28 times slower (25 to 31)");
        assert_eq!(Overhead::percent(35.0).with_range(1_350.0, 0.0), "about 35 % slower (30 to 41)");
        assert_eq!(Overhead::default().with_range(1_000.0, 0.0), "about 0 % slower (0.0 to 0.0)");
    }

    #[test]
    fn code_that_is_slower_behind_probes_is_not_the_programs_own() {
        let said = |tracing: f64, others: f64, doubtful: f64| {
            Overhead::sampled(tracing, others, doubtful).with_range(tracing + others, doubtful)
        };
        assert_eq!(said(270_000.0, 12_000.0, 2_000.0), "about 28 times slower (21 to 38)");
        assert_eq!(said(270_000.0, 10_000.0, 9_000.0), "more than 42 times slower");
        assert_eq!(said(10.0, 0.0, 0.0), "about 21 times slower (7.5 to 62)");
    }
}
