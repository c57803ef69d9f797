//! Where a change of time comes from, in words that agree with it.

use super::Shift;
use super::shift::{Direction, UNCLEAR};
use crate::people::paint::Tone;
use crate::table::Datum;

/// The part by which calls or time must differ to be told.
const LEAST_CHANGE: f64 = 0.1;

/// Standard deviations by which numbers of calls per second must differ to be told.
const SIGMAS: f64 = 3.0;

/// What came of comparing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The function had no probe in A, so its calls there are not known.
    NotTracedInA,
    /// The same of B.
    NotTracedInB,
    /// It was traced in both, and called in B alone.
    New,
    /// It was traced in both, and called in A alone.
    Gone,
    /// Returns were detected in different ways: times do not compare.
    TimedDifferently,
    /// It is in both.
    Compared {
        /// How the durations of its calls changed; absent where no call was timed in one of the traces.
        durations: Option<Direction>,
        /// Whether there are more calls, or fewer.
        calls: Option<Sign>,
        /// What else moved the time, where neither of these did.
        rest: Option<OtherCause>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    More,
    Fewer,
}

/// Why time changed though the distribution of durations did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherCause {
    /// In A a few calls took far longer than the others.
    OutliersInA,
    /// The same in B.
    OutliersInB,
    /// There are too few calls to tell more than chance.
    TooFewCalls,
}

/// The sizes of a row in A and B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Calls.
    pub(super) numbers: [u64; 2],
    /// Seconds of the recordings, where these are compared per second.
    pub(super) seconds: Option<[f64; 2]>,
    /// Exclusive time, per second in that case; absent where one is not known.
    pub(super) times: Option<[f64; 2]>,
}

impl Sizes {
    /// Calls, per second if traces are compared so.
    pub(super) fn calls(&self) -> [f64; 2] {
        let seconds = self.seconds.unwrap_or([1.0; 2]);
        [self.numbers[0] as f64 / seconds[0], self.numbers[1] as f64 / seconds[1]]
    }

    /// The change of the number of calls, if there is one. What two commands did in all is not a matter of chance;
    /// what they did in some second is.
    fn change_of_calls(&self) -> Option<Sign> {
        let [before, after] = self.calls();
        let by_chance = |seconds: [f64; 2]| {
            let variance: f64 = self.numbers.iter().zip(seconds).map(|(&n, s)| n as f64 / (s * s)).sum();
            (after - before).abs() < SIGMAS * variance.sqrt()
        };
        if self.seconds.is_some_and(by_chance) {
            return None;
        }
        sign(after / before - 1.0)
    }

    /// The change of exclusive time as a part of what it was.
    pub(super) fn change(&self) -> Option<f64> {
        self.times.map(|[before, after]| after / before - 1.0).filter(|change| change.is_finite())
    }
}

fn sign(change: f64) -> Option<Sign> {
    match change {
        change if change >= LEAST_CHANGE => Some(Sign::More),
        change if change <= -LEAST_CHANGE => Some(Sign::Fewer),
        _ => None,
    }
}

impl Verdict {
    /// The verdict on a row that is in both traces, as one of so many comparisons.
    pub(super) fn of(shift: Option<&Shift>, tests: usize, sizes: &Sizes) -> Verdict {
        let durations = shift.map(|shift| shift.direction(tests));
        let calls = sizes.change_of_calls();
        let of_durations = match durations {
            Some(Direction::Slower) => Some(Sign::More),
            Some(Direction::Faster) => Some(Sign::Fewer),
            Some(Direction::Same | Direction::Changed | Direction::Unclear) | None => None,
        };
        let time = sizes.change().and_then(sign);
        let is_explained = time.is_none()
            || time == of_durations
            || time == calls
            || match durations {
                Some(Direction::Changed) => true,
                Some(Direction::Unclear) => sizes.change().is_some_and(|change| change.abs() < UNCLEAR),
                _ => false,
            };
        let rest = match shift {
            _ if is_explained => None,
            Some(shift) if !shift.can_tell(tests) => Some(OtherCause::TooFewCalls),
            _ if time == Some(Sign::Fewer) => Some(OtherCause::OutliersInA),
            _ => Some(OtherCause::OutliersInB),
        };
        Verdict::Compared { durations, calls, rest }
    }

    pub(super) fn is_unclear(self) -> bool {
        matches!(self, Verdict::Compared { durations: Some(Direction::Unclear), .. })
    }

    pub(super) fn is_slower(self) -> bool {
        matches!(self, Verdict::Compared { durations: Some(Direction::Slower), .. })
    }

