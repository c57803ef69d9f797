//! `folded.parquet`: a row per call path of a location, of calls that have a record each.

use arrow_array::RecordBatch;
use rtrace_model::{CallSiteId, ContextId, FoldedPath, PathDetail, PathProfile};

use super::Row;
use super::column::{self, ColumnError, Columns, with_columns};
use super::profile::{lists, numbers};

impl Row for FoldedPath {
    const PLACE: &'static str = "folded.parquet";

    fn encode<'a>(rows: impl Iterator<Item = &'a FoldedPath> + Clone) -> RecordBatch {
        let profile = PathProfile::encode(rows.clone().map(|row| &row.profile));
        let details = || rows.clone().map(|row| row.detail.as_ref());
        let number = |of: fn(&PathDetail) -> u64| column::int64(details().map(move |detail| detail.map_or(0, of)));
        let durations = |of: fn(&(u64, u64)) -> u64| {
            lists(details().map(move |detail| detail.into_iter().flat_map(|detail| &detail.durations).map(of)))
        };
        let site = |detail: Option<&PathDetail>| detail?.call_site.map(|site| site.0);
        let context = |detail: Option<&PathDetail>| detail?.context.map(|context| context.0);
        with_columns(
            &profile,
            [
                ("call_site", column::optional_int32(details().map(site)), true),
                ("context", column::optional_int32(details().map(context)), true),
                ("instant", number(|detail| detail.instant), false),
                ("ended_with_caller", number(|detail| detail.ended_with_caller), false),
                ("instant_with_caller", number(|detail| detail.instant_with_caller), false),
                ("durations_ns", durations(|&(duration, _)| duration), false),
                ("duration_calls", durations(|&(_, calls)| calls), false),
            ],
        )
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<FoldedPath>, ColumnError> {
        let profiles = PathProfile::decode(columns)?;
        let call_site = columns.optional_int32("call_site")?;
        let context = columns.added_int32("context")?;
        let instant = columns.int64("instant")?;
        let ended_with_caller = columns.int64("ended_with_caller")?;
        let instant_with_caller = columns.int64("instant_with_caller")?;
        let (durations, calls) = (columns.lists("durations_ns")?, columns.lists("duration_calls")?);
        let row = |(row, profile): (usize, PathProfile)| {
            let durations = numbers("durations_ns", &durations[row])?;
            let detail = PathDetail {
                call_site: call_site[row].map(CallSiteId),
                context: context[row].map(ContextId),
                durations: durations.into_iter().zip(numbers("duration_calls", &calls[row])?).collect(),
                instant: instant[row],
                ended_with_caller: ended_with_caller[row],
                instant_with_caller: instant_with_caller[row],
            };
            Ok(FoldedPath { profile, detail: Some(detail) })
        };
        profiles.into_iter().enumerate().map(row).collect()
    }
}
