//! The figures of one row: of a function, library, thread or process.

use rtrace_model::{Call, Ending, Estimate, FoldedPath, Known, Latency, Missed};

use super::table::{Column, Datum, SUM, Shown};
use super::time::{OfRow, Time, Tracing};
use super::{Min, Sort};

#[derive(Default)]
pub(super) struct Stats {
    calls: u64,
    /// Calls by [`Ending`].
    endings: [u64; 4],
    inclusive: u64,
    exclusive: u64,
    /// What tracing took of these, where it is known.
    pub(super) tracing: Option<OfRow>,
    /// Calls known to be missing.
    pub(super) lost: u64,
    /// Calls without a record that were counted, and those that were not seen.
    counted: u64,
    missed: Option<Missed>,
    /// Number and sum of the durations in `latency`.
    timed: u64,
    sum: u64,
    min: Option<u64>,
    max: Option<u64>,
    latency: Latency,
}

impl Stats {
    /// Adds a call; `outermost` unless it is nested in one of the same row.
    pub(super) fn add(&mut self, call: &Call, outermost: bool) {
        self.calls += 1;
        self.endings[call.ending as usize] += 1;
        let (Some(duration), Some(exclusive)) = (call.duration, call.exclusive()) else { return };
        if outermost {
            self.inclusive = self.inclusive.saturating_add(duration);
        }
        self.exclusive = self.exclusive.saturating_add(exclusive);
        if call.ending == Ending::Open {
            return;
        }
        self.timed += 1;
        self.sum = self.sum.saturating_add(duration);
        self.min = self.min.into_iter().chain([duration]).min();
        self.max = self.max.max(Some(duration));
        self.latency.record(duration);
    }

    /// Adds all calls of a call path; `outermost` unless they are nested in calls of the same row.
    pub(super) fn add_path(&mut self, path: &FoldedPath, outermost: bool) {
        self.calls += path.calls;
        let endings = [path.timed.saturating_sub(path.unwound), path.unwound, path.open, path.unseen];
        self.endings.iter_mut().zip(endings).for_each(|(sum, calls)| *sum += calls);
        if outermost {
            self.inclusive = self.inclusive.saturating_add(path.inclusive);
        }
        self.exclusive = self.exclusive.saturating_add(path.exclusive);
        if path.timed == 0 {
            return;
        }
        self.timed += path.timed;
        self.sum = self.sum.saturating_add(path.inclusive.saturating_sub(path.open_time));
        self.min = self.min.into_iter().chain(path.min).min();
        self.max = self.max.max(path.max);
        match &path.detail {
            Some(detail) => self.latency.record_counted(&detail.durations),
            None => self.latency.record_folded(&path.histogram),
        }
    }

    /// Adds calls without a record.
    pub(super) fn add_estimate(&mut self, estimate: &Estimate) {
        self.counted += estimate.counted;
        *self.missed.get_or_insert_default() += estimate.missed();
    }

    fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.timed)
    }

    pub(super) fn percentile(&self, percent: f64) -> Option<u64> {
        self.latency.percentile(percent).min(self.max)
    }

    fn shown_percentile(&self, percent: f64) -> Datum {
        match self.percentile(percent) {
            Some(bound) if self.latency.is_folded() => Datum::AtMost(bound),
            exact => exact.into(),
        }
    }

    /// What rows are sorted by; absent where it is the name.
    pub(super) fn figure(&self, sort: Sort) -> Option<u64> {
        match sort {
            Sort::Calls => Some(self.all_calls()),
            Sort::Inclusive => self.corrected().map(|[inclusive, _]| inclusive),
            Sort::Exclusive => self.corrected().map(|[_, exclusive]| exclusive),
            Sort::Mean => self.mean(),
            Sort::P50 => self.percentile(50.0),
            Sort::P90 => self.percentile(90.0),
            Sort::P99 => self.percentile(99.0),
            Sort::P999 => self.percentile(99.9),
            Sort::Max => self.max,
            Sort::Lost => Some(self.lost),
            Sort::Name => None,
        }
    }

    /// Adds the calls of another row.
    pub(super) fn merge(&mut self, other: &Stats) {
        self.calls += other.calls;
        for (mine, theirs) in self.endings.iter_mut().zip(other.endings) {
            *mine += theirs;
        }
        self.inclusive = self.inclusive.saturating_add(other.inclusive);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        self.tracing = Tracing::merged(self.tracing, other.tracing);
        self.lost += other.lost;
        self.counted += other.counted;
        if let Some(missed) = other.missed {
            *self.missed.get_or_insert_default() += missed;
        }
        self.timed += other.timed;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
        self.latency.merge(&other.latency);
    }

    /// With those that have no record.
    fn all_calls(&self) -> u64 {
        self.calls + self.counted + self.missed.map_or(0, |missed| missed.estimated)
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Time of the timed and open calls; absent where there are calls, and none of them was timed.
    pub(super) fn inclusive(&self) -> Option<u64> {
        self.has_time().then_some(self.inclusive)
    }

    /// The same without traced callees.
    pub(super) fn exclusive(&self) -> Option<u64> {
        self.has_time().then_some(self.exclusive)
    }

    /// Inclusive and exclusive time, and what tracing took of them, where it is known.
    pub(super) fn times(&self) -> Option<[Time; 2]> {
        let [of_inclusive, of_exclusive] = self.tracing.filter(|_| self.has_time())?;
        Some([Time::new(self.inclusive, of_inclusive), Time::new(self.exclusive, of_exclusive)])
    }

    /// Inclusive and exclusive time without tracing as far as it is known what that took: what rows are put in order by,
    /// and what their shares are of.
    pub(super) fn corrected(&self) -> Option<[u64; 2]> {
        let recorded = || self.has_time().then_some([self.inclusive, self.exclusive]);
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
        self.calls > self.untimed() || self.lost + self.all_calls() == 0
    }

    /// Whether a call has a known duration.
    pub(super) fn is_timed(&self) -> bool {
        self.timed > 0
    }

    /// Calls on record that were not timed.
    pub(super) fn untimed(&self) -> u64 {
        self.endings[Ending::Unseen as usize]
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
            Some((Known::AtLeast(calls), _)) => [Datum::Count(calls), Datum::Absent],
            Some((Known::About(calls), margin)) => [Datum::Count(calls), Datum::Count(margin)],
        };
        let [returned, unwound, open, unseen] = self.endings.map(Datum::Count);
        vec![
            Datum::Count(self.calls),
            Datum::Count(self.timed),
            of_inclusive,
            self.inclusive().into(),
            self.exclusive().into(),
            self.min.into(),
            self.mean().into(),
            self.shown_percentile(50.0),
            self.shown_percentile(90.0),
            self.shown_percentile(99.0),
            self.shown_percentile(99.9),
            self.max.into(),
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
