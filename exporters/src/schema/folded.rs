//! `folded.parquet`: a row per call path of a location, of calls that have a record each.

use arrow_array::RecordBatch;
use rtrace_model::{FoldedPath, PathDetail, PathProfile};

use super::Row;
use super::cell::row;
use super::column::{ColumnError, Columns, with_columns};

// The columns beside those of a `PathProfile`.
row!(PathDetail, "folded.parquet", {
    "call_site": call_site,
    "context": context,
    "instant": instant,
    "ended_with_caller": ended_with_caller,
    "instant_with_caller": instant_with_caller,
    "durations_ns": durations as [
        |detail| detail.durations.iter().map(|&(duration, _)| duration).collect::<Vec<u64>>(),
        |durations: Vec<u64>| durations.into_iter().map(|duration| (duration, 0)).collect()
    ],
    "duration_calls": [|detail| detail.durations.iter().map(|&(_, calls)| calls).collect::<Vec<u64>>()],
}, then complete);

fn complete(columns: &Columns<'_>, mut details: Vec<PathDetail>) -> Result<Vec<PathDetail>, ColumnError> {
    for (detail, calls) in details.iter_mut().zip(columns.lists("duration_calls")?) {
        detail.durations.truncate(calls.len());
        detail.durations.iter_mut().zip(calls).for_each(|(duration, calls)| duration.1 = calls);
    }
    Ok(details)
}

impl Row for FoldedPath {
    const PLACE: &'static str = PathDetail::PLACE;

    fn encode<'a>(rows: impl Iterator<Item = &'a FoldedPath> + Clone) -> RecordBatch {
        let none = PathDetail::default();
        let details = PathDetail::encode(rows.clone().map(|row| row.detail.as_ref().unwrap_or(&none)));
        let schema = details.schema();
        let further = schema.fields().iter().zip(details.columns());
        let further = further.map(|(field, column)| (field.name().as_str(), column.clone(), field.is_nullable()));
        with_columns(&PathProfile::encode(rows.map(|row| &row.profile)), further)
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<FoldedPath>, ColumnError> {
        let details = PathDetail::decode(columns)?.into_iter().map(Some);
        let paths = PathProfile::decode(columns)?.into_iter().zip(details);
        Ok(paths.map(|(profile, detail)| FoldedPath { profile, detail }).collect())
    }
}
