//! Perfetto's protobuf trace: a track per thread, a begin and an end event per call.
//!
//! The messages: <https://perfetto.dev/docs/reference/trace-packet-proto>. Each location is a packet
//! sequence of its own, so that its track, its clock and its names are said once and every event
//! takes about 20 bytes.

use std::collections::HashSet;
use std::io::{self, Write};

use rtrace_model::{CallValues, Ending, Event, Measured, RegionId, Timestamp, Value};

use super::super::format::{ExportFormat, Form};
use super::super::nesting::Visitor;
use super::super::protobuf::Message;
use super::super::remarks::remarks;
use super::super::samples::{self, SeriesOwner};
use super::super::step::BELOW;
use super::super::threads::ThreadLifetime;
use super::super::values::ValuePart;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "perfetto",
    summary: "Perfetto's trace: a timeline, and SQL over it",
    extension: "pftrace",
    opens_in: "ui.perfetto.dev, trace_processor",
    keeps: "every call on its process and thread, counters, endings, arguments and results as arguments, samples as \
            counters, losses, events, wall-clock time",
    omits: "symbols, versions and aliases of functions",
    untimed: "an instant event with the argument `untimed`",
    form: Form::File(write),
};

/// Fields of the messages, by the names that the schema gives them.
mod field {
    pub const TRACE_PACKET: u64 = 1;

    pub mod packet {
        pub const CLOCK_SNAPSHOT: u64 = 6;
        pub const TIMESTAMP: u64 = 8;
        pub const SEQUENCE_ID: u64 = 10;
        pub const TRACK_EVENT: u64 = 11;
        pub const INTERNED_DATA: u64 = 12;
        pub const SEQUENCE_FLAGS: u64 = 13;
        pub const DEFAULTS: u64 = 59;
        pub const TRACK_DESCRIPTOR: u64 = 60;
    }

    pub mod clock_snapshot {
        pub const CLOCKS: u64 = 1;
        pub const PRIMARY_CLOCK: u64 = 2;
        pub const CLOCK_ID: u64 = 1;
        pub const CLOCK_TIMESTAMP: u64 = 2;
    }

    pub mod defaults {
        pub const TRACK_EVENT: u64 = 11;
        pub const CLOCK_ID: u64 = 58;
    }

    pub mod track {
        pub const UUID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const PROCESS: u64 = 3;
        pub const THREAD: u64 = 4;
        pub const PARENT: u64 = 5;
        pub const COUNTER: u64 = 8;
        pub const COUNTER_UNIT: u64 = 6;
        pub const PROCESS_PID: u64 = 1;
        pub const PROCESS_COMMAND_LINE: u64 = 2;
        pub const PROCESS_NAME: u64 = 6;
        pub const THREAD_PID: u64 = 1;
        pub const THREAD_TID: u64 = 2;
        pub const THREAD_NAME: u64 = 5;
    }

    pub mod event {
        pub const CATEGORY_IIDS: u64 = 3;
        pub const ANNOTATION: u64 = 4;
        pub const TYPE: u64 = 9;
        pub const NAME_IID: u64 = 10;
        pub const TRACK: u64 = 11;
        pub const NAME: u64 = 23;
        pub const DOUBLE: u64 = 44;
        pub const ANNOTATION_BOOL: u64 = 2;
        pub const ANNOTATION_UINT: u64 = 3;
        pub const ANNOTATION_INT: u64 = 4;
        pub const ANNOTATION_DOUBLE: u64 = 5;
        pub const ANNOTATION_TEXT: u64 = 6;
        pub const ANNOTATION_POINTER: u64 = 7;
        pub const ANNOTATION_NAME: u64 = 10;
        pub const ANNOTATION_ENTRIES: u64 = 11;
    }

    pub mod interned {
        pub const CATEGORIES: u64 = 1;
        pub const NAMES: u64 = 2;
        pub const IID: u64 = 1;
        pub const TEXT: u64 = 2;
    }
}

