use super::*;

const COST: f64 = 700.0;
const PERIOD: u64 = 400_000_000;
const PAUSE: u64 = 2_000_000;

/// What may be measured of a cost, as a part of it.
const WRONG_COSTS: [f64; 5] = [0.5, 0.7, 1.0, 1.4, 1.9];

fn at(time: u64) -> MomentRecord {
    MomentRecord { time, cpu_time: time, away: 3, cpu: 1 }
}

/// A loop that calls a function each `distance` ns, and 700 ns later in windows of 1 ms; its pass counter is
/// in the upper half of a word of its stack and begins anew each `passes`. A hit was measured to cost `cost`.
struct Loop {
    passes: u64,
    distance: u64,
    cost: f64,
    calls: u64,
    counted: u64,
    unseen: u64,
    last: MomentRecord,
    now: u64,
    window: u32,
    estimator: Estimator,
}

impl Loop {
    fn new(passes: u64) -> Loop {
        let estimator = Estimator::default();
        let (last, distance, cost) = (MomentRecord::default(), 50, COST);
        Loop { passes, distance, cost, calls: 0, counted: 0, unseen: 0, last, now: 0, window: 0, estimator }
    }

    fn sighting(&self, number: u64) -> SightingRecord {
        let mut words = [7; Limit::RT_SIGHTED.0 as usize];
        let call = self.calls + number;
        words[9] = ((call % self.passes) << 32) | (call * 77 % 31);
        words[2] = call * call;
        SightingRecord { moment: at(self.now + number * (700 + self.distance)), words }
    }

    fn look_through_a_window(&mut self) {
        let hits = 1_000_000 / (700 + self.distance);
        self.window += 1;
        let mut calls = CountedCallsRecord {
            calls: self.counted + hits,
            before: self.counted,
            last: at(self.now + (hits - 1) * (700 + self.distance)),
            left: self.last,
            window: self.window,
            sightings: Limit::RT_SIGHTINGS.0,
            ..CountedCallsRecord::default()
        };
        for (place, sighting) in (0..).zip(&mut calls.sighting) {
            *sighting = self.sighting(place);
        }
        let key = CountedKey { location: 1, region: 2, site: 3 };
        let window = Window { number: self.window, from: self.now, to: self.now + 1_000_000 };
        self.estimator.add(&[Counted { key, calls }], window, |_| Some(self.cost));
        self.last = calls.last;
        self.counted += hits;
        self.calls += hits;
        self.now += 1_000_000;
    }

    /// It runs on without probes.
    fn go_on(&mut self, time: u64) {
        self.calls += time / self.distance;
        self.unseen += time / self.distance;
        self.now += time;
    }

    fn run(&mut self, looks: u64) {
        for number in 1..=looks {
            self.look_through_a_window();
            self.go_on(PAUSE / 1_000 * (500 + number * 618 % 1_000 * 2));
            self.look_through_a_window();
            if number < looks {
                self.go_on(PERIOD / 1_000 * (700 + number * 371 % 600));
            }
        }
    }

    fn estimate(&self) -> Estimate {
        let [estimate] = self.estimator.estimates()[..] else { panic!("one row") };
        estimate
    }
}

#[test]
fn a_callers_own_count_tells_the_number_of_calls() {
    for wrong in WRONG_COSTS {
        let mut target = Loop::new(1 << 31);
        target.cost *= wrong;
        target.run(10);
        let Estimate { counted, estimated, least, most, .. } = target.estimate();
        assert_eq!((counted, estimated), (26_660, target.unseen), "{wrong}");
        assert!(least <= estimated && estimated <= most && most - least < target.unseen / 100, "{least} {most}");
        let rate = target.estimator.rate(RegionId(2)).unwrap_or_default();
        assert!(agree(rate, 20e6), "{rate}");
    }
}

/// Its own count over a long gap says less than was called: by chance it may agree with itself once
/// or twice. Over a short one it tells the pace, if the loop is longer than that.
#[test]
fn a_loop_that_begins_anew_is_not_believed() {
    for passes in [1_000, 200_000, 1_234_567, 3_333_333, 9_000_000, 20_000_000] {
        let mut target = Loop::new(passes);
        target.run(20);
        let (estimate, truth) = (target.estimate(), target.unseen);
        assert!(estimate.least <= truth && truth <= estimate.most, "{passes}: {estimate:?}, {truth}");
        if passes > 1_000 {
            assert!(estimate.estimated.abs_diff(truth) <= truth / 20, "{passes}: {estimate:?}, {truth}");
        }
    }
}

/// Loops of all lengths, where a hit takes half or twice of what was measured.
#[test]
fn a_wrong_cost_keeps_the_truth_in_the_range() {
    for (number, wrong) in (0..500).zip(WRONG_COSTS.into_iter().cycle()) {
        let passes = (1_000.0 * 50_000_f64.powf(f64::from(number) / 500.0)) as u64;
        let mut target = Loop::new(passes);
        target.cost *= wrong;
        target.run(20);
        let (estimate, truth) = (target.estimate(), target.unseen);
        assert!(estimate.least <= truth && truth <= estimate.most, "{passes}, {wrong}: {estimate:?}, {truth}");
        if passes > 2_500_000 {
            assert!(estimate.estimated.abs_diff(truth) <= truth / 10, "{passes}, {wrong}: {estimate:?}, {truth}");
        }
    }
}

