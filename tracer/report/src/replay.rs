//! A stored trace, told again to a sink as if it happened now: calls in the order of their ends,
//! and, at steps of time, those that ran then.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::{
    Call, CallValues, ClockAnchor, Definition, Ending, Event, EventKind, Item, PathProfile, RegionId, Sink, SinkError,
    Summary, Timestamp, Value, ValueBatch, Values,
};

/// Steps that a range is told in, and the least length of one in nanoseconds.
const STEPS: u64 = 400;
const SHORTEST_STEP: u64 = 1_000_000;

/// Why a trace could not be told to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] Error),
    /// The sink could not go on.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// From the begin of the recording to its end, or to the last that is known of one that is not finished.
///
/// # Errors
/// The last calls cannot be read.
pub fn whole(trace: &TraceSet) -> Result<(Timestamp, Timestamp), Error> {
    let begin = trace.header().begin.monotonic;
    let end = match trace.summary() {
        Some(summary) => summary.end.monotonic,
        None => {
            let mut last = last_sample(trace)?;
            for place in 0..trace.traces().len() {
                let batch = trace.calls_of(place).next_back().transpose()?;
                last = last.max(batch.iter().flat_map(|batch| batch.iter()).map(Call::known_until).max());
            }
            last.unwrap_or(begin)
        }
    };
    Ok((begin, end.max(begin)))
}

/// Where calls are folded there may be none with a time, but what is measured beside them has one.
fn last_sample(trace: &TraceSet) -> Result<Option<Timestamp>, Error> {
    let mut last = None;
    if !trace.profile().is_empty() {
        for samples in trace.samples() {
            last = last.max(samples?.iter().map(|sample| sample.time).max());
        }
    }
    Ok(last)
}

/// Tells the calls that ended after `from` and until `to`, or were entered then and not timed, and the call-path profile, which is of the
/// whole recording. `goes_on` is asked now and then; `false`
/// ends the telling. Returns whether it came to its end.
///
/// # Errors
/// The trace cannot be read, or the sink fails.
pub fn replay(
    trace: &TraceSet,
    (from, to): (Timestamp, Timestamp),
    sink: &mut dyn Sink,
    goes_on: impl Fn(f64) -> bool,
) -> Result<bool, ReplayError> {
    define(trace, (from, to), sink)?;
    let folded = trace.folded(!trace.profile().is_empty());
    let profile: Vec<PathProfile> = folded.paths.into_iter().map(|path| path.profile).collect();
    sink.take(&Item::Profile(profile))?;
    let step = (to.since(from) / STEPS).max(SHORTEST_STEP);
    // Looking for the calls of a range takes about as long as telling them.
    let Some(long) = Long::find(trace, (from, to), step, |share| goes_on(share / 2.0))? else { return Ok(false) };
    let batches = trace.batches().max(1);
    let mut values = (!trace.value_columns().is_empty()).then(|| trace.value_reader());
    let mut number = 0;
    let mut told = from;
    for place in 0..trace.traces().len() {
        // Each trace has the time from its beginning: what one says of a thread does not depend on the others.
        told = from;
        for batch in trace.calls_of(place) {
            if !goes_on(0.5 + number as f64 / batches as f64 / 2.0) {
                return Ok(false);
            }
            number += 1;
            let batch = batch?;
            let end = |place: usize| batch[place].known_until();
            let mut places: Vec<usize> =
                (0..batch.len()).filter(|&place| end(place) > from && end(place) <= to).collect();
            places.sort_unstable_by_key(|&place| (end(place), Reverse(batch[place].id)));
            let mut rest = places.as_slice();
            while let Some(first) = rest.first().map(|&place| &batch[place]) {
                let since = first.known_until().since(told);
                if since >= step {
                    told = Timestamp(first.known_until().0 - since % step);
                    sink.take(&Item::Running(told, long.at(told)))?;
                }
                let (now, later) = rest.split_at(rest.partition_point(|&place| end(place).since(told) < step));
                let calls = batch.selected(now.iter().copied());
                let of_calls = values.as_mut().map(|values| values.of(&calls)).transpose()?;
                let of_calls = of_calls.map(|of_calls| Item::Values(batches_of(&calls, &of_calls)));
                sink.take(&Item::Calls(calls))?;
                of_calls.iter().try_for_each(|values| sink.take(values))?;
                rest = later;
            }
        }
    }
    if told < to {
        sink.take(&Item::Running(to, long.at(to)))?;
    }
    sink.finish(&summary(trace, to)?)?;
    Ok(true)
}

