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
        let estimates = self.estimator.estimates();
        assert_eq!(estimates.len(), 1);
        estimates[0]
    }

    fn assert_no_more_than_truth(&self) {
        let estimate = self.estimate();
        assert_eq!(estimate.counted, self.counted);
        assert!(estimate.least <= self.truth, "{} calls: {estimate:?}", self.truth);
    }
}

#[test]
fn of_a_steady_pace_a_good_part_is_known() {
    for (pace, hit, measured) in [(20_000, 1_000, 1_000.0), (9_000, 1_000, 700.0), (5_000, 1_000, 1_300.0)] {
        let mut target = Simulated::new(hit, measured);
        target.run(pace, 40).assert_no_more_than_truth();
        assert!(target.estimate().least > target.truth / 4, "{} calls: {:?}", target.truth, target.estimate());
    }
}

/// What its own probe takes hides the pace.
#[test]
fn of_a_function_of_some_nanoseconds_little_is_known() {
    let mut target = Simulated::new(1_000, 900.0);
    target.run(80, 40).assert_no_more_than_truth();
    assert!(target.estimate().least > 0);
}

#[test]
fn of_a_loop_that_becomes_slower_or_quicker_there_are_no_fewer_calls() {
    for (before, after) in [(80, MS), (20_000, MS), (MS, 20_000), (30_000, 60_000), (10_000, 3_000)] {
        let mut target = Simulated::new(1_000, 1_000.0);
        target.run(before, 17).run(after, 23).assert_no_more_than_truth();
        target.run(before, 3).assert_no_more_than_truth();
    }
}

#[test]
fn what_is_restored_goes_unseen_no_more() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 20);
    target.estimator.restore(REGION);
    let before = target.estimate();
    target.now += 5_000 * MS;
    assert_eq!(target.estimate(), before);
    assert!(target.estimator.rates().is_empty());
}

#[test]
fn a_thread_that_ends_keeps_what_is_known_of_it() {
    let mut target = Simulated::new(1_000, 1_000.0);
    target.run(20_000, 40);
    let before = target.estimate();
    target.estimator.end(LocationId(LOCATION));
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
    target.estimator.restore(unmet);
    let estimates = target.estimator.estimates();
    let of_unmet = estimates.iter().find(|estimate| estimate.region == unmet).map(|of| (of.location.0, of.least));
    assert_eq!(of_unmet, Some((LOCATION, 0)));
    assert_eq!(estimates.len(), 2);
}

#[test]
fn where_no_window_has_met_any_call_nothing_is_known_either() {
    let mut estimator = Estimator::default();
    estimator.throttle([REGION].into_iter(), 0);
    let window = Window { from: 5 * MS, to: 6 * MS };
    estimator.add(&[], window, |_| Some(1_000.0));
    let none = Estimate { location: NO_LOCATION, region: REGION, counted: 0, least: 0 };
    assert_eq!(estimator.estimates(), [none]);
}
