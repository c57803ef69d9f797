//! Whether two samples of durations come from one distribution.
//!
//! The test is that of Kolmogorov and Smirnov for two samples: the distance is the largest
//! difference of the two cumulative distributions, and `p` the probability of that distance or
//! more between samples of one distribution, by the asymptotic series with Stephens' correction
//! for small samples (M. A. Stephens, "Use of the Kolmogorov-Smirnov, Cramér-von Mises and Related
//! Statistics Without Extensive Tables", J. R. Stat. Soc. B 32, 1970; as in Numerical Recipes,
//! section 14.3). With durations that occur many times `p` is rather too large than too small.
//!
//! Calls of one run are not independent of each other, and of millions of calls any nothing is significant: the test is
//! about the runs, of which there is one of each. So a change must also be large: a distance of at least
//! [`LEAST_DISTANCE`], and a quartile that moves by [`LEAST_EFFECT`]: where all calls take nearly the same time, a distance
//! may be large by a nanosecond. Up to [`UNCLEAR`], besides what tracing takes of a call, two runs of one program may
//! differ as much, with other places in memory and another load: in 91 pairs of 14 runs, of 728 medians of eight functions
//! of 1 to 9 µs, a hundredth moved by more than 13 %, and none by 18 %. The direction is the probability that a call of B takes longer than a call of A, ties counted half
//! (A. Vargha and H. D. Delaney, "A Critique and Improvement of the CL Common Language Effect Size
//! Statistics", J. Educ. Behav. Stat. 25, 2000): ½ where neither is slower; they call differences
//! below 0.06 small.

use rtrace_model::{Latency, words};

/// Probability of an error in one of all comparisons (Bonferroni) below which a change is told.
const ERROR: f64 = 0.01;

/// The smallest distance that is told as a change.
const LEAST_DISTANCE: f64 = 0.1;

/// The part by which one of the [`QUARTILES`] must move to differ.
const LEAST_EFFECT: f64 = 0.05;

/// The part up to which two runs of one program may differ.
pub(super) const UNCLEAR: f64 = 0.25;

const QUARTILES: [f64; 3] = [0.25, 0.5, 0.75];

/// How far from ½ the probability must be to tell a direction.
const LEAST_DIRECTION: f64 = 0.06;

/// How the durations of B differ from those of A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    /// Largest difference of the cumulative distributions, 0 to 1.
    pub(super) distance: f64,
    /// Probability of such a distance by chance.
    pub(super) p: f64,
    /// Probability that a call of B takes longer than one of A.
    pub(super) slower: f64,
    /// The largest part by which a quartile moves, and by which one moves more than tracing takes.
    effect: f64,
    beyond_tracing: f64,
    /// Root of the size of one sample that tells as much as both.
    effective: f64,
}

impl Shift {
    /// Compares distributions, both as coarse as the coarser one, of calls of which tracing took so many nanoseconds each.
    pub(super) fn of(a: &Latency, b: &Latency, tracing: f64) -> Option<Shift> {
        if a.is_folded() || b.is_folded() {
            return Shift::between(&a.folded().counted(), &b.folded().counted(), tracing);
        }
        Shift::between(&a.counted(), &b.counted(), tracing)
    }

    /// Compares durations with their numbers, each in ascending order; absent where a side is
    /// empty.
    fn between(a: &[(u64, u64)], b: &[(u64, u64)], tracing: f64) -> Option<Shift> {
        let number = |side: &[(u64, u64)]| side.iter().map(|&(_, count)| count as f64).sum::<f64>();
        let (all_a, all_b) = (number(a), number(b));
        if all_a == 0.0 || all_b == 0.0 {
            return None;
        }
        let (mut rest_a, mut rest_b) = (a.iter().peekable(), b.iter().peekable());
        let (mut below_a, mut below_b) = (0.0, 0.0);
        let (mut distance, mut slower) = (0.0_f64, 0.0);
        while let Some(duration) = rest_a.peek().into_iter().chain(rest_b.peek()).map(|&&(duration, _)| duration).min()
        {
            let here = |&&(at, _): &&(u64, u64)| at == duration;
            let here_a = rest_a.next_if(here).map_or(0.0, |&(_, count)| count as f64 / all_a);
            let here_b = rest_b.next_if(here).map_or(0.0, |&(_, count)| count as f64 / all_b);
            slower += here_b * (below_a + here_a / 2.0);
            below_a += here_a;
            below_b += here_b;
            distance = distance.max((below_a - below_b).abs());
        }
        let largest = |least: f64| {
            let moved = QUARTILES.map(|part| {
                let [before, after] = [quantile(a, all_a * part), quantile(b, all_b * part)];
                ((after - before).abs() - least) / before.max(1.0)
            });
            moved.into_iter().fold(0.0, f64::max)
        };
        let (effect, beyond_tracing) = (largest(0.0), largest(tracing));
        let effective = (all_a * all_b / (all_a + all_b)).sqrt();
        Some(Shift { distance, p: probability(distance, effective), slower, effect, beyond_tracing, effective })
    }

    /// What it is, as one of so many comparisons.
    pub(super) fn direction(&self, comparisons: usize) -> Direction {
        let is_small = self.distance < LEAST_DISTANCE || self.effect < LEAST_EFFECT;
        if self.p * comparisons as f64 >= ERROR || is_small {
            return Direction::Same;
        }
        match self.slower - 0.5 {
            _ if self.beyond_tracing < UNCLEAR => Direction::Unclear,
            direction if direction >= LEAST_DIRECTION => Direction::Slower,
            direction if direction <= -LEAST_DIRECTION => Direction::Faster,
            _ => Direction::Changed,
        }
    }