/// Loops of all lengths on a machine that is now slow and now quick, and that pauses; none is looked at when
/// they end.
#[test]
fn a_machine_that_changes_its_speed_keeps_the_truth_in_the_range() {
    for number in 0..500_u32 {
        let passes = (1_000.0 * 50_000_f64.powf(f64::from(number) / 500.0)) as u64;
        let mut target = Loop::new(passes);
        let mut random = u64::from(number) + 1;
        let mut chance = |of: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % of
        };
        for _ in 0..10 {
            target.look_through_a_window();
            target.go_on(500_000 + chance(2_000_000));
            target.look_through_a_window();
            for _ in 0..8 {
                target.distance = [50, 55, 95][chance(3) as usize];
                target.go_on(PERIOD / 8);
                target.now += chance(20) / 19 * 17_000_000;
            }
        }
        target.estimator.end(&Ended { location: LocationId(1), time: Timestamp(target.now), cpu_time: target.now });
        let (estimate, truth) = (target.estimate(), target.unseen);
        assert!(estimate.least <= truth && truth <= estimate.most, "{passes}: {estimate:?}, {truth}");
    }
}

fn work(hits: u64, length: f64, running: f64) -> Work {
    Work { length, running, hits: hits as f64, cost: hits as f64 * COST }
}

/// A loop calls each of some functions once and takes 200 ns for it, and that and their probes in windows.
#[test]
fn the_probes_of_other_functions_are_not_taken_for_the_programs_time() {
    for functions in [1_u64, 4, 20] {
        let round = 200 + functions * COST as u64;
        let mut estimator = Estimator::default();
        for number in 1..=10 {
            let now = u64::from(number) * PERIOD;
            let hits = 1_000_000 / round;
            let place = |function: u64| {
                let before = u64::from(number - 1) * hits;
                let mut calls = CountedCallsRecord {
                    calls: before + hits,
                    before,
                    last: at(now + hits * round),
                    left: at(now + hits * round - PERIOD),
                    window: number,
                    sightings: Limit::RT_SIGHTINGS.0,
                    ..CountedCallsRecord::default()
                };
                for (pass, sighting) in (0..).zip(&mut calls.sighting) {
                    sighting.moment = at(now + pass * round + function * COST as u64);
                }
                Counted { key: CountedKey { location: 1, region: function as u32, site: 3 }, calls }
            };
            let counted: Vec<Counted> = (0..functions).map(place).collect();
            let window = Window { number, from: now, to: now + 1_000_000 };
            estimator.add(&counted, window, |_| Some(COST));
        }
        let truth = 9 * (PERIOD - 1_000_000) / 200;
        for estimate in estimator.estimates() {
            assert!(estimate.least <= truth && truth <= estimate.most, "{functions}: {estimate:?}, {truth}");
        }
    }
}

#[test]
fn nothing_but_the_sum_is_kept_of_a_thread_that_has_ended() {
    let mut target = Loop::new(1 << 31);
    target.run(10);
    let before = target.estimator.estimates();
    target.estimator.end(&Ended { location: LocationId(1), time: Timestamp(target.now), cpu_time: target.now });
    assert_eq!(target.estimator.estimates(), before);
    assert!(target.estimator.sites.is_empty() && target.estimator.threads.is_empty());
}

/// Its thread did not run when the probes went, or did not call it yet.
#[test]
fn what_a_place_was_called_before_it_was_first_seen_is_in_the_range() {
    let mut target = Loop::new(1 << 31);
    target.estimator.is_off(RegionId(2), 0);
    let late = 150_000_000;
    (target.now, target.calls) = (late, late / 50);
    target.run(10);
    let [estimate] = target.estimator.estimates()[..] else { panic!("one row") };
    for truth in [target.unseen, target.unseen + late / 50] {
        assert!(estimate.least <= truth && truth <= estimate.most, "{estimate:?}, {truth}");
    }
}

/// Half of the looks show nothing of it, though its thread runs.
#[test]
fn calls_are_not_taken_to_go_on_through_windows_that_show_none() {
    let mut target = Loop::new(1_234_567);
    for _ in 0..20 {
        target.run(1);
        target.go_on(PERIOD / 2);
        for _ in 0..2 {
            target.window += 1;
            target.now += 1_000_000;
            let key = CountedKey { location: 1, region: 2, site: 3 };
            let calls = CountedCallsRecord {
                calls: target.counted,
                last: target.last,
                window: target.window - 1,
                ..Default::default()
            };
            let window = Window { number: target.window, from: target.now - 1_000_000, to: target.now };
            target.estimator.add(&[Counted { key, calls }], window, |_| Some(COST));
        }
        target.now += PERIOD / 2;
    }
    let (estimate, truth) = (target.estimate(), target.unseen);
    assert!(estimate.least <= truth && truth <= estimate.most, "{estimate:?}, {truth}");
    assert!(estimate.estimated.abs_diff(truth) <= truth / 10, "{estimate:?}, {truth}");
}

#[test]
fn the_range_of_a_rate_holds_the_truth() {
    for (hits, gap) in [(1_333, 50.0), (660, 815.0), (100, 9_300.0), (1, 1e6)] {
        for wrong in WRONG_COSTS {
            let mut work = work(hits, 1e6, 0.0);
            work.cost *= wrong;
            let [about, least, most] = rate(hits, &work);
            let truth = 1.0 / gap;
            assert!(least <= truth && truth <= most, "{hits}, {wrong}: {least} {about} {most}");
            assert!(least <= about && about <= most, "{hits}, {wrong}: {least} {about} {most}");
        }
    }
    assert_eq!(rate(0, &work(0, 1e6, 0.0))[..2], [0.0, 0.0]);
    // The thread ran for a tenth of the window.
    let [about, _, most] = rate(133, &work(133, 1e6, 133.0 * 750.0));
    assert!(about > 0.01 && most >= 1.0 / 50.0, "{about} {most}");
}
