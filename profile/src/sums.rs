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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rtrace_model::{PathDetail, histogram_bucket};

    use super::*;

    /// A call of that ending; its duration and the time in callees count where it was timed.
    fn call(ending: usize, duration: u64, child: u64) -> Call {
        let ending = Ending::ALL[ending];
        let duration = Some(duration).filter(|_| ending != Ending::Unseen);
        Call { duration, child, ending, ..Call::default() }
    }

    /// The calls as one path, as a recorder folds them.
    fn folded(calls: &[Call], has_durations: bool) -> FoldedPath {
        let mut path = PathProfile::default();
        let mut durations = Latency::default();
        for call in calls {
            path.calls += 1;
            let Some(duration) = call.duration else {
                path.unseen += 1;
                continue;
            };
            path.inclusive += duration;
            path.exclusive += duration.saturating_sub(call.child);
            if call.ending == Ending::Open {
                path.open += 1;
                path.open_time += duration;
                continue;
            }
            path.timed += 1;
            path.unwound += u64::from(call.ending == Ending::Unwound);
            path.min = path.min.into_iter().chain([duration]).min();
            path.max = path.max.max(Some(duration));
            path.histogram[histogram_bucket(duration)] += 1;
            durations.record(duration);
        }
        let detail = PathDetail { durations: durations.listed(), ..PathDetail::default() };
        FoldedPath { profile: path, detail: has_durations.then_some(detail) }
    }

    /// All that is known of sums, and the median where durations are known as well as `of` does.
    fn known(sums: &Sums, of: &Sums) -> (u64, [u64; 4], [u64; 3], [Option<u64>; 4]) {
        let median = sums.percentile(50.0).filter(|_| sums.latency.is_folded() == of.latency.is_folded());
        let Sums { calls, endings, inclusive, exclusive, ended, min, max, .. } = *sums;
        (calls, endings, [inclusive, exclusive, ended], [min, max, sums.mean(), median])
    }

    proptest! {
        #[test]
        fn calls_add_up_to_the_same_one_by_one_by_path_and_in_parts(
            calls in prop::collection::vec((0..4_usize, 0..5_000_u64, 0..6_000_u64), 1..60),
            split in any::<prop::sample::Index>(),
            has_durations in any::<bool>(),
        ) {
            let calls: Vec<Call> = calls.into_iter().map(|(ending, duration, child)| call(ending, duration, child)).collect();
            let (mut single, mut parts) = (Sums::default(), [Sums::default(), Sums::default()]);
            let split = split.index(calls.len());
            for (place, call) in calls.iter().enumerate() {
                single.add_call(call, true);
                parts[usize::from(place < split)].add_call(call, true);
            }
            let [mut merged, other] = parts;
            merged.merge(&other);
            prop_assert_eq!(known(&merged, &single), known(&single, &merged));
            let path = folded(&calls, has_durations);
            let mut of_path = Sums::default();
            of_path.add(Visited::Path(&path), true);
            prop_assert_eq!(known(&of_path, &single), known(&single, &of_path));
        }
    }

    #[test]
    fn what_is_within_others_adds_no_inclusive_time_and_what_is_around_adds_nothing() {
        let measured = rtrace_model::Measured { call: call(0, 10, 4), readings: Box::default(), values: None };
        let mut sums = Sums::default();
        sums.add(Visited::Around(&measured), true);
        assert_eq!((sums.calls, sums.inclusive), (0, 0));
        sums.add(Visited::One(&measured), true);
        sums.add(Visited::One(&measured), false);
        assert_eq!((sums.calls, sums.inclusive, sums.exclusive, sums.ended), (2, 10, 12, 20));
        assert_eq!((sums.timed(), sums.untimed(), sums.of_ending(Ending::Returned)), (2, 0, 2));
    }
}
