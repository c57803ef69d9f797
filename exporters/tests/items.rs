//! Items that were stored give the same trace when they are told again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use rtrace_model::{
    Batch, Count, Definition, EventKind, HISTOGRAM_BUCKETS, Item, LocationId, MetricId, PathId, PathProfile, Reading,
    RegionId, Sample, Scope, Sink, Timestamp,
};

fn items() -> Vec<Item> {
    let path = PathProfile {
        path: PathId(0),
        region: RegionId(0),
        location: LocationId(1),
        calls: 3,
        timed: 2,
        unseen: 1,
        inclusive: 10,
        exclusive: 10,
        min: Some(5),
        max: Some(5),
        histogram: std::array::from_fn(|bucket| if bucket == 3 { 2 } else { 0 }),
        counts: vec![Count { inclusive: 7, exclusive: 7 }],
        ..PathProfile::default()
    };
    let sample = Sample { metric: MetricId(1), time: Timestamp(2_000), instance: 40, value: -0.5 };
    let reading = |inclusive| Reading { inclusive, child: 0 };
    vec![
        Item::Begin(header()),
        Item::Define(definitions()),
        Item::Define(vec![
            Definition::Metric(metric(0, "msr/tsc/", Scope::Call)),
            Definition::Metric(metric(1, "process/resident", Scope::Process)),
        ]),
        Item::Calls(Batch::measured(vec![call(1, 1), untimed(1, 2)], 1, vec![reading(7), reading(0)])),
        Item::Running(Timestamp(1_500), vec![call(1, 3)]),
        Item::Tick,
        Item::Event(event(2_001, EventKind::Exec { executable: "/bin/\u{1b}two".into() })),
        Item::Samples(vec![sample]),
        Item::Profile(vec![path]),
        Item::Finish(summary()),
    ]
}

/// The files of the trace that these items make.
fn tell(items: &[Item]) -> BTreeMap<PathBuf, Vec<u8>> {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("trace");
    let mut writer = rtrace_exporters::TraceWriter::create(&path, None).unwrap();
    items.iter().for_each(|item| writer.take(item).unwrap());
    let mut files = BTreeMap::new();
    read(&path, &path, &mut files);
    files
}

fn read(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read(root, &path, files),
            false => _ = files.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()),
        }
    }
}

#[test]
fn stored_items_are_told_again() {
    let told = items();
    let lines: Vec<String> = told.iter().map(|item| serde_json::to_string(item).unwrap()).collect();
    let again: Vec<Item> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(again, told);
    let files = tell(&told);
    assert!(files.len() > 5, "{:?}", files.keys());
    assert_eq!(tell(&again), files);
}

#[test]
fn items_of_strangers_are_looked_at() {
    let stored = serde_json::to_string(&Item::Calls(vec![call(1, 1)].into())).unwrap();
    assert!(serde_json::from_str::<Item>(&stored).is_ok());
    let without_readings = stored.replace("\"metrics\":0", "\"metrics\":2");
    let error = serde_json::from_str::<Item>(&without_readings).unwrap_err();
    assert!(error.to_string().starts_with("each call must have a reading of each metric"), "{error}");
    let Item::Profile(paths) = &items()[8] else { panic!("a profile") };
    let short = serde_json::to_string(&paths[0]).unwrap().replacen("[0,", "[", 1);
    let error = serde_json::from_str::<PathProfile>(&short).unwrap_err();
    assert!(error.to_string().contains(&format!("invalid length {}", HISTOGRAM_BUCKETS - 1)), "{error}");
}
