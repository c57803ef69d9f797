//! The Firefox profiler's processed profile: a thread of samples per location, a sample wherever a
//! call begins or ends. A sample's weight is the time until the next one, so that the call tree adds
//! up exactly and the stack chart shows every call.
//! See <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>.
//!
//! The format keeps each property of all samples in a list of its own, so a thread's calls are
//! visited once for each list.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use rtrace_model::{LocationId, Measured, Timestamp};
use serde_json::json;

use super::super::format::{ExportFormat, Form};
use super::super::json;
use super::super::nesting::Visitor;
use super::super::paths::{ExportPaths, Path};
use super::super::remarks::remarks;
use super::super::source::Nested;
use super::super::step::PathStep;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "firefox",
    summary: "Firefox profiler: timeline, call tree and flame graph",
    extension: "firefox.json.gz",
    opens_in: "profiler.firefox.com",
    keeps: "every stack over time by process and thread, contexts; losses in the profile's information",
    omits: "endings, counters, events, symbols, calls that took no time",
    untimed: "a stack for as long as their timed callees ran, else left out",
    form: Form::File(write),
};

/// Version of the format.
const VERSION: u32 = 48;

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let mut output = GzEncoder::new(output, Compression::fast());
    let remarks = remarks(source)?;
    let header = source.header();
    let extra: Vec<_> =
        remarks.iter().map(|(name, text)| json!({ "label": name, "format": "string", "value": text })).collect();
    let meta = json!({
        "version": 29,
        "preprocessedProfileVersion": VERSION,
        "product": "rtrace",
        "interval": 0.000_001,
        "startTime": header.begin.realtime_ns as f64 / 1e6,
        "processType": 0,
        "stackwalk": 0,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "doesNotUseFrameImplementation": true,
        "sourceCodeIsNotOnSearchfox": true,
        "oscpu": format!("Linux {}", header.kernel),
        "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
        "markerSchema": [],
        "extra": [{ "label": "Recording", "entries": extra }],
    });
    write!(output, "{{\"meta\":{meta},\"libs\":[],\"pages\":[],\"threads\":[")?;
    let nested = source.nested()?;
    let mut commas = json::Commas::default();
    for location in nested.locations() {
        commas.next(&mut output)?;
        thread(source, &nested, location, &mut output)?;
    }
    output.write_all(b"]}\n")?;
    output.finish()?;
    Ok(())
}

fn thread(
    source: &Excerpt<'_>,
    nested: &Nested<'_>,
    location: LocationId,
    output: &mut dyn Write,
) -> Result<(), ExportError> {
    let of = source.threads.thread(location);
    let program = source.threads.program(of);
    let about = json!({
        "name": of.name,
        "processName": program.name,
        "processType": "default",
        "isMainThread": program.pid == of.tid,
        "pid": program.number.to_string(),
        "tid": of.number,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "markers": {
            "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": []
        },
        "nativeSymbols": { "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [] },
    });
    let about = about.to_string();
    let mut samples = FirefoxSamples {
        source,
        column: JsonList::Stack,
        output,
        paths: ExportPaths::default(),
        open: Vec::new(),
        waits: None,
        written: 0,
    };
    write!(samples.output, "{},\"samples\":{{\"weightType\":\"tracing-ms\",\"stack\":[", &about[..about.len() - 1])?;
    samples.visit(nested, location)?;
    for (column, name) in [(JsonList::Time, "time"), (JsonList::Weight, "weight")] {
        write!(samples.output, "],\"{name}\":[")?;
        samples.column = column;
        samples.visit(nested, location)?;
    }
    let FirefoxSamples { output, paths, written, .. } = samples;
    write!(output, "],\"length\":{written}}}")?;
    tables(source, &paths, output)?;
    Ok(())
}

/// Stacks, frames, functions and texts of a thread. A stack is a call path, a frame a function.
fn tables(source: &Excerpt<'_>, paths: &ExportPaths, output: &mut dyn Write) -> io::Result<()> {
    let mut functions: Vec<PathStep> = Vec::new();
    let mut places: HashMap<PathStep, usize> = HashMap::new();
    let place = |path: &Path| {
        *places.entry(path.step).or_insert_with(|| {
            functions.push(path.step);
            functions.len() - 1
        })
    };
    let frames: Vec<usize> = paths.all.iter().map(place).collect();
    let (stacks, count) = (frames.len(), functions.len());
    let prefixes: Vec<Option<usize>> = paths.all.iter().map(|path| path.parent).collect();
    let numbers: Vec<usize> = (0..count).collect();
    // Names of functions, then those of their libraries.
    let library = |step: &PathStep| match *step {
        PathStep::Function(region) => source.library_of(region).to_owned(),
        _ => "not traced".to_owned(),
    };
    let names = functions.iter().map(|&step| source.step(step));
    let texts: Vec<String> = names.chain(functions.iter().map(library)).collect();
    let resources: Vec<usize> = (count..2 * count).collect();
    let (nothing, zeros, minus, not) = (vec![None::<u32>; count], vec![0; count], vec![-1; count], vec![false; count]);
    let tables = json!({
        "stackTable": { "length": stacks, "frame": frames, "prefix": prefixes,
            "category": vec![0; stacks], "subcategory": vec![0; stacks] },
        "frameTable": { "length": count, "func": numbers, "address": minus, "inlineDepth": zeros, "category": zeros,
            "subcategory": zeros, "nativeSymbol": nothing, "innerWindowID": nothing, "implementation": nothing,
            "line": nothing, "column": nothing },
        "funcTable": { "length": count, "name": numbers, "isJS": not, "relevantForJS": not, "resource": numbers,
            "fileName": nothing, "lineNumber": nothing, "columnNumber": nothing },
        "resourceTable": { "length": count, "lib": nothing, "name": resources, "host": nothing, "type": vec![1; count] },
        "stringArray": texts,
    });
    write!(output, ",{}", &tables.to_string()[1..])
}

/// The list that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonList {
    Stack,
    Time,
    Weight,
}