const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// The sequence and the track of what concerns the recording as a whole.
const WHOLE: u64 = 1;

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let mut packets = Packets { output, packet: Message::new() };
    whole(source, &mut packets)?;
    let nested = source.nested_with_values()?;
    // The first stands for threads that are not defined, of which there are none as a rule.
    let has_unknown = nested.locations().any(|location| source.threads.thread(location).program == 0);
    for (place, program) in source.threads.programs.iter().enumerate().skip(usize::from(!has_unknown)) {
        let mut process = Message::new();
        process.int(field::track::PROCESS_PID, program.number.into()).text(field::track::PROCESS_NAME, &program.name);
        for argument in &program.command_line {
            process.text(field::track::PROCESS_COMMAND_LINE, argument);
        }
        let mut track = Message::new();
        track.int(field::track::UUID, program_track(place)).message(field::track::PROCESS, &process);
        packets.packet.message(field::packet::TRACK_DESCRIPTOR, &track);
        packets.end(WHOLE)?;
    }
    for (location, sequence) in nested.locations().zip(WHOLE + 1..) {
        let thread = source.threads.thread(location);
        begin_thread(source, thread, sequence, &mut packets)?;
        let (named, event) = (HashSet::new(), Message::new());
        nested.visit(location, &mut SliceEvents { source, packets: &mut packets, sequence, named, event })?;
    }
    counters(source, &mut packets)
}

/// Packets on their way out.
struct Packets<'a> {
    output: &'a mut dyn Write,
    packet: Message,
}

impl Packets<'_> {
    /// Completes a packet of that sequence and begins the next.
    fn end(&mut self, sequence: u64) -> io::Result<()> {
        self.packet.int(field::packet::SEQUENCE_ID, sequence);
        let mut trace = Message::new();
        trace.message(field::TRACE_PACKET, &self.packet);
        self.packet.clear();
        self.output.write_all(trace.bytes())
    }

    /// Completes the first packet of a sequence: what it says holds for all that follow.
    fn begin_sequence(&mut self, sequence: u64) -> io::Result<()> {
        let (mut event, mut defaults) = (Message::new(), Message::new());
        event.int(field::event::TRACK, sequence);
        defaults.message(field::defaults::TRACK_EVENT, &event).int(field::defaults::CLOCK_ID, MONOTONIC);
        self.packet.message(field::packet::DEFAULTS, &defaults).int(field::packet::SEQUENCE_FLAGS, STATE_CLEARED);
        self.end(sequence)
    }

    /// Completes a packet with an event.
    fn event(&mut self, sequence: u64, time: Timestamp, event: &Message) -> io::Result<()> {
        self.packet
            .int(field::packet::TIMESTAMP, time.0)
            .int(field::packet::SEQUENCE_FLAGS, NEEDS_STATE)
            .message(field::packet::TRACK_EVENT, event);
        self.end(sequence)
    }
}

/// Clocks, remarks and events.
fn whole(source: &Excerpt<'_>, packets: &mut Packets<'_>) -> Result<(), ExportError> {
    let begin = source.header().begin;
    let mut snapshot = Message::new();
    for (id, time) in [(MONOTONIC, begin.monotonic.0), (REALTIME, begin.realtime_ns)] {
        let mut clock = Message::new();
        clock.int(field::clock_snapshot::CLOCK_ID, id).int(field::clock_snapshot::CLOCK_TIMESTAMP, time);
        snapshot.message(field::clock_snapshot::CLOCKS, &clock);
    }
    snapshot.int(field::clock_snapshot::PRIMARY_CLOCK, MONOTONIC);
    packets.packet.message(field::packet::CLOCK_SNAPSHOT, &snapshot);
    packets.end(WHOLE)?;

    let mut track = Message::new();
    track.int(field::track::UUID, WHOLE).text(field::track::NAME, "rtrace");
    packets.packet.message(field::packet::TRACK_DESCRIPTOR, &track);
    packets.begin_sequence(WHOLE)?;

    let mut remark = Message::new();
    remark.int(field::event::TYPE, INSTANT).text(field::event::NAME, "recording");
    for (name, text) in remarks(source)? {
        annotate(&mut remark, name, Annotation::Text(&text));
    }
    packets.event(WHOLE, begin.monotonic, &remark)?;
    for events in source.events() {
        for event in events? {
            packets.event(WHOLE, event.time, &described(&event)?)?;
        }
    }
    Ok(())
}

