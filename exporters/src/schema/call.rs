//! `calls/`: a row per call.

use arrow_array::RecordBatch;
use rtrace_model::{Batch, Call, Ending, LocationId, Reading};

use super::cell::row;
use super::column::{self, ColumnError, Columns, with_further};
use super::{Row as _, Stream};
use crate::order;

row!(Call, "calls", {
    "location": location,
    "call": id,
    "parent": parent,
    "region": region,
    "depth": depth,
    "start_ns": start,
    "duration_ns": duration,
    "child_ns": child,
    "ending": ending,
    "call_site": call_site,
    "context": context,
}, then timed, measured Call::is_timed);

/// A call has a duration if, and only if, it was timed.
fn timed(_: &Columns<'_>, mut calls: Vec<Call>) -> Result<Vec<Call>, ColumnError> {
    for (row, call) in calls.iter_mut().enumerate() {
        match (call.ending, call.duration) {
            (Ending::Unseen, _) => call.duration = None,
            (_, None) => return Err(ColumnError::nothing("duration_ns", row)),
            _ => {}
        }
    }
    Ok(calls)
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
        column::optional_numbers((0..calls.len()).map(|call| of(call).map(value)))
    };
    with_further(&Call::encode(calls.iter()), columns, (0..columns.len()).map(readings).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_endings_are_their_places_in_the_dictionary() {
        for (place, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending as usize, place);
        }
    }
}
