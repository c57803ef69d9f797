//! Memory and time of every export of a long trace. Too slow for every day:
//! `RTRACE_CALLS=50000000 cargo test --release -p rtrace-exporters --test scale -- --ignored --nocapture`;
//! with `RTRACE_VALUES=1` each call has an argument, a text and a result.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Instant;

use rtrace_exporters::{Destination, FORMATS, Selection, TraceSet, TraceWriter, export};
use rtrace_model::{
    Call, Definition, LocationId, RegionId, Sink, Summary, Timestamp, ValueBatch, ValueColumn, ValueType, Values,
};

/// Most memory of an export, in KiB.
const LIMIT: u64 = 500 << 10;

const THREADS: u32 = 4;

#[test]
#[ignore = "takes minutes"]
fn every_export_has_bounded_memory() {
    let number = std::env::var("RTRACE_CALLS").map_or(1_000_000, |number| number.parse().unwrap());
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let trace = TraceSet::open(&record(folder.path(), number)).unwrap();
    for format in FORMATS {
        let path = folder.path().join(format.extension);
        // Resets the highest memory so far: see proc(5).
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let begun = Instant::now();
        let destination = Destination::Path { path: path.clone(), force: false, owner: None };
        let exported = export(&trace, format, &Selection::default(), &destination).unwrap();
        let (time, memory) = (begun.elapsed(), highest_memory());
        println!("{:16} {time:8.1?} {:4} MiB, {} calls", format.name, memory >> 10, exported.calls);
        assert!(memory < LIMIT, "{}: {memory} KiB", format.name);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
    }
}

fn highest_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Leaves a trace behind, for measurements of what reads it: `RTRACE_TRACE=DIR RTRACE_CALLS=100000000 …`
#[test]
#[ignore = "takes minutes"]
fn a_long_trace_stays() {
    let number = std::env::var("RTRACE_CALLS").map_or(1_000_000, |number| number.parse().unwrap());
    let Ok(folder) = std::env::var("RTRACE_TRACE") else { return };
    let begun = Instant::now();
    let path = record(Path::new(&folder), number);
    let took = begun.elapsed().as_nanos() as u64 / number;
    println!("{}: {took} ns per call, {} MiB", path.display(), highest_memory() >> 10);
}

/// On each thread, a call that lasts as long as the trace makes all others, four deep, in rounds.
fn record(folder: &Path, number: u64) -> std::path::PathBuf {
    const DEPTH: u64 = 4;
    let (mut writer, path) = common::begin(folder);
    common::definitions().iter().for_each(|definition| writer.define(definition).unwrap());
    (1..8).for_each(|id| writer.define(&Definition::Region(common::region(id))).unwrap());
    (2..=THREADS).for_each(|id| writer.define(&Definition::Location(common::location(id))).unwrap());
    let call = |location, id, parent, depth, start, duration, child| Call {
        location: LocationId(location),
        region: RegionId(depth as u32 + (id % 3) as u32),
        id,
        parent,
        depth: depth as u32,
        start: Timestamp(start),
        duration: Some(duration),
        child,
        ..Call::default()
    };
    let has_values = std::env::var_os("RTRACE_VALUES").is_some();
    if has_values {
        (0..8).flat_map(columns).for_each(|column| writer.define(&column).unwrap());
    }
    let write = |writer: &mut TraceWriter, calls: Vec<Call>| {
        if has_values {
            writer.values(&(0..8).map(|region| values(region, &calls)).collect::<Vec<_>>()).unwrap();
        }
        writer.calls(&calls.into()).unwrap();
    };
    let rounds = number / (DEPTH * u64::from(THREADS));
    let mut calls = Vec::new();
    for round in 0..rounds {
        let start = 2_000 + round * 100_000;
        // From a few hundred nanoseconds to some ten thousand.
        let long = 500 + round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (100 << (round % 9));
        for location in 1..=THREADS {
            // The innermost ends first.
            for depth in (1..=DEPTH).rev() {
                let (id, duration) = (1 + round * DEPTH + depth, long - depth * 100);
                let (parent, child) = match depth {
                    1 => (1, duration - 100),
                    DEPTH => (id - 1, 0),
                    _ => (id - 1, duration - 100),
                };
                calls.push(call(location, id, parent, depth, start + depth * 50, duration, child));
            }
        }
        if calls.len() > 50_000 {
            write(&mut writer, std::mem::take(&mut calls));
        }
    }
    let outer = (1..=THREADS).map(|location| call(location, 1, 0, 0, 1_500, rounds * 100_000 + 1_000, rounds * 800));
    calls.extend(outer);
    write(&mut writer, calls);
    writer.finish(&Summary { calls: number, ..common::summary() }).unwrap();
    path
}

fn columns(region: u32) -> impl Iterator<Item = Definition> {
    let columns = [("n", ValueType::Integer), ("text", ValueType::Text), ("result", ValueType::Integer)];
    (0..).zip(columns).map(move |(position, (name, value_type))| {
        let (region, name, c_type, at_exit) = (RegionId(region), name.to_owned(), String::new(), name == "result");
        let (unit, role, source) = (None, None, String::new());
        Definition::ValueColumn(ValueColumn { region, position, name, value_type, c_type, unit, role, at_exit, source })
    })
}

fn values(region: u32, calls: &[Call]) -> ValueBatch {
    let of_region = || calls.iter().filter(|call| call.region.0 == region);
    let columns = vec![
        Values::Integer(of_region().map(|call| Some(call.id as i64)).collect()),
        Values::Text(of_region().map(|call| Some(format!("/a/file/{}", call.id % 100))).collect()),
        Values::Integer(of_region().map(|call| Some(call.start.0 as i64)).collect()),
    ];
    ValueBatch { region: RegionId(region), calls: of_region().map(|call| (call.location, call.id)).collect(), columns }
}
