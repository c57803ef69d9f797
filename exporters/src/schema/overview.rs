//! `overview/`: when calls were, and how long they took.

use arrow_array::RecordBatch;
use rtrace_model::{CallSiteId, LocationId, PathId, RegionId, Timestamp};

use super::Row;
use super::column::{self, ColumnError, Columns};
use crate::overview::{ActivityRow, DurationsRow, SiteRow};

impl Row for ActivityRow {
    const PLACE: &'static str = "activity.parquet";

    fn encode<'a>(rows: impl Iterator<Item = &'a ActivityRow> + Clone) -> RecordBatch {
        let rows = || rows.clone();
        column::batch([
            ("location", column::int32(rows().map(|row| row.location.0)), false),
            ("start_ns", column::int64(rows().map(|row| row.start.0)), false),
            ("length_ns", column::int64(rows().map(|row| row.length)), false),
            ("calls", column::int64(rows().map(|row| row.calls)), false),
            ("busy_ns", column::int64(rows().map(|row| row.busy)), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<ActivityRow>, ColumnError> {
        let location = columns.int32("location")?;
        let start = columns.int64("start_ns")?;
        let length = columns.int64("length_ns")?;
        let calls = columns.int64("calls")?;
        let busy = columns.int64("busy_ns")?;
        let row = |row: usize| ActivityRow {
            location: LocationId(location[row]),
            start: Timestamp(start[row]),
            length: length[row],
            calls: calls[row],
            busy: busy[row],
        };
        Ok((0..columns.rows()).map(row).collect())
    }
}

impl Row for DurationsRow {
    const PLACE: &'static str = "durations.parquet";

    fn encode<'a>(rows: impl Iterator<Item = &'a DurationsRow> + Clone) -> RecordBatch {
        let rows = || rows.clone();
        column::batch([
            ("region", column::int32(rows().map(|row| row.region.0)), false),
            ("start_ns", column::int64(rows().map(|row| row.start.0)), false),
            ("length_ns", column::int64(rows().map(|row| row.length)), false),
            ("from_ns", column::int64(rows().map(|row| row.from)), false),
            ("calls", column::int64(rows().map(|row| row.calls)), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<DurationsRow>, ColumnError> {
        let region = columns.int32("region")?;
        let start = columns.int64("start_ns")?;
        let length = columns.int64("length_ns")?;
        let from = columns.int64("from_ns")?;
        let calls = columns.int64("calls")?;
        let row = |row: usize| DurationsRow {
            region: RegionId(region[row]),
            start: Timestamp(start[row]),
            length: length[row],
            from: from[row],
            calls: calls[row],
        };
        Ok((0..columns.rows()).map(row).collect())
    }
}

impl Row for SiteRow {
    const PLACE: &'static str = "call_sites.parquet";

    fn encode<'a>(rows: impl Iterator<Item = &'a SiteRow> + Clone) -> RecordBatch {
        let rows = || rows.clone();
        column::batch([
            ("location", column::int32(rows().map(|row| row.location.0)), false),
            ("path", column::int32(rows().map(|row| row.path.0)), false),
            ("call_site", column::int32(rows().map(|row| row.site.0)), false),
            ("calls", column::int64(rows().map(|row| row.calls)), false),
            ("inclusive_ns", column::int64(rows().map(|row| row.inclusive)), false),
            ("exclusive_ns", column::int64(rows().map(|row| row.exclusive)), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<SiteRow>, ColumnError> {
        let location = columns.int32("location")?;
        let path = columns.int32("path")?;
        let site = columns.int32("call_site")?;
        let calls = columns.int64("calls")?;
        let inclusive = columns.int64("inclusive_ns")?;
        let exclusive = columns.int64("exclusive_ns")?;
        let row = |row: usize| SiteRow {
            location: LocationId(location[row]),
            path: PathId(path[row]),
            site: CallSiteId(site[row]),
            calls: calls[row],
            inclusive: inclusive[row],
            exclusive: exclusive[row],
        };
        Ok((0..columns.rows()).map(row).collect())
    }
}