/// What happened beside the calls.
fn described(event: &Event) -> Result<Message, ExportError> {
    let mut message = Message::new();
    message.int(field::event::TYPE, INSTANT).text(field::event::NAME, event.kind.name());
    let detail = serde_json::to_string(&event.kind).map_err(std::io::Error::from)?;
    annotate(&mut message, "detail", Annotation::Text(&detail));
    for (name, id) in [("pid", event.pid), ("tid", event.tid)] {
        if let Some(id) = id {
            annotate(&mut message, name, Annotation::Int(id.into()));
        }
    }
    Ok(message)
}

/// Names the thread's track, and says what holds for all packets of its sequence.
fn begin_thread(
    source: &Excerpt<'_>,
    thread: &ThreadLifetime,
    sequence: u64,
    packets: &mut Packets<'_>,
) -> Result<(), ExportError> {
    let mut descriptor = Message::new();
    descriptor
        .int(field::track::THREAD_PID, source.threads.program(thread).number.into())
        .int(field::track::THREAD_TID, thread.number.into())
        .text(field::track::THREAD_NAME, &thread.name);
    let mut track = Message::new();
    track
        .int(field::track::UUID, sequence)
        .int(field::track::PARENT, program_track(thread.program))
        .message(field::track::THREAD, &descriptor);
    packets.packet.message(field::packet::TRACK_DESCRIPTOR, &track);
    Ok(packets.begin_sequence(sequence)?)
}

/// The track of a process, by its place; tracks of sequences count up from 1.
fn program_track(place: usize) -> u64 {
    1 << 32 | place as u64
}

/// The track of a series of samples, by its place.
fn series_track(place: usize) -> u64 {
    2 << 32 | place as u64
}

/// A track for each series of samples.
fn counters(source: &Excerpt<'_>, packets: &mut Packets<'_>) -> Result<(), ExportError> {
    let all = samples::series(source)?;
    for (place, series) in all.iter().enumerate() {
        let metric = &source.sampled_metrics()[series.metric()];
        let parent = match series.owner {
            SeriesOwner::Thread(location) => program_track(source.threads.thread(location).program),
            SeriesOwner::Program(program) => program_track(program),
            SeriesOwner::Socket(_) | SeriesOwner::Node => WHOLE,
        };
        let (mut counter, mut track) = (Message::new(), Message::new());
        counter.text(field::track::COUNTER_UNIT, &samples::unit(metric));
        track.int(field::track::UUID, series_track(place)).text(field::track::NAME, &series.name(source));
        track.int(field::track::PARENT, parent).message(field::track::COUNTER, &counter);
        packets.packet.message(field::packet::TRACK_DESCRIPTOR, &track);
        packets.end(WHOLE)?;
    }
    samples::visit(source, &all, |place, sample| {
        let mut event = Message::new();
        event.int(field::event::TYPE, COUNTER).int(field::event::TRACK, series_track(place));
        event.double(field::event::DOUBLE, sample.value);
        Ok(packets.event(WHOLE, sample.time, &event)?)
    })
}

enum Annotation<'a> {
    True,
    Int(u64),
    Signed(i64),
    Double(f64),
    Pointer(u64),
    Text(&'a str),
}

fn annotate(event: &mut Message, name: &str, value: Annotation<'_>) {
    event.message(field::event::ANNOTATION, &annotation(name, value));
}

fn annotation(name: &str, value: Annotation<'_>) -> Message {
    let mut annotation = Message::new();
    annotation.text(field::event::ANNOTATION_NAME, name);
    match value {
        Annotation::True => annotation.int(field::event::ANNOTATION_BOOL, 1),
        Annotation::Int(value) => annotation.int(field::event::ANNOTATION_UINT, value),
        Annotation::Signed(value) => annotation.int(field::event::ANNOTATION_INT, value.cast_unsigned()),
        Annotation::Double(value) => annotation.double(field::event::ANNOTATION_DOUBLE, value),
        Annotation::Pointer(value) => annotation.int(field::event::ANNOTATION_POINTER, value),
        Annotation::Text(text) => annotation.text(field::event::ANNOTATION_TEXT, text),
    };
    annotation
}

