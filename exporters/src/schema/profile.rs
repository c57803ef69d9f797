//! `profile.parquet`: a row per call path of a location.

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use rtrace_model::{Count, HISTOGRAM_BUCKETS, LocationId, PathId, PathProfile, RegionId};

use super::Row;
use super::column::{self, ColumnError, Columns};

impl Row for PathProfile {
    const PLACE: &'static str = "profile.parquet";

    fn encode<'a>(paths: impl Iterator<Item = &'a PathProfile> + Clone) -> RecordBatch {
        let paths = || paths.clone();
        let parent = |path: &PathProfile| path.parent.map_or(0, |parent| parent.0);
        column::batch([
            ("location", column::int32(paths().map(|path| path.location.0)), false),
            ("path", column::int32(paths().map(|path| path.path.0)), false),
            ("parent", column::int32(paths().map(parent)), false),
            ("region", column::int32(paths().map(|path| path.region.0)), false),
            ("calls", column::int64(paths().map(|path| path.calls)), false),
            ("timed", column::int64(paths().map(|path| path.timed)), false),
            ("unwound", column::int64(paths().map(|path| path.unwound)), false),
            ("open", column::int64(paths().map(|path| path.open)), false),
            ("unseen", column::int64(paths().map(|path| path.unseen)), false),
            ("inclusive_ns", column::optional_int64(paths().map(|path| known(path, path.inclusive))), true),
            ("exclusive_ns", column::optional_int64(paths().map(|path| known(path, path.exclusive))), true),
            ("open_ns", column::int64(paths().map(|path| path.open_time)), false),
            ("min_ns", column::optional_int64(paths().map(|path| path.min)), true),
            ("max_ns", column::optional_int64(paths().map(|path| path.max)), true),
            ("histogram", lists(paths().map(used_buckets)), false),
            ("counts", lists(paths().map(|path| path.counts.iter().map(|count| count.inclusive))), false),
            ("counts_exclusive", lists(paths().map(|path| path.counts.iter().map(|count| count.exclusive))), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<PathProfile>, ColumnError> {
        let location = columns.int32("location")?;
        let id = columns.int32("path")?;
        let parent = columns.int32("parent")?;
        let region = columns.int32("region")?;
        let calls = columns.int64("calls")?;
        let timed = columns.int64("timed")?;
        let unwound = columns.int64("unwound")?;
        let open = columns.int64("open")?;
        let unseen = columns.int64("unseen")?;
        let inclusive = columns.optional_int64("inclusive_ns")?;
        let exclusive = columns.optional_int64("exclusive_ns")?;
        let open_time = columns.int64("open_ns")?;
        let min = columns.optional_int64("min_ns")?;
        let max = columns.optional_int64("max_ns")?;
        let inclusive_counts = columns.added_lists("counts")?;
        let exclusive_counts = columns.added_lists("counts_exclusive")?;
        let path = |(row, list): (usize, ArrayRef)| {
            Ok(PathProfile {
                location: LocationId(location[row]),
                path: PathId(id[row]),
                parent: (parent[row] != 0).then_some(PathId(parent[row])),
                region: RegionId(region[row]),
                calls: calls[row],
                timed: timed[row],
                unwound: unwound[row],
                open: open[row],
                unseen: unseen[row],
                inclusive: inclusive[row].unwrap_or(0),
                exclusive: exclusive[row].unwrap_or(0),
                open_time: open_time[row],
                // In version 1 there is a 0 where no call was timed.
                min: min[row].filter(|_| timed[row] > 0),
                max: max[row].filter(|_| timed[row] > 0),
                histogram: histogram(&list)?,
                counts: match (inclusive_counts.get(row), exclusive_counts.get(row)) {
                    (Some(inclusive), Some(exclusive)) => counts(inclusive, exclusive)?,
                    _ => Vec::new(),
                },
            })
        };
        columns.lists("histogram")?.into_iter().enumerate().map(path).collect()
    }
}

/// A sum over calls whose time is known; null where there is no such call.
fn known(path: &PathProfile, sum: u64) -> Option<u64> {
    path.has_time().then_some(sum)
}

/// The buckets up to the last one that is not empty.
fn used_buckets(path: &PathProfile) -> impl Iterator<Item = u64> {
    let used = path.histogram.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    path.histogram[..used].iter().copied()
}

pub(super) fn lists<L: IntoIterator<Item = u64>>(values: impl Iterator<Item = L>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for list in values {
        lists.append_value(list.into_iter().map(|value| Some(i64::try_from(value).unwrap_or(i64::MAX))));
    }
    Arc::new(lists.finish())
}

pub(super) fn numbers(column: &str, list: &ArrayRef) -> Result<Vec<u64>, ColumnError> {
    let type_error = || ColumnError::Type { column: column.to_owned(), found: list.data_type().to_string() };
    let numbers = list.as_primitive_opt::<Int64Type>().ok_or_else(type_error)?;
    Ok(numbers.iter().flatten().map(|number| u64::try_from(number).unwrap_or(0)).collect())
}

fn histogram(list: &ArrayRef) -> Result<[u64; HISTOGRAM_BUCKETS], ColumnError> {
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    for (bucket, count) in histogram.iter_mut().zip(numbers("histogram", list)?) {
        *bucket = count;
    }
    Ok(histogram)
}

fn counts(inclusive: &ArrayRef, exclusive: &ArrayRef) -> Result<Vec<Count>, ColumnError> {
    let (inclusive, exclusive) = (numbers("counts", inclusive)?, numbers("counts_exclusive", exclusive)?);
    Ok(inclusive.into_iter().zip(exclusive).map(|(inclusive, exclusive)| Count { inclusive, exclusive }).collect())
}
