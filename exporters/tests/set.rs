//! Several traces opened as one.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use common::*;
use rtrace_exporters::{Error, TraceSet, TraceWriter};
use rtrace_model::{
    Batch, Call, ClockAnchor, Definition, EventKind, Header, Library, LibraryId, LocationId, Loss, LossReason, PathId,
    PathProfile, Rank, Region, RegionId, ReturnSites, Sink, Summary, Timestamp, Untimed, UntimedReason,
};

fn built(id: u32, path: &str, build_id: &str) -> Library {
    Library { path: path.into(), build_id: Some(build_id.into()), ..library(id) }
}

fn function(id: u32, library: u32, file_offset: u64) -> Region {
    Region { library: LibraryId(library), file_offset, name: format!("at {file_offset}"), ..region(id) }
}

/// A trace in `folder/name` of a machine that booted at `boot` on the wall clock.
fn member(folder: &Path, name: &str, boot: u64, definitions: &[Definition], calls: Vec<Call>) {
    let mut writer = TraceWriter::create(&folder.join(name), None).unwrap();
    let rank = Some(Rank { rank: boot as u32 % 7, size: Some(2), job: None });
    let begin = ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: boot + 1_000 };
    writer.begin(&Header { host: name.into(), begin, rank, ..header() }).unwrap();
    for definition in definitions {
        writer.define(definition).unwrap();
    }
    writer.event(&event(1_500, EventKind::BlindWindow { library: "/l".into(), since: Timestamp(1_100) })).unwrap();
    let losses = vec![Loss { reason: LossReason::RingFull, region: Some(RegionId(0)), count: 2 }];
    let end = ClockAnchor { monotonic: Timestamp(9_000), realtime_ns: boot + 9_000 };
    let untimed = vec![Untimed { reason: UntimedReason::SiteDropped, region: Some(RegionId(1)), count: 1 }];
    let return_sites = ReturnSites { placed: 1, hits: 20, unmatched: 300, single_stepped: 4_000, waited: 50_000 };
    let calls_recorded = calls.len() as u64;
    let summary = Summary {
        calls: calls_recorded,
        locations: 1,
        regions: 2,
        losses,
        untimed,
        return_sites,
        end,
        ..Summary::default()
    };
    writer.calls(&calls.into()).unwrap();
    writer.finish(&summary).unwrap();
}

/// Two ranks on two machines: the same library `one` at other ids and paths, and one more each.
fn two_ranks(folder: &Path) {
    let first = [
        Definition::Library(built(0, "/usr/lib/one.so", "aa")),
        Definition::Library(built(1, "/usr/lib/two.so", "bb")),
        Definition::Region(function(0, 0, 16)),
        Definition::Region(function(1, 1, 16)),
        Definition::Process(process("/bin/one")),
        Definition::Location(location(1)),
        Definition::Location(location(3)),
    ];
    let second = [
        Definition::Library(built(0, "/opt/three.so", "cc")),
        Definition::Library(built(1, "/opt/one.so", "aa")),
        Definition::Region(function(0, 0, 16)),
        Definition::Region(function(1, 1, 16)),
        Definition::Process(process("/bin/two")),
        Definition::Location(location(1)),
    ];
    member(folder, "a", 50_000, &first, vec![call(3, 1)]);
    member(folder, "b", 20_000, &second, vec![Call { region: RegionId(1), ..call(1, 1) }, call(1, 2)]);
}

#[test]
fn ranks_become_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    two_ranks(folder.path());
    std::fs::write(folder.path().join("notes.txt"), "no trace").unwrap();
    let set = TraceSet::open(folder.path()).unwrap();

    assert_eq!(set.traces().len(), 2);
    let paths: Vec<&str> = set.libraries().iter().map(|library| library.path.as_str()).collect();
    assert_eq!(paths, ["/usr/lib/one.so", "/usr/lib/two.so", "/opt/three.so"]);
    let regions: Vec<(u32, u32)> = set.regions().iter().map(|region| (region.id.0, region.library.0)).collect();
    assert_eq!(regions, [(0, 0), (1, 1), (2, 2)]);
    let ids: Vec<u32> = set.locations().iter().map(|location| location.id.0).collect();
    assert_eq!(ids, [1, 3, 4]);

    // The second machine booted 30,000 ns earlier, and its clock is the set's.
    let calls: Vec<Call> = set.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    let seen: Vec<(u32, u32, u64)> = calls.iter().map(|c| (c.location.0, c.region.0, c.start.0)).collect();
    assert_eq!(seen, [(3, 0, 31_010), (4, 0, 1_010), (4, 2, 1_020)]);
    let backward: Vec<usize> = set.calls().rev().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(backward, [2, 1]);

    let program = |id: u32| set.process_of(set.location(LocationId(id)).unwrap()).unwrap();
    assert_eq!((program(3).executable.as_str(), program(3).start.0), ("/bin/one", 30_400));
    assert_eq!((program(4).executable.as_str(), program(4).start.0), ("/bin/two", 400));
    let rank = |id: u32| set.header_of(LocationId(id)).unwrap().rank.clone().unwrap().rank;
    assert_eq!((rank(1), rank(3), rank(4)), (50_000 % 7, 50_000 % 7, 20_000 % 7));

    let header = set.header();
    assert_eq!((header.host.as_str(), header.kernel.as_str(), header.cpus), ("a, b", "6.18.44", 4));
    assert_eq!(header.begin, ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: 21_000 });
    let summary = set.summary().unwrap();
    assert_eq!((summary.calls, summary.locations, summary.regions, summary.lost()), (3, 2, 3, 4));
    assert_eq!(summary.end, ClockAnchor { monotonic: Timestamp(39_000), realtime_ns: 59_000 });
    let lost: Vec<Option<RegionId>> = set.losses().unwrap().iter().map(|loss| loss.region).collect();
    assert_eq!(lost, [Some(RegionId(0)), Some(RegionId(2))]);
    let untimed: Vec<Option<RegionId>> = set.untimed().unwrap().iter().map(|untimed| untimed.region).collect();
    assert_eq!(untimed, [Some(RegionId(1)), Some(RegionId(0))]);
    assert_eq!(summary.untimed, set.untimed().unwrap());
    let return_sites = ReturnSites { placed: 2, hits: 40, unmatched: 600, single_stepped: 8_000, waited: 100_000 };
    assert_eq!(summary.return_sites, return_sites);
    let events = set.events().flat_map(Result::unwrap);
    let since: Vec<u64> = events
        .filter_map(|event| match event.kind {
            EventKind::BlindWindow { since, .. } => Some(since.0),
            _ => None,
        })
        .collect();
    assert_eq!(since, [31_100, 1_100]);
}

