//! What calls add up to.

use rtrace_model::{Call, Ending, FoldedPath, Latency, PathProfile};

use crate::Visited;

/// Sums over calls. Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// How many.
    pub calls: u64,
    /// The same by [`Ending`].
    pub endings: [u64; 4],
    /// Time in them, where it is not in that of another one.
    pub inclusive: u64,
    /// Time without that of timed callees.
    pub exclusive: u64,
    /// All durations of those that were timed and have ended, however nested they are.
    pub ended: u64,
    /// The shortest of these.
    pub min: Option<u64>,
    /// The longest of these.
    pub max: Option<u64>,
    /// All of these.
    pub latency: Latency,
}

impl Sums {
    /// Adds calls; `is_outermost` unless their time is in that of others here.
    pub fn add(&mut self, calls: Visited<'_>, is_outermost: bool) {
        match calls {
            Visited::One(measured) => self.add_call(&measured.call, is_outermost),
            Visited::Around(_) => {}
            Visited::Path(path) => self.add_path(path, is_outermost),
        }
    }

    /// Adds a call.
    pub fn add_call(&mut self, call: &Call, is_outermost: bool) {
        self.calls += 1;
        self.endings[call.ending as usize] += 1;
        let (Some(duration), Some(exclusive)) = (call.duration, call.exclusive()) else { return };
        self.add_time(duration, exclusive, is_outermost);
        if call.ending == Ending::Open {
            return;
        }
        self.ended = self.ended.saturating_add(duration);
        self.min = Some(self.min.map_or(duration, |min| min.min(duration)));
        self.max = self.max.max(Some(duration));
        self.latency.record(duration);
    }

    /// Adds the calls of a path.
    fn add_path(&mut self, path: &FoldedPath, is_outermost: bool) {
        match &path.detail {
            Some(detail) => {
                self.add_all_but_durations(path, is_outermost);
                self.latency.record_counted(&detail.durations);
            }
            None => self.add_profile(path, is_outermost),
        }
    }

    /// Adds the calls of a path of which durations are known to a power of two.
    pub fn add_profile(&mut self, path: &PathProfile, is_outermost: bool) {
        self.add_all_but_durations(path, is_outermost);
        if path.timed > 0 {
            self.latency.record_folded(&path.histogram);
        }
    }

    fn add_all_but_durations(&mut self, path: &PathProfile, is_outermost: bool) {
        self.calls += path.calls;
        let endings = [path.timed.saturating_sub(path.unwound), path.unwound, path.open, path.unseen];
        self.endings.iter_mut().zip(endings).for_each(|(sum, calls)| *sum += calls);
        self.add_time(path.inclusive, path.exclusive, is_outermost);
        if path.timed > 0 {
            self.ended = self.ended.saturating_add(path.inclusive.saturating_sub(path.open_time));
            self.add_extremes(path.min, path.max);
        }
    }

    /// Adds those of other calls.
    pub fn merge(&mut self, other: &Sums) {
        self.calls += other.calls;
        self.endings.iter_mut().zip(other.endings).for_each(|(sum, calls)| *sum += calls);
        self.add_time(other.inclusive, other.exclusive, true);
        self.ended = self.ended.saturating_add(other.ended);
        self.add_extremes(other.min, other.max);
        self.latency.merge(&other.latency);
    }

    fn add_time(&mut self, inclusive: u64, exclusive: u64, is_outermost: bool) {
        if is_outermost {
            self.inclusive = self.inclusive.saturating_add(inclusive);
        }
        self.exclusive = self.exclusive.saturating_add(exclusive);
    }

    fn add_extremes(&mut self, min: Option<u64>, max: Option<u64>) {
        self.min = self.min.into_iter().chain(min).min();
        self.max = self.max.max(max);
    }

    /// Those that ended so.
    pub fn of_ending(&self, ending: Ending) -> u64 {
        self.endings[ending as usize]
    }

    /// Those that were not timed.
    pub fn untimed(&self) -> u64 {
        self.of_ending(Ending::Unseen)
    }

    /// Those that were timed and have ended, of which the mean and the percentiles are.
    pub fn timed(&self) -> u64 {
        self.of_ending(Ending::Returned) + self.of_ending(Ending::Unwound)
    }

    /// The mean duration.
    pub fn mean(&self) -> Option<u64> {
        self.ended.checked_div(self.timed())
    }

    /// The duration that `percent` of the calls do not exceed.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        self.latency.percentile(percent).min(self.max)
    }
}
