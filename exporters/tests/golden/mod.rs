//! The trace that the golden files show, and the comparison with them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rtrace_exporters::{FORMATS, TraceSet};
use rtrace_model::{
    Base, Batch, Call, CallSite, CallSiteId, Definition, Ending, EventKind, Library, LibraryId, Location, LocationId,
    Loss, LossReason, Metric, MetricId, Process, Reading, Region, RegionId, Sample, Scope, Sink, SourceLine, Span,
    Summary, SymbolName, Timestamp, Untimed, UntimedReason, ValueBatch, ValueColumn, ValueType, Values,
};

use super::common;

/// Calls in the trace.
pub const CALLS: u64 = 19;

/// Two processes; in the first a thread with recursion and all endings, and a thread whose id is
/// used again; in the second a call that was not timed around one that was; names that try to break
/// out of every format. Arguments and results of all types, some of them
/// not known.
pub fn trace(folder: &Path) -> TraceSet {
    record(folder, true)
}

/// The same, of a recorder that was killed.
pub fn unfinished_trace(folder: &Path) -> TraceSet {
    record(folder, false)
}

fn record(folder: &Path, finish: bool) -> TraceSet {
    let (mut writer, path) = common::begin(folder);
    for definition in definitions() {
        writer.define(&definition).unwrap();
    }
    writer.calls(&counted(calls())).unwrap();
    writer.values(&values()).unwrap();
    writer.samples(&samples()).unwrap();
    for (time, kind) in [
        (1_000, EventKind::Armed),
        (1_300, EventKind::BlindWindow { library: "/usr/lib/libone.so.1".into(), since: Timestamp(1_200) }),
        (1_400, EventKind::Fork { child: 41 }),
        (1_900, EventKind::Loss(loss())),
        (1_950, EventKind::Untimed(untimed())),
    ] {
        writer.event(&common::event(time, kind)).unwrap();
    }
    if finish {
        let ended = |ending| calls().iter().filter(|call| call.ending == ending).count() as u64;
        let summary = Summary {
            calls: CALLS,
            open: ended(Ending::Open),
            unwound: ended(Ending::Unwound),
            unseen: ended(Ending::Unseen),
            locations: 4,
            regions: 5,
            blind_windows: 1,
            losses: vec![loss()],
            untimed: vec![untimed()],
            ..common::summary()
        };
        writer.finish(&summary).unwrap();
    } else {
        common::second();
        writer.tick().unwrap();
    }
    drop(writer);
    TraceSet::open(&path).unwrap()
}

fn loss() -> Loss {
    Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 1 }
}

fn untimed() -> Untimed {
    Untimed { reason: UntimedReason::NotYetPlaced, region: Some(RegionId(4)), count: 2 }
}

