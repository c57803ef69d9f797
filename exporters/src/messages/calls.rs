//! Calls that have to do with messages, with their values by role.

use std::collections::HashMap;

use rtrace_model::{Call, CallValues, FunctionEvent, Location, LocationId, Role, Timestamp, Value, known};

use super::CallTime;
use crate::{Error, TraceSet};

/// A process: the place of its trace, its id, and when it began.
pub(super) type ProcessKey = (usize, u32, Timestamp);

/// The process of each thread.
pub(super) fn processes(set: &TraceSet) -> HashMap<LocationId, ProcessKey> {
    let key = |location: &Location| {
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
    /// The roles that it has columns of.
    roles: Box<[Role]>,
    /// What has a role, in the order of the columns; elements of a list follow each other.
    values: Box<[(Role, Option<i64>)]>,
}

impl MessageCall {
    pub(super) fn of(event: FunctionEvent, call: &Call, values: Option<&CallValues>) -> MessageCall {
        let Call { location, id, region, start, .. } = *call;
        let at = CallTime { location, call: id, region, start, end: call.end() };
        let (mut roles, mut found) = (Vec::new(), Vec::new());
        for (column, value) in values.into_iter().flat_map(CallValues::iter) {
            let Some(role) = column.role.as_deref().and_then(Role::from_name) else { continue };
            roles.push(role);
            match value {
                Some(Value::Text(list)) => found.extend(elements(list).map(|element| (role, element))),
                Some(Value::Integer(value)) => found.push((role, Some(*value))),
                _ => found.push((role, None)),
            }
        }
        MessageCall { event, at, roles: roles.into(), values: found.into() }
    }

    /// Calls of a process are followed in this order.
    pub(super) fn order(&self) -> (Timestamp, LocationId, u64) {
        (self.at.start, self.at.location, self.at.call)
    }

    /// What has this role: `None` if there is no such column or its value is not known.
    pub(super) fn value(&self, role: Role) -> Option<i64> {
        self.all(role).next().flatten()
    }

    /// Whether it has a column of this role.
    pub(super) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether it says that it has done nothing.
    pub(super) fn has_failed(&self) -> bool {
        self.value(Role::Error).is_some_and(|error| error != 0)
    }

    /// All that has this role, in order.
    pub(super) fn all(&self, role: Role) -> impl Iterator<Item = Option<i64>> {
        self.values.iter().filter(move |(known, _)| *known == role).map(|&(_, value)| value)
    }

    /// A number that cannot be negative.
    pub(super) fn unsigned(&self, role: Role) -> Option<u64> {
        self.value(role).and_then(|value| u64::try_from(value).ok())
    }
}

/// What a call says of one end of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedEnd {
    pub(super) peer: Option<i64>,
    pub(super) tag: Option<i64>,
    /// What the process calls the communicator, and when.
    pub(super) communicator: Option<(i64, Timestamp)>,
    pub(super) bytes: Option<u64>,
}

impl AskedEnd {
    pub(super) fn of(call: &MessageCall, [peer, tag, bytes]: [Role; 3]) -> AskedEnd {
        let communicator = call.value(Role::Communicator).map(|called| (called, call.at.start));
        AskedEnd { peer: call.value(peer), tag: call.value(tag), communicator, bytes: call.unsigned(bytes) }
    }
}

/// The elements of a list as its column has it.
fn elements(list: &str) -> impl Iterator<Item = Option<i64>> {
    list.split(',').filter(|element| !element.is_empty()).map(|element| element.parse().ok())
}

/// What the function of a call has to do with messages. Functions of MPI that access files send messages of their own.
pub(super) fn event_of(set: &TraceSet, call: &Call) -> Option<FunctionEvent> {
    let region = set.region(call.region)?;
    let is_of_mpi = || known("model", &region.symbol()) == Some("mpi");
    region.event.filter(|event| event.is_message() || (event.is_io() && is_of_mpi()))
}

/// Visits the calls of one trace of the set, as they are stored, of functions whose event is wanted.
pub(super) fn visit(
    set: &TraceSet,
    place: usize,
    is_wanted: impl Fn(FunctionEvent) -> bool,
    mut visit: impl FnMut(MessageCall),
) -> Result<(), Error> {
    let event_of = |call: &Call| event_of(set, call).filter(|event| is_wanted(*event));
    let mut values = set.value_reader();
    for batch in set.calls_of(place) {
        let batch = batch?;
        let (events, calls): (Vec<FunctionEvent>, Vec<Call>) =
            batch.iter().filter_map(|call| Some((event_of(call)?, *call))).unzip();
        let values = values.of(&calls)?;
        let of = |((event, call), values): ((FunctionEvent, &Call), &Option<CallValues>)| {
            MessageCall::of(event, call, values.as_ref())
        };
        events.into_iter().zip(&calls).zip(&values).map(of).for_each(&mut visit);
    }
    Ok(())
}

/// The calls of one trace that have to do with messages, by time.
pub(super) fn of_trace(set: &TraceSet, place: usize) -> Result<Vec<MessageCall>, Error> {
    let mut found = Vec::new();
    visit(set, place, |_| true, |call| found.push(call))?;
    found.sort_by_key(MessageCall::order);
    Ok(found)
}
