//! A small recording with something of everything.

use std::path::Path;

use rtrace_exporters::TraceWriter;
use rtrace_model::{
    Call, ClockAnchor, Definition, Ending, Event, EventKind, ExitPolicy, Header, Library, LibraryId, Location,
    LocationId, Loss, LossReason, Process, Region, RegionId, Sink, SinkError, Summary, SymbolName, Timestamp, Untimed,
    UntimedReason,
};

/// Fills the directory `path`; a recording that was not finished may miss segments.
pub fn write(path: &Path, finished: bool) -> Result<(), SinkError> {
    let mut writer = TraceWriter::create(path, None).expect("the directory is new");
    writer.begin(&header())?;
    definitions().iter().try_for_each(|definition| writer.define(definition))?;
    events().iter().try_for_each(|event| writer.event(event))?;
    writer.calls(&(1..=300).map(call).collect::<Vec<_>>().into())?;
    if finished {
        let losses = vec![Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 2 }];
        writer.finish(&Summary { calls: 300, losses, ..Summary::default() })?;
    } else {
        std::thread::sleep(std::time::Duration::from_millis(910));
        writer.tick()?;
    }
    Ok(())
}

fn header() -> Header {
    Header {
        host: "box".to_owned(),
        command_line: vec!["rtrace".to_owned(), "run".to_owned()],
        cpus: 2,
        begin: ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: 1_700_000_000_000_000_000 },
        ..Header::default()
    }
}

fn definitions() -> Vec<Definition> {
    let mut definitions = vec![
        Definition::Library(Library {
            id: LibraryId(0),
            path: "/usr/lib/libone.so".to_owned(),
            apart: None,
            build_id: Some("c0ffee".to_owned()),
            device: u64::MAX,
            inode: 1,
        }),
        Definition::Process(Process {
            pid: 40,
            parent: Some(1),
            start: Timestamp(400),
            end: Some(Timestamp(9_000)),
            executable: "/bin/one".to_owned(),
            command_line: vec!["one".to_owned(), String::new()],
            exit_code: Some(-3),
            rank: None,
        }),
    ];
    definitions.extend((0..3).map(region).map(Definition::Region));
    definitions.extend((1..3).map(location).map(Definition::Location));
    definitions
}

fn region(id: u32) -> Region {
    let version = (id == 1).then(|| "ONE_1.2".to_owned());
    Region {
        id: RegionId(id),
        library: LibraryId(0),
        name: format!("function{id}(int)"),
        symbols: vec![SymbolName { symbol: format!("_Z9function{id}i"), version }],
        file_offset: 0x1000 + u64::from(id),
        size: 16,
        exit: ExitPolicy::ALL[id as usize % 2],
        single_stepped: id == 1,
        written: false,
        stub: false,
        source_file: None,
        source_line: None,
        event: None,
    }
}

fn location(id: u32) -> Location {
    let end = (id == 1).then_some(Timestamp(8_000));
    Location {
        id: LocationId(id),
        pid: 40,
        tid: 40 + id,
        start: Timestamp(500),
        end,
        name: "worker".to_owned(),
        calls_entered: end.map(|_| 150),
    }
}

fn events() -> Vec<Event> {
    let kinds = [
        EventKind::Armed,
        EventKind::Fork { child: 41 },
        EventKind::Exec { executable: "/bin/two".to_owned() },
        EventKind::Loss(Loss { reason: LossReason::TooDeep, region: None, count: 3 }),
        EventKind::Untimed(Untimed { reason: UntimedReason::SiteDropped, region: Some(RegionId(1)), count: 2 }),
        EventKind::BlindWindow { library: "/usr/lib/libone.so".to_owned(), since: Timestamp(5) },
    ];
    (1_000..).zip(kinds).map(|(time, kind)| Event { time: Timestamp(time), pid: Some(40), tid: None, kind }).collect()
}

fn call(number: u64) -> Call {
    let ending = Ending::ALL[(number % 4) as usize];
    Call {
        location: LocationId(1 + (number % 2) as u32),
        region: RegionId((number % 3) as u32),
        id: number,
        parent: number / 2,
        depth: number.ilog2(),
        start: Timestamp(1_000 + number * 10),
        duration: (ending != Ending::Unseen).then_some(10_000 / number),
        ending,
        ..Call::default()
    }
}