fn definitions() -> Vec<Definition> {
    let library = |id, path: &str| {
        let build_id = Some("c0ffee".into());
        Definition::Library(Library {
            id: LibraryId(id),
            path: path.into(),
            apart: None,
            build_id,
            device: 1,
            inode: 2,
        })
    };
    let region = |id, library, name: &str, symbol: &str| {
        Definition::Region(Region {
            id: RegionId(id),
            library: LibraryId(library),
            name: name.into(),
            symbols: vec![SymbolName { symbol: symbol.into(), version: None }],
            file_offset: 0x1000 + u64::from(id) * 16,
            size: 16,
            ..Region::default()
        })
    };
    let metric = |id, name: &str, unit: &str, exponent, scope, span| {
        let (id, name, unit) = (MetricId(id), name.into(), unit.into());
        Definition::Metric(Metric { id, name, unit, base: Base::Decimal, exponent, scope, span })
    };
    let process = |pid, executable: &str| Process { pid, exit_code: Some(0), ..common::process(executable) };
    let location = |id, pid, tid, start, name: &str| {
        let (id, start, name) = (LocationId(id), Timestamp(start), name.into());
        Definition::Location(Location { id, pid, tid, start, end: None, name, calls_entered: Some(9) })
    };
    let site = |id, function: Option<&str>, line: Option<u32>| {
        let source = line.map(|line| SourceLine { file: "/src/a \"b\".c".to_owned(), line });
        let (file, function) = (Some("/usr/bin/prog".to_owned()), function.map(str::to_owned));
        let (id, function_offset) = (CallSiteId(id), function.as_ref().map(|_| 7));
        Definition::CallSite(CallSite {
            id,
            file,
            offset: 0x1234,
            function,
            function_offset,
            source,
            ..CallSite::default()
        })
    };
    vec![
        site(0, Some("main"), Some(12)),
        site(1, None, None),
        library(0, "/usr/lib/libone.so.1"),
        library(1, "/opt/lib \"two\", <b>.so"),
        region(0, 0, "one::outer(int)", "_ZN3one5outerEi"),
        region(1, 0, "one::inner(std::string const&)", "_ZN3one5innerERKSs"),
        region(2, 1, "evil;\u{1b}[31m\"name\", </title><b>&\\ {x}\nnext", "evil"),
        region(3, 1, "recurse", "recurse"),
        region(4, 1, "unseen_exit", "unseen_exit"),
        Definition::Process(Process { start: Timestamp(400), ..process(40, "/usr/bin/first") }),
        Definition::Process(Process {
            parent: Some(40),
            start: Timestamp(1_400),
            ..process(41, "/usr/bin/se;cond \"2\"")
        }),
        location(1, 40, 40, 500, "main"),
        location(2, 40, 44, 600, "work\u{1b}er, \"1\""),
        location(3, 40, 44, 1_600, "worker again"),
        location(4, 41, 41, 1_400, "main"),
        metric(0, "page-faults", "#", 0, Scope::Call, Span::SinceStart),
        metric(1, "process/resident", "B", 0, Scope::Process, Span::Point),
        metric(2, "thread/\"wait\"", "s", -9, Scope::Thread, Span::SinceLast),
        metric(3, "socket/energy", "J", -6, Scope::Socket, Span::SinceStart),
        metric(4, "node/limit", "W", 3, Scope::Node, Span::UntilNext),
        value(1, 0, "fd", ValueType::Integer, "int", false),
        value(1, 1, "path", ValueType::Text, "const char *", false),
        value(1, 2, "buf", ValueType::Integer, "void *", false),
        value(1, 3, "result", ValueType::Integer, "ssize_t", true),
        value(2, 0, "call", ValueType::Float, "double", false),
        value(2, 1, "x\",\u{1b}</title>\nnext", ValueType::Text, "char *", true),
        value(2, 2, "result", ValueType::Float, "double", true),
        value(3, 0, "n", ValueType::Integer, "int", false),
    ]
}

/// A value of the calls of a region; `at_exit`: it is read when they return.
fn value(region: u32, position: u32, name: &str, value_type: ValueType, c_type: &str, at_exit: bool) -> Definition {
    let (region, name, c_type) = (RegionId(region), name.to_owned(), c_type.to_owned());
    let (unit, role, source) = ((name == "result").then(|| "B".to_owned()), None, "a table".to_owned());
    Definition::ValueColumn(ValueColumn { region, position, name, value_type, c_type, unit, role, at_exit, source })
}

/// Values of most calls: that of location 4 which called 1 has none.
fn values() -> Vec<ValueBatch> {
    let calls = |calls: &[(u32, u64)]| calls.iter().map(|&(location, id)| (LocationId(location), id)).collect();
    let texts = |texts: &[Option<&str>]| Values::Text(texts.iter().map(|text| text.map(str::to_owned)).collect());
    vec![
        ValueBatch {
            region: RegionId(1),
            calls: calls(&[(1, 2), (1, 3), (1, 4), (1, 7), (3, 3)]),
            columns: vec![
                Values::Integer(vec![Some(3), Some(3), Some(-1), Some(3), Some(7)]),
                texts(&[Some("/a b"), None, Some("=1+1"), Some("q\"\\\u{1b}[31m\n"), Some("")]),
                Values::Integer(vec![Some(0x7fff_1234_5678); 5]),
                Values::Integer(vec![Some(4096), Some(0), Some(i64::MIN), None, Some(i64::MAX)]),
            ],
        },
        ValueBatch {
            region: RegionId(2),
            calls: calls(&[(1, 6), (4, 1), (4, 2)]),
            columns: vec![
                Values::Float(vec![Some(0.5), Some(f64::NAN), Some(-1e300)]),
                texts(&[None, Some("</script>,\"\u{1b}]"), Some("}; x")]),
                Values::Float(vec![None, Some(f64::INFINITY), Some(2.0)]),
            ],
        },
        ValueBatch {
            region: RegionId(3),
            calls: calls(&[(2, 1), (2, 2), (2, 3), (2, 4), (2, 5)]),
            columns: vec![Values::Integer(vec![Some(4), Some(3), Some(2), Some(1), Some(0)])],
        },
    ]
}

