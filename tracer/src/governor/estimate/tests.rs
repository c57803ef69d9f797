use super::*;

const MS: u64 = 1_000_000;
const REGION: RegionId = RegionId(2);
const LOCATION: u32 = 1;

/// Windows of 1 ms each 200 ms of a thread that calls one function; its pace may change.
struct Simulated {
    estimator: Estimator,
    /// Nanoseconds that a hit takes, in truth and as it was measured.
    hit: u64,
    measured: f64,
    now: u64,
    counted: u64,
    truth: u64,
}

impl Simulated {
    fn new(hit: u64, measured: f64) -> Simulated {
        let mut estimator = Estimator::default();
        estimator.throttle([REGION].into_iter(), 0);
        Simulated { estimator, hit, measured, now: 0, counted: 0, truth: 0 }
    }

    /// Nanoseconds between two calls without probes, for so many periods.
    fn run(&mut self, pace: u64, periods: u64) -> &mut Simulated {
        for _ in 0..periods {
            let window = Window { from: self.now, to: self.now + MS };
            let hits = MS / (pace + self.hit);
            self.counted += hits;
            let key = CountedKey { location: LOCATION, region: REGION.0 };
            let counted = Counted { key, calls: self.counted };
            self.estimator.add(&[counted], window, |_| Some(self.measured));
            self.truth += 199 * MS / pace;
            self.now += 200 * MS;
        }
        self
    }

    fn estimate(&self) -> Estimate {
        let estimates = self.estimator.estimates(self.now);
        assert_eq!(estimates.len(), 1);
        estimates[0]
    }

    fn assert_truth_in_range(&self) {
        let estimate = self.estimate();
        assert_eq!(estimate.counted, self.counted);
        assert!(estimate.least <= self.truth, "{} calls: {estimate:?}", self.truth);
        assert!(estimate.most.is_none_or(|most| self.truth <= most), "{} calls: {estimate:?}", self.truth);
    }
}

#[test]
fn a_steady_pace_is_a_range_with_the_truth_in_it() {
    for (pace, hit, measured) in [(20_000, 1_000, 1_000.0), (9_000, 1_000, 700.0), (5_000, 1_000, 1_300.0)] {
        let mut target = Simulated::new(hit, measured);
        target.run(pace, 40).assert_truth_in_range();
        let Estimate { estimated, most, .. } = target.estimate();
        assert!(most.is_some(), "{:?}", target.estimate());
        assert!(estimated.abs_diff(target.truth) < target.truth / 3, "{} calls: {:?}", target.truth, target.estimate());
    }
}

/// What its own probe takes hides the pace.
#[test]
fn of_a_function_of_some_nanoseconds_only_a_lower_bound_is_known() {
    let mut target = Simulated::new(1_000, 900.0);
    target.run(80, 40).assert_truth_in_range();
    let Estimate { estimated, least, most, .. } = target.estimate();
    assert_eq!((estimated, most), (least, None));
    assert!(least > 0);
}

#[test]
fn few_windows_give_no_upper_bound() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 5).assert_truth_in_range();
    assert_eq!(target.estimate().most, None);
}

#[test]
fn a_loop_that_becomes_slower_or_quicker_stays_in_the_range() {
    for (before, after) in [(80, MS), (20_000, MS), (MS, 20_000), (30_000, 60_000), (10_000, 3_000)] {
        let mut target = Simulated::new(1_000, 1_000.0);
        target.run(before, 17).run(after, 23).assert_truth_in_range();
        target.run(before, 3).assert_truth_in_range();
    }
}

/// A burst between windows is not known, however quiet they are.
#[test]
fn bursts_that_windows_seldom_meet_are_allowed_for() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(MS, 10).run(2_000, 1).run(MS, 10);
    target.truth += 190 * MS / 2_000;
    target.assert_truth_in_range();
}

#[test]
fn what_is_restored_goes_unseen_no_more() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 20);
    target.estimator.restore(REGION, target.now);
    let before = target.estimate();
    target.now += 5_000 * MS;
    assert_eq!(target.estimate(), before);
    assert!(target.estimator.rates().is_empty());
}

#[test]
fn a_thread_that_no_window_could_meet_leaves_no_upper_bound() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 40);
    assert!(target.estimate().most.is_some());
    target.estimator.end(&Ended { location: LocationId(7), time: Timestamp(target.now) });
    assert_eq!(target.estimate().most, None);
}

#[test]
fn a_thread_that_ends_keeps_what_is_known_of_it() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 40);
    let before = target.estimate();
    target.estimator.end(&Ended { location: LocationId(LOCATION), time: Timestamp(target.now) });
    assert_eq!(target.estimate(), before);
}

#[test]
fn the_pace_at_present_follows_a_load_that_falls() {
    let mut target = Simulated::new(1_000, 1_000.0);
    let rate = |target: &Simulated| target.estimator.rates()[&REGION];
    assert!(rate(target.run(5_000, 40)) > 200_000.0);
    assert!(rate(target.run(1_000 * MS, 300)) < 1_000.0, "{}", rate(&target));
}

/// Else it would look as if all its calls were recorded.
#[test]
fn of_a_function_that_no_window_has_met_there_may_be_any_number_of_calls() {
    let mut target = Simulated::new(1_000, 1_000.0);
    let unmet = RegionId(7);
    target.estimator.throttle([unmet].into_iter(), 0);
    target.run(20_000, 20);
    target.estimator.restore(unmet, target.now);
    let estimates = target.estimator.estimates(target.now);
    let of_unmet =
        estimates.iter().find(|estimate| estimate.region == unmet).map(|of| (of.location.0, of.least, of.most));
    assert_eq!(of_unmet, Some((LOCATION, 0, None)));
    assert_eq!(estimates.len(), 2);
}

#[test]
fn where_no_window_has_met_any_call_nothing_is_known_either() {
    let mut estimator = Estimator::default();
    estimator.throttle([REGION].into_iter(), 0);
    let window = Window { from: 5 * MS, to: 6 * MS };
    estimator.add(&[], window, |_| Some(1_000.0));
    let none = Estimate { location: NO_LOCATION, region: REGION, counted: 0, estimated: 0, least: 0, most: None };
    assert_eq!(estimator.estimates(7 * MS), [none]);
}
