//! `events/`: a row per event.
//!
//! What an event carries differs by its kind, so it stands in one column as a JSON object: a new
//! kind needs no new column.

use arrow_array::RecordBatch;
use rtrace_model::{Event, EventKind, Timestamp};

use super::column::{self, ColumnError, Columns};
use super::{Row, Stream};

impl Row for Event {
    const PLACE: &'static str = "events";

    fn encode<'a>(events: impl Iterator<Item = &'a Event> + Clone) -> RecordBatch {
        let events = || events.clone();
        let details: Vec<String> = events().map(|event| detail(&event.kind)).collect();
        column::batch([
            ("time_ns", column::numbers(events().map(|event| event.time)), false),
            ("pid", column::optional_numbers(events().map(|event| event.pid)), true),
            ("tid", column::optional_numbers(events().map(|event| event.tid)), true),
            ("event", column::text(events().map(|event| event.kind.name())), false),
            ("detail", column::text(details.iter().map(String::as_str)), false),
        ])
    }

    /// Leaves out events of kinds that a newer rtrace added.
    fn decode(columns: &Columns<'_>) -> Result<Vec<Event>, ColumnError> {
        let time = columns.numbers("time_ns")?;
        let pid = columns.optional_numbers("pid")?;
        let tid = columns.optional_numbers("tid")?;
        let details = columns.text("detail")?;
        let event = |(row, detail): (usize, &str)| {
            let kind: EventKind = serde_json::from_str(detail).ok()?;
            Some(Event { time: time[row], pid: pid[row], tid: tid[row], kind })
        };
        Ok(details.into_iter().enumerate().filter_map(event).collect())
    }
}

impl Stream for Event {
    type Key = Timestamp;

    fn key(&self) -> Timestamp {
        self.time
    }
}

fn detail(kind: &EventKind) -> String {
    serde_json::to_string(kind).expect("strings and numbers always serialize")
}