/// The values of calls, function by function.
fn batches_of(calls: &[Call], values: &[Option<CallValues>]) -> Vec<ValueBatch> {
    let mut batches: BTreeMap<RegionId, ValueBatch> = BTreeMap::new();
    for (call, of_call) in calls.iter().zip(values).filter_map(|(call, values)| Some((call, values.as_ref()?))) {
        let batch = batches.entry(call.region).or_insert_with(|| ValueBatch {
            region: call.region,
            calls: Vec::new(),
            columns: of_call.columns.iter().map(|column| Values::new(column.value_type)).collect(),
        });
        batch.calls.push((call.location, call.id));
        for (values, value) in batch.columns.iter_mut().zip(&of_call.values) {
            match (values, value) {
                (Values::Integer(values), Some(Value::Integer(value))) => values.push(Some(*value)),
                (Values::Float(values), Some(Value::Float(value))) => values.push(Some(*value)),
                (Values::Text(values), Some(Value::Text(value))) => values.push(Some(value.clone())),
                (Values::Integer(values), _) => values.push(None),
                (Values::Float(values), _) => values.push(None),
                (Values::Text(values), _) => values.push(None),
            }
        }
    }
    batches.into_values().collect()
}

/// Tells the sums of all calls as a call-path profile, without the calls, which takes no longer the more calls there
/// are. Returns whether they are known.
///
/// # Errors
/// The trace cannot be read, or the sink fails.
pub fn tell_sums(trace: &TraceSet, sink: &mut dyn Sink) -> Result<bool, ReplayError> {
    let folded = trace.folded(true);
    if !folded.is_complete() {
        return Ok(false);
    }
    let (from, to) = whole(trace)?;
    define(trace, (from, to), sink)?;
    let profile: Vec<PathProfile> = folded.paths.into_iter().map(|path| path.profile).collect();
    sink.take(&Item::Profile(profile))?;
    sink.finish(&summary(trace, to)?)?;
    Ok(true)
}

/// Tells what calls refer to, and the events of a range.
fn define(trace: &TraceSet, (from, to): (Timestamp, Timestamp), sink: &mut dyn Sink) -> Result<(), ReplayError> {
    sink.begin(trace.header())?;
    trace.libraries().iter().try_for_each(|library| sink.define(&Definition::Library(library.clone())))?;
    trace.regions().iter().try_for_each(|region| sink.define(&Definition::Region(region.clone())))?;
    trace.metrics().iter().try_for_each(|metric| sink.define(&Definition::Metric(metric.clone())))?;
    trace.processes().iter().try_for_each(|process| sink.define(&Definition::Process(process.clone())))?;
    trace.value_columns().iter().try_for_each(|column| sink.define(&Definition::ValueColumn(column.clone())))?;
    trace.call_sites().iter().try_for_each(|site| sink.define(&Definition::CallSite(site.clone())))?;
    trace.contexts().iter().try_for_each(|context| sink.define(&Definition::Context(context.clone())))?;
    trace.cpu_samples().iter().try_for_each(|&samples| sink.define(&Definition::CpuSamples(samples)))?;
    trace.locations().iter().try_for_each(|location| sink.define(&Definition::Location(location.clone())))?;
    for events in trace.events() {
        for event in events?.iter().filter(|event| is_told(event, from, to)) {
            sink.event(event)?;
        }
    }
    Ok(())
}

