//! Other people's readers judge the exports: every call, or the sums of every call path, must be
//! those of the trace's Parquet files.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

use rtrace_exporters::{Destination, FORMATS, Selection, TraceSet, TraceWriter, export};
use rtrace_model::{
    Base, Batch, Call, Definition, Ending, Header, Location, LocationId, Metric, MetricId, Process, Rank, Reading,
    Region, RegionId, Sample, Scope, Sink, Span, SymbolName, Timestamp, ValueBatch, ValueColumn, ValueType, Values,
};

/// Calls on the first thread: an OTF2 file of them has several chunks.
const MANY: u64 = 45_000;

#[test]
fn other_readers_find_every_call() {
    let tests = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests"));
    let python = tests.join("../target/venv/bin/python");
    if !python.exists() {
        println!("skipped: `target/venv` is missing; `cargo xtask test` makes it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = record(folder.path());
    let trace = TraceSet::open(&path).unwrap();
    let exports = folder.path().join("exports");
    std::fs::create_dir(&exports).unwrap();
    for format in FORMATS {
        let destination = Destination::Path { path: exports.join(format.name), force: false, owner: None };
        let exported = export(&trace, format, &Selection::default(), &destination).unwrap();
        assert_eq!((exported.lost_callers, exported.moved), (0, 0), "{}", format.name);
    }
    let output =
        Command::new(python).arg(tests.join("python/read_exports.py")).args([&path, &exports]).output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Two ranks of a job in one archive, one of which has a child of its own.
#[test]
fn ranks_are_location_groups_of_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job");
    std::fs::create_dir(&job).unwrap();
    for rank in 0..2 {
        let mut writer = TraceWriter::create(&job.join(format!("rank-{rank}")), None).unwrap();
        let rank_of = Rank { rank, size: Some(2), job: None };
        writer.begin(&Header { rank: Some(rank_of), ..common::header() }).unwrap();
        writer.define(&Definition::Library(common::library(0))).unwrap();
        let symbol = |symbol: &str| SymbolName { symbol: symbol.into(), version: None };
        for (id, name) in [(0, "MPI_Send"), (1, "solve")] {
            let region = Region { name: name.into(), symbols: vec![symbol(name)], ..common::region(id) };
            writer.define(&Definition::Region(region)).unwrap();
        }
        for pid in [&[40][..], &[50, 51]][rank as usize].iter().copied() {
            writer.define(&Definition::Process(Process { pid, ..common::process("/usr/bin/prog") })).unwrap();
            let location = Location { pid, tid: pid, ..common::location(pid) };
            writer.define(&Definition::Location(location)).unwrap();
            let calls: Vec<Call> =
                [0, 1].map(|id| Call { region: RegionId(id), ..common::call(pid, u64::from(id) + 1) }).into();
            writer.calls(&calls.into()).unwrap();
        }
        writer.define(&Definition::Metric(common::metric(0, "process/resident", Scope::Process))).unwrap();
        writer
            .samples(&[Sample { metric: MetricId(0), instance: 40 + 10 * rank, time: Timestamp(2_000), value: 1.0 }])
            .unwrap();
        writer.finish(&Default::default()).unwrap();
    }
    let path = folder.path().join("job.otf2");
    let destination = Destination::Path { path: path.clone(), force: false, owner: None };
    let otf2 = FORMATS.iter().find(|format| format.name == "otf2").unwrap();
    export(&TraceSet::open(&job).unwrap(), otf2, &Selection::default(), &destination).unwrap();
    let Ok(output) = Command::new("otf2-print").arg("-G").arg(path.join("traces.otf2")).output() else {
        println!("skipped: `otf2-print` is missing; `apt install otf2-tools`");
        return;
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines =
        |kind: &str| -> Vec<&str> { text.lines().filter(|line| line.starts_with(&format!("{kind} "))).collect() };
    let groups = lines("LOCATION_GROUP");
    for name in ["\"MPI Rank 0\"", "\"MPI Rank 1: prog (50)\"", "\"MPI Rank 1: prog (51)\""] {
        assert_eq!(groups.iter().filter(|line| line.contains(name)).count(), 1, "{name} in {groups:?}");
    }
    let regions = lines("REGION");
    for (name, paradigm) in [("\"MPI_Send\"", "Paradigm: MPI"), ("\"solve\"", "Paradigm: USER")] {
        assert!(regions.iter().any(|line| line.contains(name) && line.contains(paradigm)), "{regions:?}");
    }
}

/// Each call with counters that grow as fast as its time, and 7 times as fast.
fn counted(calls: &[Call]) -> Batch {
    let reading =
        |call: &Call, factor| Reading { inclusive: factor * call.duration.unwrap_or(0), child: factor * call.child };
    let readings = calls.iter().flat_map(|call| [reading(call, 1), reading(call, 7)]);
    Batch::measured(calls.to_vec(), 2, readings.collect())
}

/// Arguments and results of all types.
fn columns() -> Vec<Definition> {
    let column = |region, position, name: &str, value_type, at_exit| {
        let (region, name, c_type) = (RegionId(region), name.to_owned(), "x".to_owned());
        let (unit, role, source) = (None, None, String::new());
        ValueColumn { region, position, name, value_type, c_type, unit, role, at_exit, source }
    };
    let columns = [
        column(1, 0, "n", ValueType::Integer, false),
        column(1, 1, "text", ValueType::Text, false),
        column(1, 2, "result", ValueType::Integer, true),
        column(2, 0, "x", ValueType::Float, false),
        column(2, 1, "y", ValueType::Integer, true),
    ];
    columns.into_iter().map(Definition::ValueColumn).collect()
}

/// Numbers of all sizes and signs, some of them not known; each 13th call has no values.
fn values(calls: &[Call]) -> Vec<ValueBatch> {
    let of = |region| calls.iter().filter(move |call| call.region.0 == region && !call.id.is_multiple_of(13));
    let ids = |region| of(region).map(|call| (call.location, call.id)).collect();
    let number = |call: &Call| (call.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64) >> (call.id % 64);
    let at_exit = |call: &Call| call.is_timed().then(|| number(call) >> 1);
    let text = |call: &Call| (!call.id.is_multiple_of(4)).then(|| format!("te\"xt\n{}", call.id % 5));
    vec![
        ValueBatch {
            region: RegionId(1),
            calls: ids(1),
            columns: vec![
                Values::Integer(of(1).map(|call| Some(number(call))).collect()),
                Values::Text(of(1).map(text).collect()),
                Values::Integer(of(1).map(at_exit).collect()),
            ],
        },
        ValueBatch {
            region: RegionId(2),
            calls: ids(2),
            columns: vec![
                Values::Float(of(2).map(|call| (!call.id.is_multiple_of(3)).then_some(call.id as f64 / 8.0)).collect()),
                Values::Integer(of(2).map(at_exit).collect()),
            ],
        },
    ]
}

/// More series than are written at once, of threads, processes, sockets and the machine.
fn samples() -> Vec<Sample> {
    let sample = |metric, instance: u32, step: u32| Sample {
        metric: MetricId(metric),
        time: Timestamp(2_000 + u64::from(step * 100 + instance)),
        instance,
        value: f64::from(step) * 0.1 - f64::from(instance),
    };
    let series = [(2, 41), (2, 42), (3, 40), (5, 0)].into_iter().chain((0..70).map(|socket| (4, socket)));
    series.flat_map(|(metric, instance)| (0..50).map(move |step| sample(metric, instance, step))).collect()
}

/// Three threads: one makes many calls in loops and recursions, one few, one a call without end.
fn record(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("trace");
    let mut writer = TraceWriter::create(&path, None).unwrap();
    // Formats that take off what tracing took have the recorded times, then.
    writer.begin(&Header { calibration: Vec::new(), ..common::header() }).unwrap();
    for definition in common::definitions() {
        writer.define(&definition).unwrap();
    }
    for id in 0..7 {
        let symbols = vec![SymbolName { symbol: format!("_Z8function{id}v"), version: None }];
        let region = Region { symbols, name: format!("function{id}"), ..common::region(id) };
        writer.define(&Definition::Region(region)).unwrap();
    }
    for (id, name, scope, span) in [
        (0, "task-clock", Scope::Call, Span::SinceStart),
        (1, "seven", Scope::Call, Span::SinceStart),
        (2, "thread/wait", Scope::Thread, Span::SinceLast),
        (3, "process/resident", Scope::Process, Span::Point),
        (4, "socket/energy", Scope::Socket, Span::SinceStart),
        (5, "node/limit", Scope::Node, Span::UntilNext),
    ] {
        let (id, name, unit) = (MetricId(id), name.into(), "s".into());
        writer
            .define(&Definition::Metric(Metric { id, name, unit, base: Base::Decimal, exponent: -9, scope, span }))
            .unwrap();
    }
    for id in 1..4 {
        writer.define(&Definition::Location(common::location(id))).unwrap();
    }
    let mut calls = Vec::new();
    for (location, number) in [(1, MANY), (2, 1_000), (3, 1)] {
        calls.extend(nested(location, number));
    }
    calls.sort_by_key(|call| (call.known_until(), std::cmp::Reverse(call.id)));
    columns().iter().for_each(|column| writer.define(column).unwrap());
    for calls in calls.chunks(10_000) {
        writer.calls(&counted(calls)).unwrap();
        writer.values(&values(calls)).unwrap();
    }
    writer.samples(&samples()).unwrap();
    writer.finish(&rtrace_model::Summary { calls: calls.len() as u64, ..common::summary() }).unwrap();
    path
}

/// Calls nested as a sequence of pseudo-random numbers has it, with all endings; calls that were not
/// timed call others, too.
fn nested(location: u32, number: u64) -> Vec<Call> {
    let (mut calls, mut open): (Vec<Call>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut clock, mut random) = (2_000 + u64::from(location), 88_172_645_463_325_252_u64);
    let end = |calls: &mut Vec<Call>, open: &mut Vec<usize>, clock: u64| {
        let Some(place) = open.pop() else { return };
        if calls[place].ending == Ending::Unseen {
            return;
        }
        let duration = clock - calls[place].start.0;
        calls[place].duration = Some(duration);
        for &caller in open.iter().rev() {
            calls[caller].child += duration;
            if calls[caller].ending != Ending::Unseen {
                break;
            }
        }
    };
    for id in 1..=number {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for _ in 0..(random % 7).saturating_sub(3) {
            clock += random >> 56;
            end(&mut calls, &mut open, clock);
        }
        clock += random >> 48 & 0xff;
        let unseen = random.is_multiple_of(11);
        calls.push(Call {
            location: LocationId(location),
            region: RegionId((random >> 20) as u32 % 7),
            id,
            parent: open.last().map_or(0, |&caller| calls[caller].id),
            depth: open.len() as u32,
            start: Timestamp(clock),
            duration: None,
            child: 0,
            ending: match random >> 32 & 0xf {
                _ if unseen => Ending::Unseen,
                0 => Ending::Unwound,
                _ => Ending::Returned,
            },
            ..Call::default()
        });
        open.push(calls.len() - 1);
        if open.len() > 5 {
            end(&mut calls, &mut open, clock);
        }
    }
    for &place in &open {
        if calls[place].ending != Ending::Unseen {
            calls[place].ending = Ending::Open;
        }
    }
    while !open.is_empty() {
        end(&mut calls, &mut open, clock + 1_000);
    }
    calls
}
