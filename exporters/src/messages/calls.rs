//! Calls that have to do with messages, with their values by role.

use std::collections::HashMap;

use rtrace_model::{Call, FunctionEvent, LocationId, Role, Timestamp};

use super::CallTime;
use crate::{CallValues, Error, TraceSet, Value};

/// A process: the place of its trace, its id, and when it began.
pub(super) type ProcessKey = (usize, u32, Timestamp);

/// The process of each thread.
pub(super) fn processes(set: &TraceSet) -> HashMap<LocationId, ProcessKey> {
    let key = |location: &rtrace_model::Location| {
        let start = set.process_of(location).map_or(Timestamp(0), |process| process.start);
        Some((location.id, (set.origin_of(location.id)?.0, location.pid, start)))
    };
    set.locations().iter().filter_map(key).collect()
}

/// A call of a function that a table says something of.
#[derive(Clone, Debug)]
pub(super) struct MessageCall {
    pub(super) event: FunctionEvent,
    pub(super) at: CallTime,
    /// What is known of it, in the order of the columns.
    values: Box<[(Role, i64)]>,
}

impl MessageCall {
    fn of(event: FunctionEvent, call: &Call, values: Option<&CallValues>) -> MessageCall {
        let at = CallTime { location: call.location, call: call.id, start: call.start, end: call.end() };
        let value = |(column, value): (&rtrace_model::ValueColumn, Option<&Value>)| {
            let Some(Value::Integer(value)) = value else { return None };
            Some((Role::from_name(column.role.as_deref()?)?, *value))
        };
        let values = values.into_iter().flat_map(CallValues::iter).filter_map(value).collect();
        MessageCall { event, at, values }
    }

    /// What has this role.
    pub(super) fn value(&self, role: Role) -> Option<i64> {
        self.values.iter().find(|(known, _)| *known == role).map(|&(_, value)| value)
    }
}

/// The calls of one trace of the set, by process and time, of functions whose event is wanted.
pub(super) fn of_trace(
    set: &TraceSet,
    place: usize,
    is_wanted: impl Fn(FunctionEvent) -> bool,
) -> Result<Vec<MessageCall>, Error> {
    let event_of = |call: &Call| set.region(call.region)?.event.filter(|event| event.is_message() && is_wanted(*event));
    let mut values = set.value_reader();
    let mut found = Vec::new();
    for batch in set.calls_of(place) {
        let batch = batch?;
        let (events, calls): (Vec<FunctionEvent>, Vec<Call>) =
            batch.iter().filter_map(|call| Some((event_of(call)?, *call))).unzip();
        let values = values.of(&calls)?;
        let of = |((event, call), values): ((FunctionEvent, &Call), &Option<CallValues>)| {
            MessageCall::of(event, call, values.as_ref())
        };
        found.extend(events.into_iter().zip(&calls).zip(&values).map(of));
    }
    found.sort_by_key(|call| (call.at.start, call.at.location, call.at.call));
    Ok(found)
}
