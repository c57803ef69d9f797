//! Memory and time of what reads the messages of a job of many ranks. Too slow for every day:
//! `RTRACE_RANKS=256 RTRACE_ROUNDS=500 cargo test --release -p rtrace-exporters --test job -- --ignored --nocapture`;
//! with `RTRACE_TRACE=DIR` the traces stay there.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::time::Instant;

use rtrace_exporters::{Destination, FORMATS, Selection, TraceSet, TraceWriter, export};
use rtrace_model::{
    Call, Definition, FunctionEvent, Header, LocationId, Rank, Region, RegionId, Sink as _, Summary, Timestamp,
    ValueBatch, ValueColumn, ValueType, Values,
};

/// Most memory, in KiB.
const LIMIT: u64 = 1 << 20;

/// The functions of a round: their names, events, and the roles of their columns.
const FUNCTIONS: [(&str, FunctionEvent, &[&str]); 6] = [
    ("MPI_Irecv", FunctionEvent::Irecv, &["peer", "tag", "bytes", "communicator", "request"]),
    ("MPI_Isend", FunctionEvent::Isend, &["peer", "tag", "bytes", "communicator", "request"]),
    ("MPI_Waitall", FunctionEvent::Wait, &["count", "request", "source", "source_tag", "received"]),
    ("MPI_Allreduce", FunctionEvent::Allreduce, &["bytes", "communicator"]),
    ("MPI_Init", FunctionEvent::CommunicatorRank, &[]),
    ("MPI_Finalize", FunctionEvent::CommunicatorRank, &[]),
];

#[test]
#[ignore = "takes minutes"]
fn messages_of_many_ranks_take_bounded_memory() {
    let of = |name: &str, or: u64| std::env::var(name).map_or(or, |number| number.parse().unwrap());
    let (ranks, rounds) = (of("RTRACE_RANKS", 256) as u32, of("RTRACE_ROUNDS", 100));
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let stays = std::env::var_os("RTRACE_TRACE");
    let job = stays.as_ref().map_or(folder.path().join("job"), Into::into);
    std::fs::create_dir_all(&job).unwrap();
    for rank in 0..ranks {
        record(&job.join(format!("rank-{rank:04}")), rank, ranks, rounds);
    }
    let measure = |what: &str, act: &mut dyn FnMut() -> u64| {
        // Resets the highest memory so far: see proc(5).
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let begun = Instant::now();
        let count = act();
        let (time, memory) = (begun.elapsed(), highest_memory());
        println!("{what:8} {time:8.1?} {:4} MiB, {count}", memory >> 10);
        assert!(memory < LIMIT, "{what}: {memory} KiB");
        count
    };
    let set = TraceSet::open(&job).unwrap();
    let messages = 2 * rounds * u64::from(ranks);
    let matched = measure("matched", &mut || {
        let mut count = 0;
        let gaps = set.messages().unwrap().matched(|_| count += 1).unwrap();
        assert!(gaps.is_empty(), "{gaps:?}");
        count
    });
    assert_eq!(matched, messages);
    let awaited = measure("awaited", &mut || {
        let mut count = 0;
        set.messages().unwrap().awaited(|_| count += 1).unwrap();
        count
    });
    assert_eq!(awaited, messages, "each rank waits for messages and for a sum in each round");
    let format = FORMATS.iter().find(|format| format.name == "otf2").unwrap();
    let destination = Destination::Path { path: folder.path().join("archive"), force: false, owner: None };
    measure("otf2", &mut || export(&set, format, &Selection::default(), &destination).unwrap().calls);
}

