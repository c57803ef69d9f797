//! JSON lines: an object per line, its kind in `type`. First the recording, then calls as they are
//! stored, then events. See <https://jsonlines.org>.

use std::borrow::Cow;
use std::io::{self, Write};

use rtrace_model::{Call, CallValues, Event, Reading};
use serde::Serialize;
use serde_json::Value;

use super::super::format::{ExportFormat, Form};
use super::super::json;
use super::super::remarks::remarks;
use super::super::values::{self, Json, Object, ValuePart};
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "jsonl",
    summary: "JSON lines: an object per call and per event",
    extension: "jsonl",
    opens_in: "jq, DuckDB, pandas, log pipelines",
    keeps: "every call with all its columns, names in place of ids, counters, arguments and results, events, losses",
    omits: "versions and aliases of functions",
    untimed: "`ending` is `unseen`, `duration_ns` is null, no `counters`",
    form: Form::File(write),
};

/// A line; the order of members is that of the lines.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum CallLine<'a> {
    Recording {
        remarks: Value,
    },
    Call {
        process: &'a str,
        pid: u32,
        thread: &'a str,
        tid: u32,
        location: u32,
        call: u64,
        parent: u64,
        depth: u32,
        library: &'a str,
        function: &'a str,
        symbol: Cow<'a, str>,
        start_ns: u64,
        duration_ns: Option<u64>,
        child_ns: u64,
        ending: &'static str,
        call_site: Option<String>,
        /// The untraced functions that led to the call, the outermost first, where that was recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<Vec<String>>,
        #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
        counters: serde_json::Map<String, Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Object<'a>>,
        /// Present where the function has one, null where it is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Json<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        out: Option<Object<'a>>,
    },
    Event {
        time_ns: u64,
        pid: Option<u32>,
        tid: Option<u32>,
        detail: &'a rtrace_model::EventKind,
    },
}

impl CallLine<'_> {
    fn write(&self, output: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *output, self)?;
        output.write_all(b"\n")
    }
}

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let remarks = remarks(source)?;
    let remarks = json::object(remarks.iter().map(|(name, text)| (*name, text.as_str())));
    CallLine::Recording { remarks }.write(output)?;
    let mut values = source.value_reader();
    for batch in source.batches() {
        let batch = batch?;
        let of_calls = values.of(&batch)?;
        for (index, (call, values)) in batch.iter().zip(&of_calls).enumerate() {
            line(source, call, batch.readings(index), values.as_ref()).write(output)?;
        }
    }
    for events in source.events() {
        for Event { time, pid, tid, kind } in events? {
            CallLine::Event { time_ns: time.0, pid, tid, detail: &kind }.write(output)?;
        }
    }
    Ok(())
}

fn line<'a>(
    source: &'a Excerpt<'_>,
    call: &Call,
    readings: &[Reading],
    values: Option<&'a CallValues>,
) -> CallLine<'a> {
    let thread = source.threads.thread(call.location);
    let program = source.threads.program(thread);
    let counters = source.call_metrics().iter().zip(readings).map(|(metric, reading)| {
        let reading = serde_json::json!({ "inclusive": reading.inclusive, "child": reading.child });
        (metric.name.clone(), reading)
    });
    CallLine::Call {
        process: &program.name,
        pid: program.pid,
        thread: &thread.name,
        tid: thread.tid,
        location: call.location.0,
        call: call.id,
        parent: call.parent,
        depth: call.depth,
        library: source.library_of(call.region),
        function: source.function(call.region),
        symbol: source.symbol(call.region),
        start_ns: call.start.0,
        duration_ns: call.duration,
        child_ns: call.child,
        ending: call.ending.name(),
        call_site: source.call_site_of(call),
        context: source.context_of(call),
        counters: counters.collect(),
        args: values.and_then(|values| values::object(values, ValuePart::Argument)),
        result: values.and_then(values::result).map(Json),
        out: values.and_then(|values| values::object(values, ValuePart::Out)),
    }
}