/// Each call with a counter that grows by 2 per nanosecond.
fn counted(calls: Vec<Call>) -> Batch {
    let reading = |call: &Call| Reading { inclusive: 2 * call.duration.unwrap_or(0), child: 2 * call.child };
    let readings = calls.iter().map(reading).collect();
    Batch::measured(calls, 1, readings)
}

/// Values of metrics beside the calls; no process has the number 99.
fn samples() -> Vec<Sample> {
    let sample =
        |metric, instance, time, value| Sample { metric: MetricId(metric), time: Timestamp(time), instance, value };
    vec![
        sample(1, 40, 1_050, 4096.0),
        sample(1, 41, 1_450, 0.0),
        sample(1, 40, 2_050, 8192.0),
        sample(1, 99, 2_050, 1.0),
        sample(2, 44, 1_350, 0.1),
        sample(3, 1, 1_000, 1e300),
        sample(3, 0, 1_000, 7.0),
        sample(4, 0, 1_700, -1.5),
    ]
}

/// The calls in the order of their ends; those that were not timed where they were entered.
fn calls() -> Vec<Call> {
    use Ending::{Open, Returned, Unseen, Unwound};
    let call = |location, id, parent, depth, region, start, end, child, ending| Call {
        location: LocationId(location),
        region: RegionId(region),
        id,
        parent,
        depth,
        start: Timestamp(start),
        duration: (ending != Unseen).then_some(end - start),
        child,
        ending,
        call_site: [None, Some(CallSiteId(0)), Some(CallSiteId(1))][region as usize % 3],
        context: None,
    };
    let mut calls = vec![
        // A loop, a call without exit, and an exception through two calls.
        call(1, 1, 0, 0, 0, 1_100, 2_000, 700, Returned),
        call(1, 2, 1, 1, 1, 1_150, 1_250, 0, Returned),
        call(1, 3, 1, 1, 1, 1_250, 1_350, 0, Returned),
        call(1, 4, 1, 1, 1, 1_400, 1_500, 0, Returned),
        call(1, 5, 1, 1, 4, 1_500, 1_500, 0, Unseen),
        call(1, 6, 1, 1, 2, 1_550, 1_750, 100, Unwound),
        call(1, 7, 6, 2, 1, 1_600, 1_700, 0, Unwound),
        // Recursion, open at the end; the innermost calls take no time at all.
        call(2, 1, 0, 0, 3, 1_200, 9_000, 7_700, Open),
        call(2, 2, 1, 1, 3, 1_300, 9_000, 7_600, Open),
        call(2, 3, 2, 2, 3, 1_400, 9_000, 0, Open),
        call(2, 4, 3, 3, 3, 1_400, 1_400, 0, Returned),
        call(2, 5, 3, 3, 3, 1_400, 1_400, 0, Returned),
        // A thread whose id was used before; call 2 of it was lost.
        call(3, 1, 0, 0, 0, 1_700, 1_900, 150, Returned),
        call(3, 3, 2, 2, 1, 1_750, 1_800, 0, Returned),
        // Another process.
        call(4, 1, 0, 0, 2, 1_500, 1_501, 0, Returned),
        call(4, 2, 0, 0, 2, 1_501, 1_502, 0, Returned),
        call(4, 3, 0, 0, 0, 1_600, 1_700, 30, Returned),
        call(4, 4, 3, 1, 4, 1_610, 1_610, 30, Unseen),
        call(4, 5, 4, 2, 1, 1_620, 1_650, 0, Returned),
    ];
    assert_eq!(calls.len() as u64, CALLS);
    calls.sort_by_key(|call| (call.known_until(), std::cmp::Reverse(call.id)));
    calls
}