struct FirefoxSamples<'a> {
    source: &'a Excerpt<'a>,
    column: JsonList,
    output: &'a mut dyn Write,
    paths: ExportPaths,
    /// The paths of the open calls, each with whether it was timed.
    open: Vec<(usize, bool)>,
    /// The latest change of the stack: a sample once time has passed.
    waits: Option<(Timestamp, Option<usize>)>,
    written: u64,
}

impl FirefoxSamples<'_> {
    fn visit(&mut self, nested: &Nested<'_>, location: LocationId) -> Result<(), ExportError> {
        self.written = 0;
        self.waits = None;
        nested.visit(location, self)?;
        if let Some((time, stack)) = self.waits.take() {
            self.sample(time, stack, time)?;
        }
        Ok(())
    }

    /// The stack changes. Where a call was not timed, time between its callees is its caller's.
    fn change(&mut self, time: Timestamp) -> Result<(), ExportError> {
        let innermost = self.open.iter().rev().find(|&&(_, is_timed)| is_timed);
        let before = self.waits.replace((time, innermost.map(|&(path, _)| path)));
        match before {
            Some((since, stack)) if since < time => Ok(self.sample(since, stack, time)?),
            _ => Ok(()),
        }
    }

    fn sample(&mut self, time: Timestamp, stack: Option<usize>, until: Timestamp) -> io::Result<()> {
        if self.written > 0 {
            self.output.write_all(b",")?;
        }
        self.written += 1;
        match (self.column, stack) {
            (JsonList::Stack, Some(stack)) => write!(self.output, "{stack}"),
            (JsonList::Stack, None) => write!(self.output, "null"),
            (JsonList::Time, _) => write!(self.output, "{}", millis(self.source.offset(time))),
            (JsonList::Weight, Some(_)) => write!(self.output, "{}", millis(until.since(time))),
            (JsonList::Weight, None) => write!(self.output, "0"),
        }
    }
}

impl Visitor for FirefoxSamples<'_> {
    fn enter(&mut self, time: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let parent = self.open.last().map(|&(path, _)| path);
        let path = self.paths.place_call(parent, self.source.led_to(&measured.call), &measured.call);
        self.open.push((path, measured.call.is_timed()));
        self.change(time)
    }

    fn leave(&mut self, time: Timestamp, _: &Measured) -> Result<(), ExportError> {
        self.open.pop();
        self.change(time)
    }
}

fn millis(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}
