//! The figures of one row: of a function, library, thread or process.

use rtrace_model::{Estimate, Known, Missed};
use rtrace_profile::Sums;

use super::cpu::CpuTime;
use super::table::{Column, Datum, SUM, Shown};
use super::time::{OfRow, Time, Tracing};
use super::{Min, Sort};

#[derive(Default)]
pub(super) struct Stats {
    pub(super) sums: Sums,
    /// What tracing took of these, where it is known.
    pub(super) tracing: Option<OfRow>,
    /// Calls known to be missing.
    pub(super) lost: u64,
    /// Calls without a record that were counted, and those that were not seen.
    counted: u64,
    missed: Option<Missed>,
    /// What samples found in its functions themselves, if anything.
    pub(super) sampled: Option<CpuTime>,
}

impl Stats {
    /// Adds calls without a record.
    pub(super) fn add_estimate(&mut self, estimate: &Estimate) {
        self.counted += estimate.counted;
        *self.missed.get_or_insert_default() += estimate.missed();
    }

    fn shown_percentile(&self, percent: f64) -> Datum {
        match self.sums.percentile(percent) {
            Some(bound) if self.sums.latency.is_folded() => Datum::AtMost(bound),
            exact => exact.into(),
        }
    }

    /// What rows are sorted by; absent where it is the name.
    pub(super) fn figure(&self, sort: Sort) -> Option<u64> {
        match sort {
            Sort::Calls => Some(self.all_calls()),
            Sort::Inclusive => self.corrected().map(|[inclusive, _]| inclusive),
            Sort::Exclusive => self.own_time(),
            Sort::Mean => self.sums.mean(),
            Sort::P50 => self.sums.percentile(50.0),
            Sort::P90 => self.sums.percentile(90.0),
            Sort::P99 => self.sums.percentile(99.0),
            Sort::P999 => self.sums.percentile(99.9),
            Sort::Max => self.sums.max,
            Sort::Lost => Some(self.lost),
            Sort::Name => None,
        }
    }

    /// Adds the calls of another row.
    pub(super) fn merge(&mut self, other: &Stats) {
        self.sums.merge(&other.sums);
        self.tracing = Tracing::merged(self.tracing, other.tracing);
        self.lost += other.lost;
        self.counted += other.counted;
        if let Some(missed) = other.missed {
            *self.missed.get_or_insert_default() += missed;
        }
    }

    /// Exclusive time, or what samples say of it where a budget left calls without a record, which have no time.
    fn own_time(&self) -> Option<u64> {
        let exclusive = self.corrected().map(|[_, exclusive]| exclusive);
        let sampled = self.missed.and(self.sampled).map(|sampled| sampled.time);
        exclusive.max(sampled)
    }

    /// With those that have no record.
    fn all_calls(&self) -> u64 {
        self.sums.calls + self.counted + self.missed.map_or(0, |missed| missed.estimated)
    }

    /// Time of the timed and open calls; absent where there are calls, and none of them was timed.
    pub(super) fn inclusive(&self) -> Option<u64> {
        self.has_time().then_some(self.sums.inclusive)
    }

    /// The same without traced callees.
    pub(super) fn exclusive(&self) -> Option<u64> {
        self.has_time().then_some(self.sums.exclusive)
    }

    /// Inclusive and exclusive time, and what tracing took of them, where it is known.
    pub(super) fn times(&self) -> Option<[Time; 2]> {
        let [of_inclusive, of_exclusive] = self.tracing.filter(|_| self.has_time())?;
        Some([Time::new(self.sums.inclusive, of_inclusive), Time::new(self.sums.exclusive, of_exclusive)])
    }

    /// Inclusive and exclusive time without tracing as far as it is known what that took: what rows are put in order by,
    /// and what their shares are of.
    pub(super) fn corrected(&self) -> Option<[u64; 2]> {
        let recorded = || self.has_time().then_some([self.sums.inclusive, self.sums.exclusive]);
        self.times().map(|times| times.map(Time::corrected)).or_else(recorded)
    }

    /// Whether a row has so much time, of a total of `total` nanoseconds.
    pub(super) fn has_at_least(&self, min: Min, total: u64) -> bool {
        let time = match min {
            Min::Time(_) => self.inclusive(),
            Min::Share(_) => self.corrected().map(|[inclusive, _]| inclusive),
        };
        time.is_some_and(|time| min.admits(time, total))
    }

    fn has_time(&self) -> bool {
        self.sums.calls > self.sums.untimed() || (self.lost + self.all_calls() == 0 && self.missed.is_none())
    }