/// The values of a part of a call, as a dictionary; a result stands for itself. Those that are not known are left out.
fn annotate_values(event: &mut Message, values: &CallValues, part: ValuePart) {
    let mut entries = Message::new();
    for (column, value) in values.iter().filter(|(column, _)| ValuePart::of(column) == part) {
        let Some(value) = value else { continue };
        let value = match value {
            Value::Integer(value) if column.is_address() => Annotation::Pointer(value.cast_unsigned()),
            Value::Integer(value) => Annotation::Signed(*value),
            Value::Float(value) => Annotation::Double(*value),
            Value::Text(text) => Annotation::Text(text),
        };
        match part {
            ValuePart::Result => annotate(event, &column.name, value),
            _ => _ = entries.message(field::event::ANNOTATION_ENTRIES, &annotation(&column.name, value)),
        }
    }
    if !entries.bytes().is_empty() {
        entries.text(field::event::ANNOTATION_NAME, part.name());
        event.message(field::event::ANNOTATION, &entries);
    }
}

/// Enters and exits of one thread.
struct SliceEvents<'a, 'o> {
    source: &'a Excerpt<'a>,
    packets: &'a mut Packets<'o>,
    sequence: u64,
    /// Functions that the sequence has names for already; a name's number is its region's id + 1.
    named: HashSet<RegionId>,
    event: Message,
}

impl SliceEvents<'_, '_> {
    /// Names a function where it is first called.
    fn name(&mut self, region: RegionId) {
        if !self.named.insert(region) {
            return;
        }
        let mut interned = Message::new();
        let texts = [
            (field::interned::CATEGORIES, self.source.library_of(region).into()),
            (field::interned::NAMES, self.source.function_alone(region)),
        ];
        for (kind, text) in texts {
            let mut entry = Message::new();
            entry.int(field::interned::IID, iid(region)).text(field::interned::TEXT, &text);
            interned.message(kind, &entry);
        }
        self.packets.packet.message(field::packet::INTERNED_DATA, &interned);
    }

    fn emit(&mut self, time: Timestamp) -> Result<(), ExportError> {
        self.packets.event(self.sequence, time, &self.event)?;
        self.event.clear();
        Ok(())
    }
}

fn iid(region: RegionId) -> u64 {
    u64::from(region.0) + 1
}

impl Visitor for SliceEvents<'_, '_> {
    fn enter(&mut self, time: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let Measured { call, values, .. } = measured;
        self.name(call.region);
        let kind = if call.is_timed() { SLICE_BEGIN } else { INSTANT };
        self.event.int(field::event::TYPE, kind);
        self.event.int(field::event::CATEGORY_IIDS, iid(call.region)).int(field::event::NAME_IID, iid(call.region));
        if !call.is_timed() {
            annotate(&mut self.event, "ending", Annotation::Text(call.ending.name()));
            annotate(&mut self.event, "untimed", Annotation::True);
        }
        if let Some(context) = self.source.context_of(call) {
            annotate(&mut self.event, "context", Annotation::Text(&context.join(BELOW)));
        }
        if let Some(values) = values {
            annotate_values(&mut self.event, values, ValuePart::Argument);
        }
        self.emit(time)
    }

    fn leave(&mut self, time: Timestamp, Measured { call, readings, values }: &Measured) -> Result<(), ExportError> {
        if !call.is_timed() {
            return Ok(());
        }
        self.event.int(field::event::TYPE, SLICE_END);
        if call.ending != Ending::Returned {
            annotate(&mut self.event, "ending", Annotation::Text(call.ending.name()));
        }
        for (metric, reading) in self.source.call_metrics().iter().zip(readings) {
            annotate(&mut self.event, &metric.name, Annotation::Int(reading.inclusive));
        }
        if let Some(values) = values {
            for part in [ValuePart::Result, ValuePart::Out] {
                annotate_values(&mut self.event, values, part);
            }
        }
        self.emit(time)
    }
}
