//! Made-up traces for the tests of reports.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use rtrace_exporters::{TraceSet, TraceWriter};
use rtrace_model::{
    ClockAnchor, Definition, ExitPolicy, Header, Library, LibraryId, Location, LocationId, PathId, PathProfile,
    Process, Region, RegionId, Sink, Timestamp,
};

pub(super) use rtrace_profile::testing::{in_order, nested, script};

use super::table::Table;
use super::{Look, Report, people};

/// A writer of a trace that defines the functions `a` to `f` of two libraries, and two threads of
/// a process.
pub(super) fn writer(path: &Path) -> TraceWriter {
    let mut writer = TraceWriter::create(path, None).unwrap();
    let begin = ClockAnchor { monotonic: Timestamp(0), realtime_ns: 0 };
    let header = Header { host: "box".into(), kernel: "6.18".into(), begin, ..Header::default() };
    writer.begin(&header).unwrap();
    for (id, name) in ["one", "two"].into_iter().enumerate() {
        let path = format!("/usr/lib/lib{name}.so");
        let library = Library { id: LibraryId(id as u32), path, apart: None, build_id: None, device: 1, inode: 1 };
        writer.define(&Definition::Library(library)).unwrap();
    }
    for (id, name) in "abcdef".chars().enumerate() {
        let region = Region {
            library: LibraryId(id as u32 / 3),
            file_offset: 64,
            exit: ExitPolicy::ReturnSite,
            single_stepped: id == 2,
            ..region(id as u32, name.into())
        };
        writer.define(&Definition::Region(region)).unwrap();
    }
    let process = Process {
        pid: 70,
        parent: None,
        start: Timestamp(0),
        end: None,
        executable: "/usr/bin/prog".into(),
        command_line: Vec::new(),
        exit_code: None,
        rank: None,
    };
    writer.define(&Definition::Process(process)).unwrap();
    for (id, name, calls_entered) in [(1, "main\u{1b}", None), (2, "worker", Some(3))] {
        let location = Location {
            id: LocationId(id),
            pid: 70,
            tid: 70 + id,
            start: Timestamp(0),
            end: None,
            name: name.into(),
            calls_entered,
        };
        writer.define(&Definition::Location(location)).unwrap();
    }
    writer
}

/// A trace without calls that defines what [`writer`] does.
pub(super) fn definitions() -> TraceSet {
    let folder = tempfile::tempdir().unwrap();
    writer(folder.path()).finish(&Default::default()).unwrap();
    TraceSet::open(folder.path()).unwrap()
}

/// A function of the first library, at an offset of its own.
pub(super) fn region(id: u32, name: String) -> Region {
    Region { id: RegionId(id), name, file_offset: id.into(), size: 1, ..Region::default() }
}

/// A call path of a function on a thread, without calls.
pub(super) fn path(region: RegionId, location: LocationId) -> PathProfile {
    PathProfile { path: PathId(1), region, location, ..PathProfile::default() }
}

/// A table as people see it, without title and notes.
pub(super) fn text(table: Table) -> String {
    let mut out = Vec::new();
    people::table(&Report { table, ..Report::default() }, &Look::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap().strip_prefix('\n').unwrap().to_owned()
}
