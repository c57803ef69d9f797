//! The distribution of durations as rows: for each function a bucket per power of two.

use super::stats::Stats;
use super::table::{Column, Table, Value};

/// Rows of buckets for the rows of a report, which come with their `labels` columns.
pub(super) fn table<'a>(labels: &[Column], rows: impl Iterator<Item = (Vec<Value>, &'a Stats)>) -> Table {
    let mut table = Table { columns: FIGURES.iter().chain(labels).copied().collect(), rows: Vec::new(), left_out: 0 };
    for (labels, stats) in rows {
        let buckets = stats.buckets();
        let total: u64 = buckets.iter().map(|&(_, calls)| calls).sum();
        let most = buckets.iter().map(|&(_, calls)| calls).max().unwrap_or(0);
        for (bucket, calls) in buckets {
            let (from, below) = bounds(bucket);
            let figures = [
                Value::Time(from),
                below.into(),
                Value::Count(calls),
                Value::Share(calls as f64 / total as f64),
                Value::Bar(calls as f64 / most as f64),
            ];
            table.rows.push(figures.into_iter().chain(labels.iter().cloned()).collect());
        }
    }
    table
}

/// The least duration of a bucket of [`rtrace_model::histogram_bucket`], and that of the next one.
fn bounds(bucket: usize) -> (u64, Option<u64>) {
    let from = if bucket == 0 { 0 } else { 1 << (bucket - 1) };
    (from, (bucket + 1 < rtrace_model::HISTOGRAM_BUCKETS).then_some(1 << bucket))
}

const FIGURES: [Column; 5] = [
    Column::new("from_ns", "from"),
    Column::new("below_ns", "below"),
    Column::new("calls", "calls"),
    Column::new("share", "share"),
    Column::new("bar", "").only_for_people(),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::{script, text};

    #[test]
    fn buckets_of_a_function() {
        let mut stats = Stats::default();
        for call in script("thread 1\n a 0 0\n a 0 4\n a 0 5\n a 0 7\n a 0 8") {
            stats.add(&call, true);
        }
        let labels = vec![Value::Name("a".into())];
        let table = table(&[Column::label("function", "function")], [(labels, &stats)].into_iter());
        assert_eq!(
            text(table),
            "\
from  below  calls   share                                            function
0 ns   1 ns      1  20.0 %  #############                             a
4 ns   8 ns      3  60.0 %  ########################################  a
8 ns  16 ns      1  20.0 %  #############                             a
"
        );
    }

    #[test]
    fn bounds_are_those_of_the_buckets() {
        for duration in [0, 1, 2, 3, 4, 1_000, 1 << 40, u64::MAX] {
            let (from, below) = bounds(rtrace_model::histogram_bucket(duration));
            assert!(from <= duration && below.is_none_or(|below| duration < below), "{duration}");
        }
    }
}
