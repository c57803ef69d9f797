//! Chrome's JSON trace events: a complete event (`X`) per call, an instant one (`i`) where there is
//! no duration. Times are microseconds since the recording began, with three decimals.
//!
//! The format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.
//! Viewers keep the order of events of one instant, so callers come before their callees.

use std::io::{self, Write};

use rtrace_model::{Event, Measured, Reading, Sample, Timestamp};

use super::super::format::{ExportFormat, Form};
use super::super::json::{self, Commas};
use super::super::nesting::Visitor;
use super::super::remarks::remarks;
use super::super::samples::{self, Series, SeriesOwner};
use super::super::step::BELOW;
use super::super::threads::ThreadLifetime;
use super::super::values::{self, Json, ValuePart};
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "chrome",
    summary: "Chrome's JSON trace events: a timeline",
    extension: "trace.json",
    opens_in: "ui.perfetto.dev, chrome://tracing, speedscope",
    keeps: "every call on its process and thread, counters, endings, arguments and results as arguments, samples as \
            counters, losses, events",
    omits: "symbols, versions and aliases of functions",
    untimed: "an instant event with the argument `untimed`",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let remarks = remarks(source)?;
    let remarks = json::object(remarks.iter().map(|(name, text)| (*name, text.as_str())));
    write!(output, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{remarks},\"traceEvents\":[")?;
    let nested = source.nested_with_values()?;
    let mut events = ChromeEvents { source, output, commas: Commas::default(), thread: None };
    for location in nested.locations() {
        let thread = source.threads.thread(location);
        events.thread(thread)?;
        nested.visit(location, &mut events)?;
    }
    for batch in source.events() {
        for event in batch? {
            events.event(&event)?;
        }
    }
    let series = samples::series(source)?;
    samples::visit(source, &series, |place, sample| Ok(events.sample(&series[place], sample)?))?;
    writeln!(events.output, "\n]}}")?;
    Ok(())
}

struct ChromeEvents<'a> {
    source: &'a Excerpt<'a>,
    output: &'a mut dyn Write,
    commas: Commas,
    thread: Option<&'a ThreadLifetime>,
}

impl<'a> ChromeEvents<'a> {
    /// Begins a thread: its names come before its calls.
    fn thread(&mut self, thread: &'a ThreadLifetime) -> io::Result<()> {
        let program = self.source.threads.program(thread);
        self.thread = Some(thread);
        for (kind, name) in [("process_name", &program.name), ("thread_name", &thread.name)] {
            self.commas.next(self.output)?;
            let (pid, tid, name) = (program.number, thread.number, json::text(name));
            write!(self.output, r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.commas.next(self.output)?;
        let (name, at) = (event.kind.name(), micros(self.source.offset(event.time)));
        let detail = serde_json::to_string(&event.kind)?;
        let (pid, tid) = (event.pid.unwrap_or(0), event.tid.unwrap_or(0));
        let scope = if event.tid.is_some() {
            't'
        } else if event.pid.is_some() {
            'p'
        } else {
            'g'
        };
        write!(
            self.output,
            r#"{{"ph":"i","s":"{scope}","name":"{name}","cat":"rtrace","pid":{pid},"tid":{tid},"ts":{at},"args":{detail}}}"#
        )
    }
}

impl ChromeEvents<'_> {
    /// A value of a counter; viewers tell counters apart by process, name and id.
    fn sample(&mut self, series: &Series, sample: &Sample) -> io::Result<()> {
        self.commas.next(self.output)?;
        let metric = &self.source.sampled_metrics()[series.metric()];
        let (threads, instance) = (&self.source.threads, series.instance());
        let (pid, id) = match series.owner {
            SeriesOwner::Thread(location) => (threads.program(threads.thread(location)).number, instance),
            SeriesOwner::Program(program) => (threads.programs[program].number, 0),
            SeriesOwner::Socket(_) | SeriesOwner::Node => (0, instance),
        };
        let (name, unit) = (json::text(&metric.name), json::text(&samples::unit(metric)));
        let (at, value) = (micros(self.source.offset(sample.time)), serde_json::Value::from(sample.value));
        write!(
            self.output,
            r#"{{"ph":"C","name":{name},"cat":"rtrace","pid":{pid},"id":"{id}","ts":{at},"args":{{{unit}:{value}}}}}"#
        )
    }
}

impl Visitor for ChromeEvents<'_> {
    fn enter(&mut self, time: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let (call, source) = (&measured.call, self.source);
        let thread = source.threads.thread(call.location);
        let thread = self.thread.unwrap_or(thread);
        self.commas.next(self.output)?;
        let (name, library) =
            (json::text(&source.function_alone(call.region)), json::text(source.library_of(call.region)));
        let (pid, tid, at) = (source.threads.program(thread).number, thread.number, micros(source.offset(time)));
        let (kind, untimed) = match call.duration {
            Some(duration) => (format!(r#""ph":"X","dur":{}"#, micros(duration)), ""),
            None => (r#""ph":"i","s":"t""#.to_owned(), r#","untimed":true"#),
        };
        let (id, ending) = (call.id, call.ending.name());
        write!(
            self.output,
            r#"{{{kind},"name":{name},"cat":{library},"pid":{pid},"tid":{tid},"ts":{at},"args":{{"call":{id},"ending":"{ending}"{untimed}"#
        )?;
        if let Some(context) = source.context_of(call) {
            write!(self.output, r#","context":{}"#, json::text(&context.join(BELOW)))?;
        }
        for (metric, Reading { inclusive, .. }) in source.call_metrics().iter().zip(&measured.readings) {
            write!(self.output, ",{}:{inclusive}", json::text(&metric.name))?;
        }
        if let Some(values) = &measured.values {
            for (name, part) in [("args", ValuePart::Argument), ("out", ValuePart::Out)] {
                if let Some(object) = values::object(values, part) {
                    write!(self.output, ",\"{name}\":{}", object.text())?;
                }
            }
            if let Some(result) = values::result(values) {
                write!(self.output, ",\"result\":{}", Json(result).text())?;
            }
        }
        Ok(write!(self.output, "}}}}")?)
    }

    fn leave(&mut self, _: Timestamp, _: &Measured) -> Result<(), ExportError> {
        Ok(())
    }
}

fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}