/// What was left out is true of every range.
fn is_told(event: &Event, from: Timestamp, to: Timestamp) -> bool {
    let is_lasting = matches!(
        event.kind,
        EventKind::Refused { .. } | EventKind::NoValues { .. } | EventKind::NoLines { .. } | EventKind::Attached { .. }
    );
    is_lasting || (event.time >= from && event.time <= to)
}

/// The summary, or what is known of a recording without one.
fn summary(trace: &TraceSet, to: Timestamp) -> Result<Summary, Error> {
    if let Some(summary) = trace.summary() {
        return Ok(summary.clone());
    }
    let end = ClockAnchor { monotonic: to, ..ClockAnchor::default() };
    Ok(Summary { losses: trace.losses()?, untimed: trace.untimed()?, end, ..Summary::default() })
}

/// Calls that may run at a step, by location and begin.
struct Long(Vec<Call>);

impl Long {
    /// Finds them; absent where that was not to go on.
    fn find(
        trace: &TraceSet,
        (from, to): (Timestamp, Timestamp),
        step: u64,
        goes_on: impl Fn(f64) -> bool,
    ) -> Result<Option<Long>, Error> {
        let mut long: Vec<Call> = Vec::new();
        let batches = trace.batches().max(1);
        for (number, batch) in trace.calls().enumerate() {
            if !goes_on(number as f64 / batches as f64) {
                return Ok(None);
            }
            // Of a call that was not timed it is not known whether it runs.
            let runs = |call: &&Call| {
                let is_long = call.duration.is_some_and(|duration| duration >= step);
                call.start < to && call.known_until() > from && (is_long || call.known_until() > to)
            };
            long.extend(batch?.iter().filter(runs).copied());
        }
        long.sort_unstable_by_key(|call| (call.location, call.id));
        Ok(Some(Long(long)))
    }

