//! How long calls that wait for other ranks went on when these had come: the transfer.

use std::collections::HashMap;

use rtrace_exporters::{AwaitedCall, TraceSet};
use rtrace_model::{FunctionEvent, LocationId, RegionId, Timestamp, ValueColumn};

use super::Error;

/// Nanoseconds of transfer by function and thread.
#[derive(Default)]
pub(super) struct Transfers(HashMap<(RegionId, LocationId), u64>);

impl Transfers {
    /// None if the trace does not say which calls belong to each other.
    ///
    /// # Errors
    /// The calls cannot be read.
    pub(super) fn new(trace: &TraceSet) -> Result<Transfers, Error> {
        let mut transfers = Transfers::default();
        let event = |column: &ValueColumn| trace.region(column.region).and_then(|region| region.event);
        let says = |column: &ValueColumn| event(column).is_some_and(FunctionEvent::is_message);
        if !trace.value_columns().iter().any(says) || !trace.profile().is_empty() {
            return Ok(transfers);
        }
        trace.messages()?.awaited(|AwaitedCall { at, until }| {
            let began: Timestamp = until.max(at.start);
            let time = at.end.map_or(0, |end| end.since(began.min(end)));
            let sum = transfers.0.entry((at.region, at.location)).or_default();
            *sum = sum.saturating_add(time);
        })?;
        Ok(transfers)
    }

    /// Those of a function on a thread.
    pub(super) fn of(&self, region: RegionId, location: LocationId) -> u64 {
        self.0.get(&(region, location)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        ClockAnchor, Definition, Header, Rank, Region, Sink as _, Summary, ValueBatch, ValueType, Values,
    };

    use super::*;
    use crate::testing::{region, script, writer};
    use crate::{By, Format, Options, Sort, run};

    /// A rank whose barriers these are, in a recording of 10 us.
    fn record(path: &std::path::Path, rank: u32, calls: &str) {
        let mut writer = writer(path);
        let rank = Some(Rank { rank, size: Some(2), job: None });
        writer.begin(&Header { rank, ..Header::default() }).unwrap();
        let barrier = Region { event: Some(FunctionEvent::Barrier), ..region(0, "MPI_Barrier".to_owned()) };
        writer.define(&Definition::Region(barrier)).unwrap();
        let column = ValueColumn {
            region: RegionId(0),
            position: 0,
            name: "comm".to_owned(),
            value_type: ValueType::Integer,
            c_type: "MPI_Comm".to_owned(),
            unit: None,
            role: Some("communicator".to_owned()),
            at_exit: false,
            source: String::new(),
        };
        writer.define(&Definition::ValueColumn(column)).unwrap();
        let calls = script(calls);
        let columns = vec![Values::Integer(vec![Some(0); calls.len()])];
        let keys = calls.iter().map(|call| (call.location, call.id)).collect();
        writer.values(&[ValueBatch { region: RegionId(0), calls: keys, columns }]).unwrap();
        writer.calls(&calls.into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(10_000), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
    }

    #[test]
    fn a_rank_waits_until_the_last_one_enters_a_barrier() {
        let folder = tempfile::tempdir().unwrap();
        record(&folder.path().join("0"), 0, "thread 1\n a 1000 4000\n a 6000 7000");
        record(&folder.path().join("1"), 1, "thread 1\n a 3500 4100\n a 5000 7500");
        let mut out = Vec::new();
        let options = Options { by: By::Rank, sort: Sort::Name, format: Format::Json, ..Options::default() };
        run(folder.path(), &options, &mut out).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let keys = ["useful_ns", "waiting_ns", "waiting_barrier_ns", "transfer_ns"];
        let rows = report["rows"].as_array().unwrap().iter();
        let rows: Vec<_> = rows.map(|row| keys.map(|key| row[key].as_u64().unwrap())).collect();
        assert_eq!(rows, [[6_000, 2_500, 2_500, 500 + 1_000], [6_900, 1_000, 1_000, 600 + 1_500]]);
    }
}
