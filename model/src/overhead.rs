//! What tracing costs the programs, in one measure for all who say it.

use std::fmt;
use std::time::Duration;

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

/// By this factor more or less than is taken, code may be slower behind a probe: so far the programs lie apart in which it was
/// measured.
const SLOWER_RANGE: f64 = 2.0;

/// As a part of the most by which code is slower behind a probe: its own time in which it has lost half of that. The first code
/// meets the most that is missing from the caches.
const COLD: f64 = 1.0 / 12.0;

/// Samples of the programs' own code, at least: one that was nearly found is not none.
const FEWEST: f64 = 0.5;

/// CPU time between two samples of it, in step with no other timer.
pub const SAMPLE_PERIOD: Duration = Duration::from_nanos(1_017_071);

/// How many of `others`, samples that did not find tracing, programs would take without it, if code behind probes takes up to
/// `slower` more.
fn own_of_others(others: f64, slower: f64) -> f64 {
    let half = slower * COLD;
    let linear = slower + half - others;
    ((linear * linear + 4.0 * others * half).sqrt() - linear) / 2.0
}

/// The reverse: how many samples of so many of the programs' own are found.
fn others_of_own(own: f64, slower: f64) -> f64 {
    own + slower * own / (own + slower * COLD)
}

/// By how much tracing makes the programs' CPU time longer, as a part of what they take for themselves. What programs wait
/// for does not take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Overhead(f64);

impl Overhead {
    /// The metric that tells it in percent.
    pub const METRIC: &str = "rtrace/overhead";

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

    /// From samples of the programs' CPU time that found tracing, and of others. Of these, up to about `slower` found the
    /// program's code only because it is slower behind a probe. And how many samples are left without those.
    pub fn sampled(tracing: f64, others: f64, slower: f64) -> (Overhead, f64) {
        let own = own_of_others(others, slower);
        (Overhead::of(tracing, own.max(FEWEST), 0.0), tracing + own)
    }

    /// How many of `samples` of the programs' CPU time are their own.
    pub fn own_of(self, samples: f64) -> f64 {
        samples / (1.0 + self.0)
    }

    /// Between which it is, if it was found by so many samples of the programs' CPU time, and by up to about `slower` more, of code
    /// that is slower behind a probe.
    pub fn range(self, samples: f64, slower: f64) -> [Overhead; 2] {
        let own = self.own_of(samples);
        let tracing = (samples - own).max(1.0);
        let others = others_of_own(own, slower);
        let chance = SIGMAS * others.max(1.0).sqrt();
        let bounds = [(others + chance, slower / SLOWER_RANGE), (others - chance, slower * SLOWER_RANGE)];
        let [most, least] = bounds.map(|(others, slower)| own_of_others(others.max(FEWEST), slower));
        let margin = 1.0 + (SIGMAS / tracing.sqrt()).hypot(UNEXPLAINED);
        [Overhead(self.0 / margin * own / most.max(own)), Overhead(self.0 * margin * own / least.min(own))]
    }

    /// The same with its range.
    pub fn with_range(self, samples: f64, slower: f64) -> String {
        let bound = |Overhead(bound): Overhead| match self.0 {
            FACTOR.. => figure(1.0 + bound),
            _ => figure(bound * 100.0),
        };
        let [least, most] = self.range(samples, slower).map(bound);
        format!("about {self} ({least} to {most})")
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
        assert_eq!(overhead.with_range(2_800.0, 0.0), "about 28 times slower (21 to 38)");
        assert_eq!(overhead.with_range(112_000.0, 0.0), "about 28 times slower (25 to 32)");
        assert_eq!(Overhead::percent(35.0).with_range(1_350.0, 0.0), "about 35 % slower (29 to 43)");
        assert_eq!(Overhead::default().with_range(1_000.0, 0.0), "about 0 % slower (0.0 to 0.0)");
    }

    #[test]
    fn code_that_is_slower_behind_probes_is_not_the_programs_own() {
        for (own, slower) in [(1_000.0, 0.0), (1_000.0, 100.0), (100.0, 1_000.0), (10.0, 1_000.0)] {
            let others = others_of_own(own, slower);
            assert!((own_of_others(others, slower) - own).abs() < 1e-6 * own, "{own} {slower}");
            assert!(own <= others && others <= own + slower, "{own} {slower} {others}");
        }
        let said = |tracing: f64, others: f64, slower: f64| {
            let (overhead, samples) = Overhead::sampled(tracing, others, slower);
            overhead.with_range(samples, slower)
        };
        assert_eq!(said(270_000.0, 12_000.0, 2_000.0), "about 28 times slower (23 to 38)");
        assert_eq!(said(270_000.0, 10_000.0, 30_000.0), "about 255 times slower (149 to 341)");
        assert_eq!(said(10.0, 0.0, 0.0), "about 21 times slower (3.4 to 34)");
    }
}
