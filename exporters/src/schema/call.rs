//! `calls/`: a row per call.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray};
use rtrace_model::{Batch, Call, CallSiteId, ContextId, Ending, LocationId, Reading, RegionId, Timestamp};

use super::column::{self, ColumnError, Columns, with_further};
use super::{Row, Stream};
use crate::order;

/// The names of the columns that every trace has.
pub(super) const COLUMNS: [&str; 11] = [
    "location",
    "call",
    "parent",
    "region",
    "depth",
    "start_ns",
    "duration_ns",
    "child_ns",
    "ending",
    "call_site",
    "context",
];

impl Row for Call {
    const PLACE: &'static str = "calls";

    fn encode<'a>(calls: impl Iterator<Item = &'a Call> + Clone) -> RecordBatch {
        let calls = || calls.clone();
        column::batch([
            ("location", column::int32(calls().map(|call| call.location.0)), false),
            ("call", column::int64(calls().map(|call| call.id)), false),
            ("parent", column::int64(calls().map(|call| call.parent)), false),
            ("region", column::int32(calls().map(|call| call.region.0)), false),
            ("depth", column::int32(calls().map(|call| call.depth)), false),
            ("start_ns", column::int64(calls().map(|call| call.start.0)), false),
            ("duration_ns", column::optional_int64(calls().map(|call| call.duration)), true),
            ("child_ns", column::int64(calls().map(|call| call.child)), false),
            ("ending", endings(calls().map(|call| call.ending)), false),
            ("call_site", column::optional_int32(calls().map(|call| call.call_site.map(|site| site.0))), true),
            ("context", column::optional_int32(calls().map(|call| call.context.map(|context| context.0))), true),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Call>, ColumnError> {
        let location = columns.int32("location")?;
        let id = columns.int64("call")?;
        let parent = columns.int64("parent")?;
        let region = columns.int32("region")?;
        let depth = columns.int32("depth")?;
        let start = columns.int64("start_ns")?;
        let duration = columns.optional_int64("duration_ns")?;
        let child = columns.int64("child_ns")?;
        let ending = columns.words("ending", Ending::from_name)?;
        let call_site = columns.added_int32("call_site")?;
        let context = columns.added_int32("context")?;
        let call = |row: usize| {
            let duration = match (ending[row], duration[row]) {
                // In version 1 there is a 0.
                (Ending::Unseen, _) => None,
                (_, None) => return Err(ColumnError::nothing("duration_ns", row)),
                (_, timed) => timed,
            };
            Ok(Call {
                location: LocationId(location[row]),
                region: RegionId(region[row]),
                id: id[row],
                parent: parent[row],
                depth: depth[row],
                start: Timestamp(start[row]),
                duration,
                child: child[row],
                ending: ending[row],
                call_site: call_site[row].map(CallSiteId),
                context: context[row].map(ContextId),
            })
        };
        (0..columns.rows()).map(call).collect()
    }

    fn is_measured(&self) -> bool {
        self.is_timed()
    }
}

impl Stream for Call {
    type Key = (LocationId, u64);

    fn key(&self) -> Self::Key {
        (self.location, self.id)
    }

    fn order(rows: &[Call]) -> Vec<u32> {
        order::of_calls(rows.len(), |row| rows[row].key())
    }
}

/// Calls with what was counted on each, in columns of these names: a metric's own, then that of callees;
/// null where a call was not timed.
pub(crate) fn measured(calls: &Batch, columns: &[String]) -> RecordBatch {
    let readings = |place: usize| {
        let value = |reading: Reading| if place.is_multiple_of(2) { reading.inclusive } else { reading.child };
        let of = |call| calls.readings(call).get(place / 2).copied();
        column::optional_int64((0..calls.len()).map(|call| of(call).map(value)))
    };
    with_further(&Call::encode(calls.iter()), columns, (0..columns.len()).map(readings).collect())
}

/// Words, because a person reads `unwound` better than 1 and a dictionary makes both as small.
fn endings(values: impl Iterator<Item = Ending>) -> ArrayRef {
    let words = StringArray::from_iter_values(Ending::ALL.map(Ending::name));
    let codes = Int8Array::from_iter_values(values.map(|ending| ending as i8));
    Arc::new(DictionaryArray::<Int8Type>::new(codes, Arc::new(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_columns_is_complete() {
        let schema = Call::encode(std::iter::empty()).schema();
        assert!(schema.fields().iter().map(|field| field.name()).eq(COLUMNS));
    }

    #[test]
    fn codes_of_endings_are_their_places_in_the_dictionary() {
        for (place, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, place);
        }
    }
}
