use super::*;

const MS: u64 = 1_000_000;
const REGION: RegionId = RegionId(2);
const LOCATION: u32 = 1;

/// Random numbers that are the same each time.
struct Chance(u64);

impl Chance {
    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Windows of 1 ms some 200 ms apart, of threads that call one function at random times; their pace may change.
struct Simulated {
    estimator: Estimator,
    chance: Chance,
    /// Nanoseconds that a hit takes, in truth and as it was measured.
    hit: f64,
    measured: f64,
    now: u64,
    counted: u64,
    truth: f64,
}

impl Simulated {
    fn new(seed: u64, hit: f64, measured: f64) -> Simulated {
        let mut estimator = Estimator::default();
        estimator.throttle([REGION].into_iter(), 0);
        Simulated { estimator, chance: Chance(seed), hit, measured, now: 0, counted: 0, truth: 0.0 }
    }

    /// `pace`: nanoseconds between two calls without probes on average, from the time on; for so many windows.
    fn run(&mut self, pace: impl Fn(u64) -> f64, windows: u32) -> &mut Simulated {
        for _ in 0..windows {
            let gap = (150.0 + 100.0 * self.chance.part()) as u64 * MS;
            self.truth += (0..gap / MS).map(|ms| MS as f64 / pace(self.now + ms * MS)).sum::<f64>();
            self.now += gap;
            let window = Window { from: self.now, to: self.now + MS };
            let (mut at, mut hits) = (0.0, 0);
            loop {
                at += -pace(self.now) * (1.0 - self.chance.part()).ln();
                if at >= MS as f64 {
                    break;
                }
                hits += 1;
                at += self.hit;
            }
            self.counted += hits;
            self.now = window.to;
            let key = CountedKey { location: LOCATION, region: REGION.0 };
            let counted = Counted { place: 0, key, calls: self.counted };
            self.estimator.add(&[counted], window, |_| Some(self.measured));
        }
        self
    }

    fn estimate(&self) -> Estimate {
        let estimates = self.estimator.estimates(self.now);
        assert_eq!(estimates.len(), 1);
        assert_eq!(estimates[0].counted, self.counted);
        estimates[0]
    }