    /// The values of [`FIGURES`]; `total` is the time of all rows without tracing.
    pub(super) fn values(&self, total: u64) -> Vec<Datum> {
        let share = |time: u64| Datum::Share(time as f64 / total.max(1) as f64);
        let [of_inclusive, of_exclusive] =
            self.corrected().map_or([Datum::Absent, Datum::Absent], |times| times.map(share));
        // What is not known is no 0.
        let [estimated, margin] = match self.missed.map(|missed| (missed.known(), missed.margin)) {
            None => [Datum::Count(0), Datum::Count(0)],
            Some((Known::Nothing, _)) => [Datum::Absent, Datum::Absent],
            Some((Known::AtLeast(calls), _)) => [Datum::AtLeast(calls), Datum::Absent],
            Some((Known::About(calls), margin)) => [Datum::Count(calls), Datum::Count(margin)],
        };
        let calls = self.missed.map_or(Datum::Count(self.sums.calls), |_| Datum::AtLeast(self.sums.calls));
        let [returned, unwound, open, unseen] = self.sums.endings.map(Datum::Count);
        vec![
            calls,
            Datum::Count(self.sums.timed()),
            of_inclusive,
            self.inclusive().into(),
            self.exclusive().into(),
            self.sums.min.into(),
            self.sums.mean().into(),
            self.shown_percentile(50.0),
            self.shown_percentile(90.0),
            self.shown_percentile(99.0),
            self.shown_percentile(99.9),
            self.sums.max.into(),
            Datum::Count(self.lost),
            Datum::Count(self.counted),
            estimated,
            margin,
            returned,
            unwound,
            open,
            unseen,
            of_exclusive,
        ]
    }
}

/// How many calls the mean, the percentiles, min and max are of; shown to people where a call was not timed.
pub(super) const TIMED: Column = Column::new("timed", "timed").seat(1).rank(6).shown(Shown::Never);

/// Figures of calls that have no time of their own.
pub(super) const TIMELESS: [&str; 4] = ["lost", "counted", "estimated", "estimated_margin"];

/// The columns of figures.
pub(super) const FIGURES: [Column; 21] = [
    Column::new("calls", "calls").seat(0),
    TIMED,
    Column::new("share", "share").heading("inclusive").seat(2).rank(2).with_bar().shown(Shown::Never),
    Column::new("inclusive_ns", "inclusive").seat(6).rank(2).unit(SUM),
    Column::new("exclusive_ns", "exclusive").seat(3).rank(1).unit(SUM),
    Column::new("min_ns", "min").rank(5).shown(Shown::Never),
    Column::new("mean_ns", "mean").rank(4),
    Column::new("p50_ns", "p50").rank(4),
    Column::new("p90_ns", "p90").rank(5).shown(Shown::Never),
    Column::new("p99_ns", "p99").rank(5),
    Column::new("p999_ns", "p99.9").rank(5).shown(Shown::Never),
    Column::new("max_ns", "max").rank(5),
    Column::new("lost", "lost").rank(1).shown(Shown::IfNotZero),
    Column::new("counted", "counted").rank(2).shown(Shown::IfNotZero),
    Column::new("estimated", "estimated").rank(2).shown(Shown::IfNotZero),
    Column::new("estimated_margin", "\u{b1}").rank(2).shown(Shown::IfNotZero),
    Column::new("returned", "returned").rank(5).shown(Shown::Never),
    Column::new("unwound", "unwound").rank(5).shown(Shown::IfNotZero),
    Column::new("open", "open").rank(5).shown(Shown::IfNotZero),
    Column::new("unseen", "unseen").rank(5).shown(Shown::Never),
    Column::new("exclusive_share", "exclusive share").heading("exclusive").seat(2).rank(1).with_bar(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_budget_left_without_a_record_is_no_0() {
        let text = |datum: &Datum| format!("{datum:?}");
        let of = |estimate: Option<Estimate>| {
            let mut stats = Stats::default();
            estimate.iter().for_each(|estimate| stats.add_estimate(estimate));
            let values = stats.values(100);
            [0, 3, 4, 14].map(|place| text(&values[place])).join(" ")
        };
        assert_eq!(of(None), "Count(0) Time(0) Time(0) Count(0)");
        assert_eq!(of(Some(Estimate::default())), "AtLeast(0) Absent Absent Absent");
        let least = Estimate { estimated: Some(70), ..Estimate::default() };
        assert_eq!(of(Some(least)), "AtLeast(0) Absent Absent AtLeast(70)");
        assert_eq!(of(Some(Estimate { margin: Some(9), ..least })), "AtLeast(0) Absent Absent Count(70)");
    }
}