    fn words(self) -> String {
        let Verdict::Compared { durations, calls, rest } = self else {
            let word = match self {
                Verdict::NotTracedInA => "not traced in A",
                Verdict::NotTracedInB => "not traced in B",
                Verdict::New => "new",
                Verdict::Gone => "gone",
                _ => "timed differently",
            };
            return word.to_owned();
        };
        let nothing = if durations.is_none() { "not timed" } else { "same" };
        let durations = durations.filter(|&of| of != Direction::Same).map(Direction::name);
        let calls = calls.map(|sign| match sign {
            Sign::More => "more calls",
            Sign::Fewer => "fewer calls",
        });
        let rest = rest.map(|rest| match rest {
            OtherCause::OutliersInA => "outliers in A",
            OtherCause::OutliersInB => "outliers in B",
            OtherCause::TooFewCalls => "too few calls",
        });
        let words: Vec<&str> = [durations, calls, rest].into_iter().flatten().collect();
        if words.is_empty() { nothing.to_owned() } else { words.join(", ") }
    }

    fn tone(self) -> Tone {
        match self {
            Verdict::Compared { durations: Some(Direction::Slower), .. } => Tone::Bad,
            Verdict::Compared { durations: Some(Direction::Faster), .. } => Tone::Good,
            Verdict::Compared { calls: Some(Sign::More), .. } => Tone::Warning,
            Verdict::Compared {
                durations: Some(Direction::Same | Direction::Unclear) | None,
                calls: None,
                rest: None,
            } => Tone::Dim,
            Verdict::NotTracedInA | Verdict::NotTracedInB | Verdict::TimedDifferently => Tone::Dim,
            Verdict::New | Verdict::Gone | Verdict::Compared { .. } => Tone::Plain,
        }
    }

    pub(super) fn value(self) -> Datum {
        Datum::Verdict { text: self.words(), tone: self.tone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::Latency;

    use super::*;

    /// The verdict on so many calls of one duration each, and of a last one.
    fn words(a: (u64, u64, u64), b: (u64, u64, u64), seconds: Option<[f64; 2]>) -> String {
        let latency = |(calls, duration, last): (u64, u64, u64)| {
            let mut latency = Latency::default();
            (1..calls).for_each(|_| latency.record(duration));
            latency.record(last);
            latency
        };
        let time = |(calls, duration, last): (u64, u64, u64)| ((calls - 1) * duration + last) as f64;
        let of = seconds.unwrap_or([1.0; 2]);
        let sizes = Sizes { numbers: [a.0, b.0], seconds, times: Some([time(a) / of[0], time(b) / of[1]]) };
        Verdict::of(Shift::of(&latency(a), &latency(b), 0.0).as_ref(), 1, &sizes).words()
    }

    #[test]
    fn a_verdict_says_where_the_change_comes_from() {
        let a = (1_000, 100, 100);
        assert_eq!(words(a, a, None), "same");
        assert_eq!(words(a, (1_000, 200, 200), None), "slower");
        assert_eq!(words(a, (2_000, 100, 100), None), "more calls");
        assert_eq!(words(a, (100, 200, 200), None), "slower, fewer calls");
        assert_eq!(words(a, (1_000, 100, 1_000_000), None), "outliers in B");
        assert_eq!(words((1_000, 100, 1_000_000), (1_000, 130, 130), None), "slower, outliers in A");
        assert_eq!(words(a, (1_000, 115, 115), None), "unclear");
        assert_eq!(words((1_000, 100, 1_000_000), (1_000, 110, 110), None), "unclear, outliers in A");
        assert_eq!(words((3, 100, 100), (3, 200, 200), None), "too few calls");
    }

    #[test]
    fn what_was_not_timed_is_not_the_same() {
        let verdict =
            |calls| Verdict::of(None, 1, &Sizes { numbers: [1_000, calls], seconds: None, times: None }).words();
        assert_eq!([1_000, 2_000].map(verdict), ["not timed", "more calls"]);
    }

    #[test]
    fn recordings_of_different_length_are_compared_per_second() {
        let (a, b) = ((8_000, 100, 100), (3_000, 100, 100));
        assert_eq!(words(a, b, Some([8.0, 3.0])), "same");
        assert_eq!(words(a, (6_000, 100, 100), Some([8.0, 3.0])), "more calls");
        // Four calls where three were expected are no more calls, but of two whole commands they are.
        assert_eq!(words((8, 100, 100), (4, 100, 100), Some([8.0, 3.0])), "outliers in B");
        assert_eq!(words((3, 100, 100), (4, 100, 100), None), "more calls");
    }
}