    /// The margin as a part of the truth, and whether that is within it.
    fn judged(&self) -> (f64, bool) {
        let (estimated, margin) = self.estimate().estimated.zip(self.estimate().margin).expect("windows met calls");
        (margin as f64 / self.truth, (estimated as f64 - self.truth).abs() <= margin as f64)
    }
}

/// Of 200 recordings each, with the mean margin in percent.
fn right_of_200(hit: f64, measured: f64, pace: fn(u64) -> f64, windows: u32) -> (usize, f64) {
    let judged = (0..200).map(|seed| Simulated::new(seed, hit, measured).run(pace, windows).judged());
    let judged: Vec<(f64, bool)> = judged.collect();
    let margin = judged.iter().map(|(margin, _)| margin).sum::<f64>() / judged.len() as f64;
    (judged.iter().filter(|(_, is_right)| *is_right).count(), margin * 100.0)
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let steady: fn(u64) -> f64 = |_| 20_000.0;
    let wave: fn(u64) -> f64 = |now| 20_000.0 / (1.0 + 0.8 * (now as f64 / 1.5e9).sin());
    let phases: fn(u64) -> f64 = |now| if (now / (700 * MS)).is_multiple_of(3) { 5_000.0 } else { 200_000.0 };
    let rare: fn(u64) -> f64 = |_| 1_000_000.0;
    for (name, pace, windows) in
        [("steady", steady, 50), ("wave", wave, 50), ("phases", phases, 50), ("rare", rare, 100), ("few", steady, 10)]
    {
        for (hit, measured) in [(1_000.0, 1_000.0), (1_000.0, 850.0), (1_000.0, 1_150.0)] {
            let (right, margin) = right_of_200(hit, measured, pace, windows);
            println!("{name}, hit {hit} as {measured}: {right} of 200 right, margin {margin:.1} %");
            assert!(right >= 185, "{name}: {right} of 200, margin {margin:.1} %");
        }
    }
    let margin = |pace, windows| right_of_200(1_000.0, 1_000.0, pace, windows).1;
    assert!(margin(steady, 50) < 10.0);
    assert!(margin(phases, 50) < 36.0, "{}", margin(phases, 50));
}

/// What its own probe takes hides the pace.
#[test]
fn of_a_function_of_some_nanoseconds_a_part_is_known() {
    let mut target = Simulated::new(1, 1_000.0, 900.0);
    let Estimate { estimated, margin, .. } = target.run(|_| 80.0, 40).estimate();
    let part = estimated.expect("a part is known") as f64 / target.truth;
    assert!(margin.is_none() && part > 0.05 && part < 0.1, "{part}");
}

/// Of a number that cannot be below 0, the least is above it however much windows differ.
#[test]
fn where_windows_differ_much_a_part_is_known_too() {
    for seed in 0..50 {
        let mut target = Simulated::new(seed, 1_000.0, 900.0);
        let phases = |now: u64| if (now / (700 * MS)).is_multiple_of(2) { 80.0 } else { 1e12 };
        let Estimate { estimated, margin, .. } = target.run(phases, 20).estimate();
        let part = estimated.expect("a part is known") as f64 / target.truth;
        assert!(margin.is_none() && part > 0.0 && part < 1.0, "{part}");
    }
}

/// Windows in which the program calls most are those in which probes leave it the least. Without these, an estimate would be that of
/// the rest of the time.
#[test]
fn no_estimate_is_of_the_quiet_windows_alone() {
    let bursts = |now: u64| if (now / (100 * MS)).is_multiple_of(5) { 1_000.0 } else { 100_000.0 };
    let is_wrong = |seed: &u64| {
        let mut target = Simulated::new(*seed, 5_000.0, 5_000.0);
        let Estimate { estimated, margin, .. } = target.run(bursts, 60).estimate();
        let (estimated, margin) = (estimated.expect("windows met calls") as f64, margin.map(|margin| margin as f64));
        margin.map_or(estimated > target.truth, |margin| (estimated - target.truth).abs() > margin)
    };
    assert_eq!((0..100).filter(is_wrong).count(), 0);
}

#[test]
fn what_is_restored_goes_unseen_no_more() {
    let mut target = Simulated::new(1, 1_000.0, 1_000.0);
    target.run(|_| 20_000.0, 20);
    target.estimator.restore(REGION, target.now);
    let before = target.estimate();
    target.now += 5_000 * MS;
    assert_eq!(target.estimate(), before);
    assert!(target.estimator.rates().is_empty());
}

#[test]
fn threads_share_what_is_known_of_a_region() {
    let mut estimator = Estimator::default();
    estimator.throttle([REGION].into_iter(), 0);
    for turn in 1..=20 {
        let of =
            |location, calls| Counted { place: 0, key: CountedKey { location, region: REGION.0 }, calls: calls * turn };
        let window = Window { from: turn * 100 * MS, to: turn * 100 * MS + MS };
        estimator.add(&[of(1, 30), of(2, 10)], window, |_| Some(0.0));
    }
    let mut estimates = estimator.estimates(2_001 * MS);
    estimates.sort_by_key(|estimate| estimate.location);
    let known: Vec<_> = estimates.iter().map(|of| (of.counted, of.estimated)).collect();
    // 1,981 ms outside of windows.
    assert_eq!(known, [(600, Some(59_430)), (200, Some(19_810))]);
}

#[test]
fn the_pace_at_present_follows_a_load_that_falls() {
    let mut target = Simulated::new(1, 1_000.0, 1_000.0);
    let rate = |target: &Simulated| target.estimator.rates()[&REGION];
    assert!(rate(target.run(|_| 5_000.0, 40)) > 180_000.0);
    assert!(rate(target.run(|_| 1e9, 300)) < 1_000.0, "{}", rate(&target));
}

/// Else it would look as if all its calls were recorded.
#[test]
fn of_a_function_that_few_windows_have_met_there_may_be_any_number_of_calls() {
    let mut target = Simulated::new(1, 1_000.0, 1_000.0);
    let unmet = RegionId(7);
    target.estimator.throttle([unmet].into_iter(), 0);
    target.run(|_| 20_000.0, 20);
    target.estimator.restore(unmet, target.now);
    let estimates = target.estimator.estimates(target.now);
    let of_unmet = estimates.iter().find(|estimate| estimate.region == unmet);
    assert_eq!(of_unmet.map(|of| (of.location.0, of.estimated)), Some((LOCATION, None)));
    assert_eq!(estimates.len(), 2);
}

#[test]
fn where_no_window_has_met_any_call_nothing_is_known_either() {
    let mut estimator = Estimator::default();
    estimator.throttle([REGION].into_iter(), 0);
    let window = Window { from: 5 * MS, to: 6 * MS };
    estimator.add(&[], window, |_| Some(1_000.0));
    let none = Estimate { location: NO_LOCATION, region: REGION, ..Estimate::default() };
    assert_eq!(estimator.estimates(7 * MS), [none]);
}
