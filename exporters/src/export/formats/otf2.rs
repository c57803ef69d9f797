//! An OTF2 archive: what Vampir and Score-P's tools read.
//!
//! The archive is written natively, in the layout of libotf2 3.0 (`encoding` says how), so that
//! neither building nor running rtrace needs the library. In the archive, a process is a
//! location group and a thread a location, enters and exits stand in the order of their times.
//!
//! Counters: between an enter and its leave, a metric grows by exactly what the call counted.
//! What a call counted outside its callees is added at its leave, as it is not known when before
//! that it came.
//!
//! Values: arguments are parameters behind the enter, results parameters in front of the leave. Those that are not known
//! have no record.

mod definitions;
mod encoding;
mod files;
mod gathered;
mod messages;
mod samples;
mod waiting;

use std::collections::HashSet;
use std::path::Path;

use rtrace_model::{Call, CallValues, Ending, Measured, Metric, Region, RegionId, Timestamp, Value, known};

use super::super::format::{ExportFormat, Form};
use super::super::nesting::Visitor;
use super::super::values::plain;
use super::super::{Excerpt, ExportError};
use definitions::{ENDING, ending_string};
use encoding::{Chunks, ENTER, LEAVE, METRIC, OtfRecord, PARAMETER_INT, PARAMETER_STRING, THREAD_FORK, THREAD_JOIN};
use gathered::{Gathered, METRICS};
use messages::{NoMessages, OtfMessages};
use waiting::WaitingRecord;

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "otf2",
    summary: "OTF2 archive: a directory for Vampir and Score-P's tools",
    extension: "otf2",
    opens_in: "Vampir, Scalasca, otf2-print, otf2-profile, python3-otf2 (file `traces.otf2` in it)",
    keeps: "every call on its process and thread, mangled and demangled names, call paths, arguments and results \
            as parameters, messages, collective operations, accesses to memory of other ranks and to files as records with their \
            communicators, counters and samples as metrics, endings as attributes, losses as properties, wall-clock time",
    omits: "events beside the calls, versions and aliases of functions",
    untimed: "enter and leave at one time or around their timed callees, attribute `ending` is `unseen`",
    form: Form::Directory { marker: ANCHOR, write },
};

const ANCHOR: &str = "traces.otf2";

const ATTRIBUTE_LIST: u8 = 6;
const TYPE_UINT64: u8 = 4;
const TYPE_DOUBLE: u8 = 10;
const TYPE_STRING: u8 = 11;

fn write(source: &Excerpt<'_>, directory: &Path) -> Result<(), ExportError> {
    let streams = directory.join("traces");
    std::fs::create_dir(&streams)?;
    let mut gathered = Gathered::new();
    let nested = source.nested_with_values()?;
    let mut events_of = Vec::new();
    let runs_team = |region: &&Region| known("runs", &region.symbol()) == Some("team");
    let forks: HashSet<RegionId> = source.regions().iter().filter(runs_team).map(|region| region.id).collect();
    let mut messages = match OtfMessages::of(source, &nested)? {
        Ok(messages) => Some(messages),
        Err(NoMessages::None) => None,
        Err(NoMessages::Missing(text)) => {
            gathered.remarks.push(text);
            None
        }
    };
    for location in nested.locations() {
        if let Some(messages) = &mut messages {
            messages.select(location);
        }
        let file = Chunks::create(&streams.join(format!("{}.evt", location.0)), encoding::EVENT_CHUNK)?;
        let (open, counters) = (Vec::new(), vec![0; metrics(source).len()]);
        let (gathered, messages, record) = (&mut gathered, messages.as_mut(), OtfRecord::default());
        let mut events = OtfEvents { file, gathered, messages, forks: &forks, counters, open, record };
        nested.visit(location, &mut events)?;
        let written = events.file.finish()?;
        events_of.push((location, written));
        local_definitions(&streams, location.0.into())?;
    }
    gathered.locations = events_of;
    gathered.remarks.extend(messages.as_ref().and_then(OtfMessages::remark));
    samples::write(source, &streams, &mut gathered)?;
    let written = definitions::write(source, &gathered, messages.as_ref(), &directory.join("traces.def"))?;
    encoding::anchor(&directory.join(ANCHOR), &definitions::anchor(source, &gathered, written)?)?;
    Ok(())
}

/// Writes the file of a location's own definitions: it has none.
fn local_definitions(streams: &Path, location: u64) -> std::io::Result<()> {
    Chunks::create(&streams.join(format!("{location}.def")), encoding::DEFINITION_CHUNK)?.finish()?;
    Ok(())
}

/// The metrics of calls that the archive has: a class holds 255.
fn metrics<'a>(source: &'a Excerpt<'_>) -> &'a [Metric] {
    let metrics = source.call_metrics();
    &metrics[..metrics.len().min(usize::from(u8::MAX))]
}

/// The event stream of one location.
struct OtfEvents<'a, 's> {
    file: Chunks,
    gathered: &'a mut Gathered,
    messages: Option<&'a mut OtfMessages<'s>>,
    /// The functions that run a team of threads.
    forks: &'a HashSet<RegionId>,
    /// The metrics' values so far.
    counters: Vec<u64>,
    open: Vec<OpenOtfCall>,
    record: OtfRecord,
}

