//! Made-up recordings.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use rtrace_exporters::{Error, Trace, TraceWriter};
use rtrace_model::{
    Base, Call, CallCost, ClockAnchor, Definition, Ending, Event, EventKind, ExitPolicy, Header, Library, LibraryId,
    Location, LocationId, Metric, MetricId, Process, Region, RegionId, Scope, Sink, Span, Summary, SymbolName,
    Timestamp,
};

pub fn header() -> Header {
    Header {
        window: None,
        rtrace_version: "0.1.0".into(),
        host: "box".into(),
        kernel: "6.18.44".into(),
        cpus: 2,
        command_line: vec!["rtrace".into(), "run".into()],
        mechanism: "uprobe.session".into(),
        begin: ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: 1_700_000_000_000_000_000 },
        calibration: vec![cost()],
        ..Header::default()
    }
}

fn cost() -> CallCost {
    CallCost {
        single_stepped: true,
        written: false,
        exit: ExitPolicy::ReturnSite,
        inner: 400,
        whole: 1_000,
        spread: 50,
    }
}

pub fn library(id: u32) -> Library {
    Library {
        id: LibraryId(id),
        path: format!("/usr/lib/libone.so.{id}"),
        apart: None,
        build_id: id.is_multiple_of(2).then(|| "c0ffee".into()),
        device: u64::MAX,
        inode: 1 << 63,
    }
}

pub fn region(id: u32) -> Region {
    Region {
        id: RegionId(id),
        name: format!("one::function{id}(int)"),
        symbols: vec![
            SymbolName { symbol: format!("_Z8function{id}i"), version: None },
            SymbolName { symbol: "alias@odd".into(), version: Some("ONE_1.2".into()) },
        ],
        file_offset: 0x1000 + u64::from(id),
        size: 16,
        single_stepped: true,
        stub: id % 2 == 1,
        source_file: (id % 3 == 1).then(|| format!("src/f{id}.c")),
        source_line: (id % 3 == 1).then_some(id + 1),
        ..Region::default()
    }
}

pub fn location(id: u32) -> Location {
    Location {
        id: LocationId(id),
        pid: 40,
        tid: 40 + id,
        start: Timestamp(500),
        end: None,
        name: "work\u{1b}er".into(),
        calls_entered: None,
    }
}

pub fn process(executable: &str) -> Process {
    Process {
        pid: 40,
        parent: Some(1),
        start: Timestamp(400),
        end: Some(Timestamp(9_000)),
        executable: executable.into(),
        command_line: vec![executable.into(), "".into(), "-v".into()],
        exit_code: Some(-3),
        rank: None,
    }
}

pub fn call(location: u32, id: u64) -> Call {
    Call { location: LocationId(location), id, start: Timestamp(1_000 + id * 10), duration: Some(5), ..Call::default() }
}

/// A call that was not timed.
pub fn untimed(location: u32, id: u64) -> Call {
    Call { duration: None, ending: Ending::Unseen, ..call(location, id) }
}

pub fn metric(id: u32, name: &str, scope: Scope) -> Metric {
    Metric {
        id: MetricId(id),
        name: name.to_owned(),
        unit: "B".to_owned(),
        base: Base::Binary,
        exponent: -3,
        scope,
        span: Span::Point,
    }
}

pub fn event(time: u64, kind: EventKind) -> Event {
    Event { time: Timestamp(time), pid: Some(40), tid: None, kind }
}

pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::Library(library(0)),
        Definition::Region(region(0)),
        Definition::Process(process("/bin/one")),
        Definition::Location(location(1)),
    ]
}

/// A writer that has begun, and the directory it fills.
pub fn begin(parent: &Path) -> (TraceWriter, PathBuf) {
    let path = parent.join("trace");
    let mut writer = TraceWriter::create(&path, None).unwrap();
    writer.begin(&header()).unwrap();
    (writer, path)
}

/// Waits until the next tick publishes.
pub fn second() {
    std::thread::sleep(std::time::Duration::from_millis(910));
}

pub fn calls(trace: &Trace) -> Result<Vec<Call>, Error> {
    let batches = trace.calls().collect::<Result<Vec<_>, _>>()?;
    Ok(batches.iter().flat_map(|batch| batch.iter().copied()).collect())
}

pub fn summary() -> Summary {
    Summary { calls: 3, end: ClockAnchor { monotonic: Timestamp(9_000), realtime_ns: 1 }, ..Summary::default() }
}