/// Whether golden files shall be written.
pub fn blessing() -> bool {
    std::env::var_os("RTRACE_BLESS").is_some()
}

/// Whether the text is that of the golden file; writes the file when blessing.
pub fn matches(format: &str, text: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{format}.txt"));
    if blessing() {
        fs::write(&path, text).unwrap();
        return true;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if expected != text {
        let line = expected.lines().zip(text.lines()).position(|(expected, found)| expected != found);
        eprintln!("{}: differs from line {:?} on:\n{text}", path.display(), line.map(|line| line + 1));
    }
    expected == text
}

/// An export as text.
pub fn readable(format: &str, path: &Path) -> String {
    match format {
        "perfetto" => protobuf(&fs::read(path).unwrap()),
        "pprof" => {
            let mut profile = Vec::new();
            flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut profile).unwrap();
            protobuf(&profile)
        }
        "firefox" => {
            let mut profile = String::new();
            flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut profile).unwrap();
            serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&profile).unwrap()).unwrap()
        }
        "arrow" => arrow(path),
        "otf2" => files(path).iter().fold(String::new(), |text, file| {
            let name = file.strip_prefix(path).unwrap().display().to_string();
            format!("{text}{name}\n{}", hexadecimal(&fs::read(file).unwrap()))
        }),
        "cubex" => hexadecimal(&fs::read(path).unwrap()),
        _ => fs::read_to_string(path).unwrap(),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (place, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String =
            line.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' }).collect();
        writeln!(text, "  {:04x}: {:48} {plain}", place * 16, hex.join(" ")).unwrap();
    }
    text
}

fn arrow(path: &Path) -> String {
    let stream = arrow_ipc::reader::StreamReader::try_new(fs::File::open(path).unwrap(), None).unwrap();
    let schema = stream.schema();
    let mut metadata: Vec<_> = schema.metadata().iter().collect();
    metadata.sort();
    let mut text = format!("{metadata:#?}\n");
    for batch in stream {
        let batch = batch.unwrap();
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            writeln!(text, "{} {:?}\n{column:?}", field.name(), field.data_type()).unwrap();
        }
    }
    text
}

/// The fields of a message of unknown type: numbers, texts, and messages where bytes can be read as
/// one.
fn protobuf(bytes: &[u8]) -> String {
    /// The fields of a fixed size: the values of Perfetto's counters and annotations.
    const DOUBLES: [u64; 2] = [44, 5];
    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
        let (number, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        Some(number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)))
    }
    fn message(mut bytes: &[u8], indent: usize) -> Option<String> {
        let mut text = String::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let (field, pad) = (key >> 3, " ".repeat(indent));
            match key & 7 {
                0 => writeln!(text, "{pad}{field}: {}", varint(&mut bytes)?).unwrap(),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (content, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    let plain = std::str::from_utf8(content).ok().filter(|text| !text.starts_with(char::is_control));
                    match (message(content, indent + 2), plain) {
                        (Some(inner), _) if !inner.is_empty() => {
                            write!(text, "{pad}{field} {{\n{inner}{pad}}}\n").unwrap()
                        }
                        (_, Some(plain)) => writeln!(text, "{pad}{field}: {plain:?}").unwrap(),
                        _ => writeln!(text, "{pad}{field}: {content:?}").unwrap(),
                    }
                }
                1 if DOUBLES.contains(&field) => {
                    let (number, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    writeln!(text, "{pad}{field}: {:?}", f64::from_le_bytes(*number)).unwrap()
                }
                _ => return None,
            }
        }
        Some(text)
    }
    message(bytes, 0).expect("a message")
}

/// The table of the registry in Markdown.
pub fn table() -> String {
    let mut table = String::from(
        "| format | file | opens in | keeps | leaves out | calls that were not timed |\n|---|---|---|---|---|---|\n",
    );
    for format in FORMATS {
        let cells = [format.opens_in, format.keeps, format.omits, format.untimed].join(" | ");
        writeln!(table, "| `{}` | `.{}` | {cells} |", format.name, format.extension).unwrap();
    }
    table
}