/// An open call.
struct OpenOtfCall {
    path: usize,
    /// The metrics' values at its enter.
    counters: Box<[u64]>,
    /// The records of messages that belong to its return.
    at_exit: Vec<WaitingRecord>,
}

impl OtfEvents<'_, '_> {
    /// Writes the values of all metrics; the enter or leave that they belong to follows.
    fn metrics(&mut self, time: Timestamp) -> std::io::Result<()> {
        if self.counters.is_empty() {
            return Ok(());
        }
        self.record.clear();
        self.record.int(METRICS).byte(self.counters.len() as u8);
        for &value in &self.counters {
            self.record.byte(TYPE_UINT64).long(value);
        }
        self.file.event(time, METRIC, &self.record, None)
    }

    /// Writes the values of a call that are read when its function begins, or when it returns.
    fn parameters(&mut self, time: Timestamp, values: Option<&CallValues>, at_exit: bool) -> std::io::Result<()> {
        let values = values.into_iter().flat_map(CallValues::iter).filter(|(column, _)| column.at_exit == at_exit);
        for (column, value) in values {
            let kind = match value {
                None => continue,
                Some(Value::Integer(value)) => {
                    let parameter = self.gathered.parameter(&column.name, PARAMETER_INT);
                    self.record.clear();
                    self.record.int(parameter).signed(*value);
                    PARAMETER_INT
                }
                Some(value) => {
                    let text = match value {
                        Value::Text(text) => text.clone(),
                        number => plain(column, number),
                    };
                    let Some(text) = self.gathered.text(text) else { continue };
                    let parameter = self.gathered.parameter(&column.name, PARAMETER_STRING);
                    self.record.clear();
                    self.record.int(parameter).int(text);
                    PARAMETER_STRING
                }
            };
            self.file.event(time, kind, &self.record, None)?;
        }
        Ok(())
    }

    /// Writes the records of messages that belong to the beginning of a call, and gives those that belong to its return.
    fn messages(&mut self, time: Timestamp, call: &Call) -> std::io::Result<Vec<WaitingRecord>> {
        let mut at_exit = Vec::new();
        let Some(messages) = &mut self.messages else { return Ok(at_exit) };
        while let Some(waiting) = messages.next(call.id)? {
            match waiting.at_exit {
                true => at_exit.push(waiting),
                false => self.file.event(time, waiting.kind, &waiting.record, None)?,
            }
        }
        Ok(at_exit)
    }

    /// A team of threads of OpenMP begins, or ends.
    fn team(&mut self, time: Timestamp, kind: u8, values: Option<&CallValues>) -> std::io::Result<()> {
        const OPENMP: u8 = 3;
        let mut asked =
            values.into_iter().flat_map(CallValues::iter).filter(|(column, _)| column.name == "num_threads");
        // Without a number, the runtime chooses it.
        let asked = asked.find_map(|(_, value)| match value {
            Some(Value::Integer(threads)) => u32::try_from(*threads).ok().filter(|threads| *threads > 0),
            _ => None,
        });
        self.record.clear();
        self.record.byte(OPENMP);
        if kind == THREAD_FORK {
            self.record.int(asked.unwrap_or(u32::MAX));
        }
        self.file.event(time, kind, &self.record, None)
    }

    fn event(&mut self, time: Timestamp, kind: u8, region: u32, ending: Ending) -> std::io::Result<()> {
        self.record.clear();
        self.record.int(region);
        if kind == ENTER || ending == Ending::Returned {
            return self.file.event(time, kind, &self.record, None);
        }
        let mut attributes = OtfRecord::default();
        attributes.int(1).int(ENDING).byte(TYPE_STRING).int(ending_string(ending));
        self.file.event(time, kind, &self.record, Some((ATTRIBUTE_LIST, &attributes)))
    }
}

impl Visitor for OtfEvents<'_, '_> {
    fn enter(&mut self, time: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let Measured { call, values, .. } = measured;
        let path = self.gathered.path(self.open.last().map(|open| open.path), call.region);
        let counters = self.counters.as_slice().into();
        self.gathered.at(time);
        self.metrics(time)?;
        let region = self.gathered.region(call.region);
        self.event(time, ENTER, region, call.ending)?;
        if self.forks.contains(&call.region) {
            self.team(time, THREAD_FORK, values.as_ref())?;
        }
        self.parameters(time, values.as_ref(), false)?;
        let at_exit = self.messages(time, call)?;
        self.open.push(OpenOtfCall { path, counters, at_exit });
        Ok(())
    }

    fn leave(&mut self, time: Timestamp, Measured { call, readings, values }: &Measured) -> Result<(), ExportError> {
        let open = self.open.pop().expect("a call is entered before it is left");
        for ((counter, at_enter), reading) in self.counters.iter_mut().zip(&open.counters).zip(readings) {
            *counter = at_enter.saturating_add(reading.inclusive).max(*counter);
        }
        self.gathered.at(time);
        open.at_exit.iter().try_for_each(|waiting| self.file.event(time, waiting.kind, &waiting.record, None))?;
        self.parameters(time, values.as_ref(), true)?;
        self.metrics(time)?;
        if self.forks.contains(&call.region) {
            self.team(time, THREAD_JOIN, None)?;
        }
        let region = self.gathered.region(call.region);
        Ok(self.event(time, LEAVE, region, call.ending)?)
    }
}