fn highest_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A rank of a ring: each round it exchanges messages with both neighbours and adds something up with all ranks.
fn record(path: &Path, rank: u32, size: u32, rounds: u64) {
    let mut writer = TraceWriter::create(path, None).unwrap();
    let of_job = Some(Rank { rank, size: Some(size), job: None });
    writer.begin(&Header { rank: of_job, ..common::header() }).unwrap();
    common::definitions().into_iter().filter(|of| !matches!(of, Definition::Region(_))).for_each(|definition| {
        writer.define(&definition).unwrap();
    });
    for (id, (name, event, roles)) in (0..).zip(FUNCTIONS) {
        let (id, name) = (RegionId(id), name.to_owned());
        let event = Some(event).filter(|_| !roles.is_empty());
        writer.define(&Definition::Region(Region { id, name, event, size: 1, ..common::region(id.0) })).unwrap();
        for (position, role) in (0..).zip(roles) {
            writer.define(&column(id, position, role)).unwrap();
        }
    }
    let [left, right] = [(rank + size - 1) % size, (rank + 1) % size].map(i64::from);
    let mut calls = Vec::new();
    let mut values: Vec<(usize, (LocationId, u64), Vec<String>)> = Vec::new();
    let mut add = |function: usize, start: u64, duration: u64, of: &[String], is_last: bool| {
        let (location, id) = (LocationId(1), start);
        let (start, duration, region) = (Timestamp(start), Some(duration), RegionId(function as u32));
        calls.push(Call { location, id, region, start, duration, ..Call::default() });
        values.push((function, (location, id), of.to_vec()));
        if calls.len() > 50_000 || is_last {
            writer.values(&(0..4).map(|function| batch(function, &values)).collect::<Vec<_>>()).unwrap();
            writer.calls(&std::mem::take(&mut calls).into()).unwrap();
            values.clear();
        }
    };
    add(4, 2_000, 500, &[], false);
    for round in 0..rounds {
        // Each round, another rank is late.
        let late = u64::from(round % u64::from(size) == u64::from(rank));
        let start = 10_000 + round * 100_000 + late * 20_000;
        let text = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>();
        add(0, start, 10, &text(&[left, 1, 64, 0, 500]), false);
        add(0, start + 20, 10, &text(&[right, 2, 64, 0, 501]), false);
        add(1, start + 40, 10, &text(&[right, 1, 64, 0, 502]), false);
        add(1, start + 60, 10, &text(&[left, 2, 64, 0, 503]), false);
        let lists = ["500,501,502,503,".to_owned(), format!("{left},{right},-1,-1,"), "1,2,-1,-1,".to_owned()];
        let lists = [&text(&[4])[..], &lists, &["64,64,0,0,".to_owned()]].concat();
        add(2, start + 80, 20_000 * (1 - late) + 1_000, &lists, false);
        add(3, start + 30_000 - late * 20_000, 1_000 + 20_000 * (1 - late), &text(&[8, 0]), false);
    }
    add(5, 10_000 + rounds * 100_000, 500, &[], true);
    writer.finish(&Summary { calls: 6 * rounds + 2, ..common::summary() }).unwrap();
}

fn column(region: RegionId, position: u32, role: &str) -> Definition {
    let is_list = region.0 == 2 && position > 0;
    let value_type = if is_list { ValueType::Text } else { ValueType::Integer };
    let (name, c_type, source) = (role.to_owned(), "int".to_owned(), String::new());
    let (unit, role, at_exit) = (None, Some(role.to_owned()), false);
    Definition::ValueColumn(ValueColumn { region, position, name, value_type, c_type, unit, role, at_exit, source })
}

fn batch(function: usize, values: &[(usize, (LocationId, u64), Vec<String>)]) -> ValueBatch {
    let of_function: Vec<_> = values.iter().filter(|(of, ..)| *of == function).collect();
    let columns = (0..FUNCTIONS[function].2.len()).map(|place| {
        let texts = of_function.iter().map(|(.., of)| of[place].clone());
        match function == 2 && place > 0 {
            true => Values::Text(texts.map(Some).collect()),
            false => Values::Integer(texts.map(|text| text.parse().ok()).collect()),
        }
    });
    let (region, calls) = (RegionId(function as u32), of_function.iter().map(|(_, call, _)| *call).collect());
    ValueBatch { region, columns: columns.collect(), calls }
}