    /// Those that run at a time, as a live recording tells them. Callers come before their callees,
    /// as they have lower ids.
    fn at(&self, time: Timestamp) -> Vec<Call> {
        let runs = |call: &&Call| call.start <= time && call.known_until() > time;
        let open = |call: &Call| Call { duration: Some(time.since(call.start)), ending: Ending::Open, ..*call };
        let mut running: Vec<Call> = self.0.iter().filter(runs).map(open).collect();
        running.dedup_by_key(|call| (call.location, call.id));
        running
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use rtrace_exporters::TraceWriter;
    use rtrace_model::{Base, Batch, Header, Location, LocationId, Metric, MetricId, Reading, Scope, Span};
    use tempfile::TempDir;

    use super::*;

    const MS: u64 = 1_000_000;

    #[derive(Default)]
    struct Told {
        metrics: Vec<Metric>,
        calls: Vec<u64>,
        /// What they counted.
        counted: Vec<u64>,
        running: Vec<(u64, Vec<u64>)>,
        /// Calls and inclusive time of each path.
        folded: Vec<(u64, u64)>,
        values: Vec<ValueBatch>,
        finished: bool,
    }

    impl Sink for Told {
        fn take(&mut self, item: &Item) -> Result<(), SinkError> {
            match item {
                Item::Values(batches) => self.values.extend_from_slice(batches),
                Item::Define(definitions) => {
                    for definition in definitions {
                        if let Definition::Metric(metric) = definition {
                            self.metrics.push(metric.clone());
                        }
                    }
                }
                Item::Calls(batch) => {
                    self.calls.extend(batch.iter().map(|call| call.id));
                    let readings = (0..batch.len()).flat_map(|index| batch.readings(index));
                    self.counted.extend(readings.map(|of| of.inclusive));
                }
                Item::Running(time, calls) => {
                    self.running.push((time.0 / MS, calls.iter().map(|call| call.id).collect()));
                }
                Item::Profile(paths) => {
                    self.folded.extend(paths.iter().map(|path| (path.calls, path.inclusive / MS)));
                }
                Item::Finish(_) => self.finished = true,
                _ => {}
            }
            Ok(())
        }
    }

    fn call(id: u64, parent: u64, start: u64, end: u64) -> Call {
        Call {
            location: LocationId(1),
            id,
            parent,
            depth: u32::from(parent > 0),
            start: Timestamp(start * MS),
            duration: Some((end - start) * MS),
            ..Call::default()
        }
    }

    fn faults() -> Metric {
        let (id, name, unit) = (MetricId(0), "page-faults".to_owned(), "#".to_owned());
        Metric { id, name, unit, base: Base::Decimal, exponent: 0, scope: Scope::Call, span: Span::SinceStart }
    }

    fn stored(folder: &TempDir) -> TraceSet {
        write(&folder.path().join("trace"));
        TraceSet::open(&folder.path().join("trace")).unwrap()
    }

    fn write(path: &Path) {
        let mut writer = TraceWriter::create(path, None).unwrap();
        writer.begin(&Header::default()).unwrap();
        let (pid, tid, start, name) = (1, 1, Timestamp(0), String::new());
        let location = Location { id: LocationId(1), pid, tid, start, end: None, name, calls_entered: None };
        writer.define(&Definition::Location(location)).unwrap();
        let calls = vec![call(2, 1, 10, 20), call(3, 1, 30, 180), call(1, 0, 0, 190), call(4, 0, 195, 200)];
        writer.define(&Definition::Metric(faults())).unwrap();
        let readings = calls.iter().map(|call| Reading { inclusive: 10 * call.id, child: 0 }).collect();
        writer.calls(&Batch::measured(calls, 1, readings)).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(200 * MS), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
    }

    #[test]
    fn a_job_is_told_trace_after_trace_each_from_its_beginning() {
        let folder = TempDir::new().unwrap();
        for rank in ["0", "1"] {
            std::fs::create_dir_all(folder.path().join("job.rtrace")).unwrap();
            write(&folder.path().join("job.rtrace").join(rank));
        }
        let job = TraceSet::open(&folder.path().join("job.rtrace")).unwrap();
        let mut told = Told::default();
        let range = whole(&job).unwrap();
        assert_eq!(range, (Timestamp(0), Timestamp(200 * MS)));
        assert!(replay(&job, range, &mut told, |_| true).unwrap() && told.finished);
        assert_eq!(told.calls, [2, 3, 1, 4, 2, 3, 1, 4]);
        let times: Vec<u64> = told.running.iter().map(|&(time, _)| time).collect();
        assert_eq!(times, [20, 180, 190, 200, 20, 180, 190, 200]);
        let mut sums = Told::default();
        assert!(tell_sums(&job, &mut sums).unwrap());
        assert_eq!(sums.folded.iter().map(|(calls, _)| calls).sum::<u64>(), 8);
    }

    #[test]
    fn calls_come_in_the_order_of_their_ends_with_what_runs_between() {
        let folder = TempDir::new().unwrap();
        let trace = stored(&folder);
        let mut told = Told::default();
        let range = whole(&trace).unwrap();
        assert_eq!(range, (Timestamp(0), Timestamp(200 * MS)));
        assert!(replay(&trace, range, &mut told, |_| true).unwrap() && told.finished);
        assert_eq!(told.calls, [2, 3, 1, 4]);
        assert_eq!((told.counted, told.metrics), (vec![20, 30, 10, 40], vec![faults()]));
        assert_eq!(told.running, [(20, vec![1]), (180, vec![1]), (190, vec![]), (200, vec![]),]);
    }

    #[test]
    fn sums_are_told_without_calls_where_they_are_known() {
        let folder = TempDir::new().unwrap();
        let trace = stored(&folder);
        let mut told = Told::default();
        assert!(tell_sums(&trace, &mut told).unwrap() && told.finished);
        assert_eq!((told.calls, told.metrics), (Vec::new(), vec![faults()]));
        // The first call, with the two that it made, and the last.
        assert_eq!(told.folded, [(2, 195), (2, 160)]);
        std::fs::remove_file(folder.path().join("trace/folded.parquet")).unwrap();
        assert!(!tell_sums(&trace, &mut Told::default()).unwrap());
    }

    #[test]
    fn calls_are_followed_by_their_values_and_info_says_how_many_are_not_known() {
        use rtrace_model::{Loss, LossReason, Region, ValueColumn, ValueType};
        let folder = TempDir::new().unwrap();
        let mut writer = TraceWriter::create(&folder.path().join("trace"), None).unwrap();
        writer.begin(&Header::default()).unwrap();
        let (pid, tid, start, name) = (1, 1, Timestamp(0), String::new());
        let location = Location { id: LocationId(1), pid, tid, start, end: None, name, calls_entered: None };
        writer.define(&Definition::Location(location)).unwrap();
        let region = RegionId(0);
        writer.define(&Definition::Region(Region { name: "read".to_owned(), size: 1, ..Region::default() })).unwrap();
        let column = |position, name: &str, at_exit| ValueColumn {
            region,
            position,
            name: name.to_owned(),
            value_type: ValueType::Integer,
            c_type: "int".to_owned(),
            unit: None,
            role: None,
            at_exit,
            source: "table".to_owned(),
        };
        for column in [column(0, "fd", false), column(1, "result", true)] {
            writer.define(&Definition::ValueColumn(column)).unwrap();
        }
        writer.calls(&vec![call(1, 0, 10, 20), call(2, 0, 30, 180)].into()).unwrap();
        let columns = |fds: Vec<_>, results: Vec<_>| vec![Values::Integer(fds), Values::Integer(results)];
        let calls = vec![(LocationId(1), 1), (LocationId(1), 2)];
        let both = ValueBatch { region, calls, columns: columns(vec![Some(7), Some(8)], vec![None, Some(-1)]) };
        writer.values(&[both]).unwrap();
        let losses = vec![Loss { reason: LossReason::ValueUnread, region: Some(region), count: 1 }];
        let end = ClockAnchor { monotonic: Timestamp(200 * MS), realtime_ns: 0 };
        writer.finish(&Summary { end, losses, ..Summary::default() }).unwrap();
        let trace = TraceSet::open(&folder.path().join("trace")).unwrap();
        let mut told = Told::default();
        replay(&trace, (Timestamp(25 * MS), Timestamp(200 * MS)), &mut told, |_| true).unwrap();
        let second =
            ValueBatch { region, calls: vec![(LocationId(1), 2)], columns: columns(vec![Some(8)], vec![Some(-1)]) };
        assert_eq!((told.calls, told.values), (vec![2], vec![second]));
        let info = crate::info::Info::of(&folder.path().join("trace")).unwrap();
        let mut text = Vec::new();
        info.write(&crate::Look::default(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = "values       read: fd, result of 2 calls, known from: table; null: result 1 (calls that were not timed or did not return, or not readable)\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(info.values[0].columns[0].nulls, Some(0));
    }

    #[test]
    fn a_range_has_what_ended_in_it_and_what_ran_at_its_end() {
        let folder = TempDir::new().unwrap();
        let trace = stored(&folder);
        let mut told = Told::default();
        replay(&trace, (Timestamp(15 * MS), Timestamp(100 * MS)), &mut told, |_| true).unwrap();
        assert_eq!(told.calls, [2]);
        assert_eq!(told.running.last(), Some(&(100, vec![1, 3])));
        assert!(!replay(&trace, (Timestamp(0), Timestamp(1)), &mut told, |_| false).unwrap());
    }
}