#[test]
fn traces_of_one_boot_share_their_clock_whatever_the_wall_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, realtime_ns) in [("a", 70_000), ("b", 71_234)] {
        let mut writer = TraceWriter::create(&folder.path().join(name), None).unwrap();
        let begin = ClockAnchor { monotonic: Timestamp(1_000), realtime_ns };
        writer.begin(&Header { begin, boot_id: Some("x".into()), ..header() }).unwrap();
        writer.define(&Definition::Location(location(1))).unwrap();
        writer.calls(&vec![call(1, 1)].into()).unwrap();
        writer.finish(&summary()).unwrap();
    }
    let set = TraceSet::open(folder.path()).unwrap();
    assert!(set.calls().all(|batch| batch.unwrap()[0].start == call(1, 1).start));
}

#[test]
fn one_trace_keeps_its_ids() {
    let folder = tempfile::tempdir().unwrap();
    let twins = [built(3, "/a/one.so", "aa"), built(5, "/b/one.so", "aa")].map(Definition::Library);
    let regions = [Definition::Region(function(7, 3, 16)), Definition::Region(function(9, 5, 16))];
    let calls = vec![Call { region: RegionId(9), ..call(6, 1) }];
    member(folder.path(), "a", 50_000, &[twins.as_slice(), &regions].concat(), calls.clone());
    let set = TraceSet::open(&folder.path().join("a")).unwrap();
    assert_eq!(set.libraries().iter().map(|library| library.id.0).collect::<Vec<_>>(), [3, 5]);
    assert_eq!(
        set.regions().iter().map(|region| (region.id.0, region.library.0)).collect::<Vec<_>>(),
        [(7, 3), (9, 5)]
    );
    assert_eq!(set.calls().next().unwrap().unwrap()[..], calls);
    assert_eq!(set.header().rank.as_ref().unwrap().size, Some(2));
}

#[test]
fn calls_of_a_trace_that_folds_are_in_its_profile_alone() {
    let folder = tempfile::tempdir().unwrap();
    two_ranks(folder.path());
    let mut writer = TraceWriter::create(&folder.path().join("c"), None).unwrap();
    writer.begin(&header()).unwrap();
    writer.define(&Definition::Location(location(1))).unwrap();
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    let path = PathProfile {
        path: PathId(1),
        region: RegionId(0),
        location: LocationId(1),
        calls: 7,
        unseen: 7,
        ..PathProfile::default()
    };
    writer.profile(std::slice::from_ref(&path)).unwrap();
    writer.finish(&Summary { calls: 7, folded: 6, ..summary() }).unwrap();

    let set = TraceSet::open(folder.path()).unwrap();
    assert_eq!(set.profile().iter().map(|path| (path.location.0, path.calls)).collect::<Vec<_>>(), [(5, 7)]);
    let count = |calls: &mut dyn Iterator<Item = Result<Batch, Error>>| calls.map(|batch| batch.unwrap().len()).sum();
    let folded = set.folded(false);
    let (all, unfolded): (usize, usize) = (count(&mut set.calls()), count(&mut folded.calls()));
    assert_eq!((all, unfolded), (4, 3));
    assert_eq!(set.summary().unwrap().folded, 6);
}

#[test]
fn a_set_with_an_unfinished_trace_has_no_summary() {
    let folder = tempfile::tempdir().unwrap();
    two_ranks(folder.path());
    let mut writer = TraceWriter::create(&folder.path().join("c"), None).unwrap();
    writer.begin(&header()).unwrap();
    drop(writer);
    let set = TraceSet::open(folder.path()).unwrap();
    assert_eq!(set.summary(), None);
    assert_eq!(set.calls().count(), 2);
}

#[test]
fn a_folder_without_traces_is_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let error = TraceSet::open(folder.path()).unwrap_err();
    assert!(error.to_string().ends_with("not a trace directory, it holds no trace.json"), "{error}");
    assert!(TraceSet::open(&folder.path().join("missing")).is_err());
}