    /// Whether there are enough calls to tell distributions apart that have nothing in common.
    pub(super) fn can_tell(&self, comparisons: usize) -> bool {
        probability(1.0, self.effective) * (comparisons as f64) < ERROR
    }
}

words! {
    /// How durations changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Direction {
        Same = "same",
        Slower = "slower",
        Faster = "faster",
        /// Both ends moved.
        Changed = "changed",
        /// No more than two runs of one program may differ.
        Unclear = "unclear",
    }
}

/// The duration of the first call that so many calls do not exceed.
fn quantile(side: &[(u64, u64)], calls: f64) -> f64 {
    let mut below = 0.0;
    let reaches = |&&(_, count): &&(u64, u64)| {
        below += count as f64;
        below >= calls
    };
    side.iter().find(reaches).or(side.last()).map_or(0.0, |&(duration, _)| duration as f64)
}

/// Probability of such a distance by chance, with samples of that effective size.
fn probability(distance: f64, effective: f64) -> f64 {
    kolmogorov((effective + 0.12 + 0.11 / effective) * distance)
}

/// Probability that the statistic of Kolmogorov's distribution exceeds `x`:
/// 2 Σ (−1)ʲ⁻¹ exp(−2 j² x²), for j from 1.
fn kolmogorov(x: f64) -> f64 {
    // Below, the series does not converge and the sum is 1 to 16 digits.
    if x < 0.2 {
        return 1.0;
    }
    let term = |j: i32| if j % 2 == 1 { 1.0 } else { -1.0 } * (-2.0 * f64::from(j * j) * x * x).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn the_distribution_of_kolmogorov_has_its_known_points() {
        // The critical values of every table: 10 %, 5 %, 1 %.
        for (x, p) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01)] {
            assert!(close(kolmogorov(x), p), "{x}: {}", kolmogorov(x));
        }
        assert_eq!(kolmogorov(0.0), 1.0);
        assert_eq!(kolmogorov(50.0), 0.0);
    }

    #[test]
    fn folded_calls_compare_with_single_ones() {
        let mut single = Latency::default();
        (0..2_000).for_each(|step| single.record(1_000 + step % 20));
        let same = Shift::of(&single, &single.folded(), 0.0).unwrap();
        assert_eq!((same.distance, same.slower), (0.0, 0.5));
        let mut slow = Latency::default();
        (0..2_000).for_each(|_| slow.record(5_000));
        assert_eq!(Shift::of(&single.folded(), &slow, 0.0).unwrap().direction(1), Direction::Slower);
    }

    #[test]
    fn equal_samples_do_not_differ() {
        let a = [(10, 500), (20, 300), (1_000, 2)];
        let shift = Shift::between(&a, &a, 0.0).unwrap();
        assert_eq!((shift.distance, shift.p), (0.0, 1.0));
        assert!(close(shift.slower, 0.5));
        assert_eq!(shift.direction(1), Direction::Same);
        assert_eq!(Shift::between(&a, &[], 0.0), None);
    }

    #[test]
    fn a_few_calls_prove_nothing_and_many_do() {
        let few = Shift::between(&[(10, 3)], &[(20, 3)], 0.0).unwrap();
        assert_eq!((few.distance, few.slower), (1.0, 1.0));
        assert_eq!(few.direction(1), Direction::Same);
        let many = Shift::between(&[(10, 3_000)], &[(20, 3_000)], 0.0).unwrap();
        assert_eq!(many.direction(10_000), Direction::Slower);
        assert_eq!(Shift::between(&[(20, 3_000)], &[(10, 3_000)], 0.0).unwrap().direction(10_000), Direction::Faster);
    }

    #[test]
    fn one_outlier_moves_a_mean_but_no_distribution() {
        let shift = Shift::between(&[(10, 1_000)], &[(10, 999), (10_000_000, 1)], 0.0).unwrap();
        assert_eq!(shift.direction(1), Direction::Same);
    }

    #[test]
    fn a_nanosecond_is_no_change_of_microseconds() {
        let shift = Shift::between(&[(4_011, 3_000)], &[(4_015, 3_000)], 0.0).unwrap();
        assert_eq!((shift.distance, shift.slower, shift.direction(1)), (1.0, 1.0, Direction::Same));
    }

    #[test]
    fn what_two_runs_of_one_program_may_differ_is_unclear() {
        let shift =
            |after, tracing| Shift::between(&[(4_000, 3_000)], &[(after, 3_000)], tracing).unwrap().direction(1);
        assert_eq!([4_300, 4_900, 3_100].map(|after| shift(after, 0.0)), [Direction::Unclear; 3]);
        assert_eq!([5_000, 3_000].map(|after| shift(after, 0.0)), [Direction::Slower, Direction::Faster]);
        // Of that, tracing took the most.
        assert_eq!([6_000, 9_000].map(|after| shift(after, 3_500.0)), [Direction::Unclear, Direction::Slower]);
    }

    #[test]
    fn both_ends_moved_is_a_change_without_direction() {
        let shift = Shift::between(&[(50, 1_000)], &[(10, 500), (90, 500)], 0.0).unwrap();
        assert!(close(shift.slower, 0.5));
        assert_eq!(shift.direction(1), Direction::Changed);
    }
}
