//! speedscope's file format: a profile per thread, an open and a close event per call.
//! The schema: <https://www.speedscope.app/file-format-schema.json>.

use std::collections::HashMap;
use std::io::{self, Write};

use rtrace_model::{Measured, RegionId, Timestamp};

use super::super::format::{ExportFormat, Form};
use super::super::json::{self, Commas};
use super::super::nesting::Visitor;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "speedscope",
    summary: "speedscope: a flame chart per thread",
    extension: "speedscope.json",
    opens_in: "speedscope.app",
    keeps: "every call on its thread, as enters and exits in ns since the recording began",
    omits: "endings, losses, events, counters",
    untimed: "zero length, or as long as their timed callees",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let version = json::text(&format!("rtrace {}", source.header().rtrace_version));
    let schema = r#""$schema":"https://www.speedscope.app/file-format-schema.json""#;
    write!(output, "{{{schema},\"exporter\":{version},\"activeProfileIndex\":0,\"profiles\":[")?;
    let mut frames = Frames::default();
    let nested = source.nested()?;
    let mut profiles = Commas::default();
    for location in nested.locations() {
        let thread = source.threads.thread(location);
        let program = source.threads.program(thread);
        let name = format!("{} ({}) {} ({})", program.name, program.pid, thread.name, thread.tid);
        profiles.next(output)?;
        write!(output, r#"{{"type":"evented","name":{},"unit":"nanoseconds","events":["#, json::text(&name))?;
        let mut events =
            SpeedscopeEvents { source, output, frames: &mut frames, commas: Commas::default(), span: None };
        nested.visit(location, &mut events)?;
        let (begin, end) = events.span.unwrap_or_default();
        write!(output, r#"],"startValue":{begin},"endValue":{end}}}"#)?;
    }
    write!(output, "],\n\"shared\":{{\"frames\":[")?;
    frames.write(source, output)?;
    writeln!(output, "]}}}}")?;
    Ok(())
}

/// The functions seen so far, by the place in the list of frames.
#[derive(Default)]
struct Frames {
    all: Vec<RegionId>,
    places: HashMap<RegionId, usize>,
}

impl Frames {
    fn place(&mut self, region: RegionId) -> usize {
        *self.places.entry(region).or_insert_with(|| {
            self.all.push(region);
            self.all.len() - 1
        })
    }

    fn write(&self, source: &Excerpt<'_>, output: &mut dyn Write) -> io::Result<()> {
        let mut commas = Commas::default();
        for &region in &self.all {
            commas.next(output)?;
            let (name, library) = (json::text(&source.function_alone(region)), json::text(source.library_of(region)));
            write!(output, r#"{{"name":{name},"file":{library}}}"#)?;
        }
        Ok(())
    }
}

struct SpeedscopeEvents<'a> {
    source: &'a Excerpt<'a>,
    output: &'a mut dyn Write,
    frames: &'a mut Frames,
    commas: Commas,
    /// Times of the first and the last event.
    span: Option<(u64, u64)>,
}

impl SpeedscopeEvents<'_> {
    fn event(&mut self, kind: char, time: Timestamp, region: RegionId) -> Result<(), ExportError> {
        let (at, frame) = (self.source.offset(time), self.frames.place(region));
        self.span = Some((self.span.map_or(at, |(begin, _)| begin), at));
        self.commas.next(self.output)?;
        Ok(write!(self.output, r#"{{"type":"{kind}","at":{at},"frame":{frame}}}"#)?)
    }
}

impl Visitor for SpeedscopeEvents<'_> {
    fn enter(&mut self, time: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        self.event('O', time, measured.call.region)
    }

    fn leave(&mut self, time: Timestamp, measured: &Measured) -> Result<(), ExportError> {
        self.event('C', time, measured.call.region)
    }
}
