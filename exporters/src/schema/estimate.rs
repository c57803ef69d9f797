//! `estimates.parquet`: a row per region of a location, of the calls without a record.

use arrow_array::RecordBatch;
use rtrace_model::{Estimate, LocationId, RegionId};

use super::Row;
use super::column::{self, ColumnError, Columns};

impl Row for Estimate {
    const PLACE: &'static str = "estimates.parquet";

    fn encode<'a>(rows: impl Iterator<Item = &'a Estimate> + Clone) -> RecordBatch {
        let rows = || rows.clone();
        column::batch([
            ("location", column::int32(rows().map(|row| row.location.0)), false),
            ("region", column::int32(rows().map(|row| row.region.0)), false),
            ("counted", column::int64(rows().map(|row| row.counted)), false),
            ("least", column::int64(rows().map(|row| row.least)), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Estimate>, ColumnError> {
        let location = columns.int32("location")?;
        let region = columns.int32("region")?;
        let counted = columns.int64("counted")?;
        let least = columns.int64("least")?;
        let estimate = |row: usize| Estimate {
            location: LocationId(location[row]),
            region: RegionId(region[row]),
            counted: counted[row],
            least: least[row],
        };
        Ok((0..columns.rows()).map(estimate).collect())
    }
}
