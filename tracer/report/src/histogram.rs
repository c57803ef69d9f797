//! The distribution of durations as rows: for each function the calls by steps of 1, 2, 5, 10 … ns. Calls that are
//! aggregated are known by powers of two alone, and so are their steps.
//!
//! Durations are known to a thousandth, so that one which is less than that above a step may be counted below it.

use rtrace_model::{HISTOGRAM_BUCKETS, Latency, histogram_bucket};

use super::table::{Column, Datum, Table};

/// Rows of steps for the rows of a report, which come with their `labels` columns; from the first step with a call to
/// the last, also those without.
pub(super) fn table<'a>(labels: &[Column], rows: impl Iterator<Item = (Vec<Datum>, &'a Latency)>) -> Table {
    let columns = FIGURES.iter().chain(labels).copied().collect();
    let mut table = Table { columns, has_sections: true, ..Table::default() };
    for (labels, latency) in rows {
        let steps = steps(latency);
        let total: u64 = steps.iter().map(|step| step.calls).sum();
        let most = steps.iter().map(|step| step.calls).max().unwrap_or(0);
        for HistogramStep { from, below, calls } in steps {
            let figures = [
                Datum::Bound(from),
                below.map_or(Datum::Absent, Datum::Bound),
                Datum::Count(calls),
                Datum::Share(calls as f64 / total as f64),
                Datum::Bar(calls as f64 / most as f64),
            ];
            table.rows.push(figures.into_iter().chain(labels.iter().cloned()).collect());
        }
    }
    table
}

/// Calls of at least `from` and less than `below` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HistogramStep {
    from: u64,
    below: Option<u64>,
    calls: u64,
}

fn steps(latency: &Latency) -> Vec<HistogramStep> {
    let edges = if latency.is_folded() { powers_of_two() } else { round_numbers() };
    let mut steps: Vec<HistogramStep> = edges
        .iter()
        .enumerate()
        .map(|(place, &from)| HistogramStep { from, below: edges.get(place + 1).copied(), calls: 0 })
        .collect();
    for (duration, calls) in latency.counted() {
        let place = edges.partition_point(|&from| from <= duration) - 1;
        steps[place].calls += calls;
    }
    let Some(first) = steps.iter().position(|step| step.calls > 0) else { return Vec::new() };
    let last = steps.iter().rposition(|step| step.calls > 0).unwrap_or(first);
    steps[first..=last].to_vec()
}

/// 0, 1, 2, 5, 10, 20 … up to the largest that a duration can be.
fn round_numbers() -> Vec<u64> {
    let decades = (0..=19).map(|exponent| 10_u64.pow(exponent));
    let all = decades.flat_map(|decade| [1, 2, 5].map(|digit| decade.checked_mul(digit)));
    std::iter::once(0).chain(all.flatten()).collect()
}

/// Where buckets of [`histogram_bucket`] begin.
fn powers_of_two() -> Vec<u64> {
    let begin = |bucket: usize| if bucket == 0 { 0 } else { 1 << (bucket - 1) };
    debug_assert!((1..HISTOGRAM_BUCKETS).all(|bucket| histogram_bucket(begin(bucket)) == bucket));
    (0..HISTOGRAM_BUCKETS).map(begin).collect()
}

const FIGURES: [Column; 5] = [
    Column::new("from_ns", "from"),
    Column::new("below_ns", "below"),
    Column::new("calls", "calls"),
    Column::new("share", "share").rank(1),
    Column::new("bar", "").only_for_people(),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::text;

    fn latency(durations: &[u64]) -> Latency {
        let mut latency = Latency::default();
        durations.iter().for_each(|&duration| latency.record(duration));
        latency
    }

    #[test]
    fn steps_are_round_and_none_is_left_out_between_others() {
        let labels = || vec![Datum::Name("libone.so".into()), Datum::Name("a".into())];
        let columns = [Column::label("library", "library"), Column::name("function", "function")];
        let (a, b) = (latency(&[0, 4, 4, 2_300, 2_400, 4_999]), latency(&[10]));
        let rows = [(labels(), &a), (vec![labels()[0].clone(), Datum::Name("b".into())], &b)];
        assert_eq!(
            text(table(&columns, rows.into_iter())),
            "\
libone.so  a
  from   below  calls  share %
  0 ns    1 ns      1     16.7  #############
  1 ns    2 ns      0      0.0
  2 ns    5 ns      2     33.3  ###########################
  5 ns   10 ns      0      0.0
 10 ns   20 ns      0      0.0
 20 ns   50 ns      0      0.0
 50 ns  100 ns      0      0.0
100 ns  200 ns      0      0.0
200 ns  500 ns      0      0.0
500 ns    1 us      0      0.0
  1 us    2 us      0      0.0
  2 us    5 us      3     50.0  ########################################

libone.so  b
  from   below  calls  share %
 10 ns   20 ns      1    100.0  ########################################
"
        );
    }

    #[test]
    fn aggregated_calls_have_steps_of_powers_of_two() {
        let steps = steps(&latency(&[3, 900]).folded());
        assert_eq!((steps[0].from, steps[0].below, steps[0].calls), (2, Some(4), 1));
        assert_eq!(steps.last(), Some(&HistogramStep { from: 512, below: Some(1_024), calls: 1 }));
        assert_eq!(steps.len(), 9);
    }

    proptest! {
        #[test]
        fn each_call_is_in_one_step_that_holds_it(durations in prop::collection::vec(any::<u64>(), 0..50)) {
            let steps = steps(&latency(&durations));
            prop_assert_eq!(steps.iter().map(|step| step.calls).sum::<u64>(), durations.len() as u64);
            for step in &steps {
                // A thousandth above a bound may be counted below it.
                let holds = |&&duration: &&u64| {
                    let known_as = duration - duration / 1_000;
                    known_as >= step.from || duration >= step.from
                };
                let at_least = durations.iter().filter(holds).count() as u64;
                let from_here = steps.iter().filter(|of| of.from >= step.from).map(|of| of.calls).sum::<u64>();
                prop_assert!(from_here <= at_least);
            }
        }
    }
}
