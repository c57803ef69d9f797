//! `profile.parquet`: a row per call path of a location.

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use rtrace_model::{HISTOGRAM_BUCKETS, LocationId, PathId, PathProfile, RegionId};

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
            ("inclusive_ns", column::int64(paths().map(|path| path.inclusive)), false),
            ("exclusive_ns", column::int64(paths().map(|path| path.exclusive)), false),
            ("open_ns", column::int64(paths().map(|path| path.open_time)), false),
            ("min_ns", column::int64(paths().map(|path| path.min)), false),
            ("max_ns", column::int64(paths().map(|path| path.max)), false),
            ("histogram", histograms(paths().map(|path| &path.histogram)), false),
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
        let inclusive = columns.int64("inclusive_ns")?;
        let exclusive = columns.int64("exclusive_ns")?;
        let open_time = columns.int64("open_ns")?;
        let min = columns.int64("min_ns")?;
        let max = columns.int64("max_ns")?;
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
                inclusive: inclusive[row],
                exclusive: exclusive[row],
                open_time: open_time[row],
                min: min[row],
                max: max[row],
                histogram: histogram(&list)?,
            })
        };
        columns.lists("histogram")?.into_iter().enumerate().map(path).collect()
    }
}

/// Lists that end with the last bucket that is not empty.
fn histograms<'a>(values: impl Iterator<Item = &'a [u64; HISTOGRAM_BUCKETS]>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for histogram in values {
        let used = histogram.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let counts = histogram[..used].iter().map(|&count| Some(i64::try_from(count).unwrap_or(i64::MAX)));
        lists.append_value(counts);
    }
    Arc::new(lists.finish())
}

fn histogram(list: &ArrayRef) -> Result<[u64; HISTOGRAM_BUCKETS], ColumnError> {
    let type_error = || ColumnError::Type { column: "histogram".to_owned(), found: list.data_type().to_string() };
    let counts = list.as_primitive_opt::<Int64Type>().ok_or_else(type_error)?;
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    for (bucket, count) in histogram.iter_mut().zip(counts.iter().flatten()) {
        *bucket = u64::try_from(count).unwrap_or(0);
    }
    Ok(histogram)
}
