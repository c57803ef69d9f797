//! What is left when a recorder is killed, the disk is full, or files are not what they should be.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use rtrace_exporters::{Trace, TraceWriter};
use rtrace_model::{Call, EventKind, Loss, LossReason, Sink};

#[test]
fn a_killed_recorder_leaves_all_but_the_last_second() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    for definition in definitions() {
        writer.define(&definition).unwrap();
    }
    let loss = Loss { reason: LossReason::RingFull, region: None, count: 9 };
    writer.event(&event(1, EventKind::Loss(loss))).unwrap();
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    second();
    writer.tick().unwrap();
    writer.calls(&vec![call(1, 2); 200_000].into()).unwrap();
    assert!(path.join("calls/.000001.parquet.tmp").exists(), "the next second is being written");
    // As a kill does: nothing runs any more, not even drop.
    std::mem::forget(writer);

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.summary(), None);
    assert_eq!(trace.losses().unwrap(), [loss]);
    assert_eq!(trace.regions(), [region(0)]);
    assert_eq!(calls(&trace).unwrap(), [call(1, 1)]);
    assert!(trace.warnings().is_empty());
}

#[test]
fn a_dropped_writer_leaves_no_temporary_file() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.calls(&vec![call(1, 2); 200_000].into()).unwrap();
    drop(writer);
    assert!(!path.join("calls/.000001.parquet.tmp").exists());
    assert_eq!(calls(&Trace::open(&path).unwrap()).unwrap(), []);
}

/// A trace of two segments, the last of them cut short.
fn truncated(parent: &Path, finish: bool) -> std::path::PathBuf {
    let (mut writer, path) = begin(parent);
    let all: Vec<Call> = (1..=70_000).map(|id| call(1, id)).collect();
    writer.calls(&all.clone().into()).unwrap();
    second();
    writer.tick().unwrap();
    writer.calls(&vec![call(1, 70_001)].into()).unwrap();
    second();
    writer.tick().unwrap();
    if finish {
        writer.finish(&summary()).unwrap();
    }
    let last = path.join("calls/000002.parquet");
    let content = fs::read(&last).unwrap();
    fs::write(&last, &content[..content.len() / 2]).unwrap();
    path
}

/// Puts a pipe without a writer, a device, a socket or a folder in the place of a file.
fn replace(path: &Path, by: &str) {
    fs::remove_file(path).unwrap();
    match by {
        "pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "device" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        _ => fs::create_dir(path).unwrap(),
    }
}

#[test]
fn what_is_no_file_keeps_no_reader_waiting() {
    for by in ["pipe", "device", "socket", "folder"] {
        for name in ["trace.json", "regions.parquet", "calls/000001.parquet"] {
            let parent = tempfile::tempdir().unwrap();
            let (mut writer, path) = begin(parent.path());
            writer.finish(&summary()).unwrap();
            replace(&path.join(name), by);
            let (told, opened) = std::sync::mpsc::channel();
            std::thread::spawn(move || told.send(Trace::open(&path).map(drop)));
            let error = opened.recv_timeout(Duration::from_secs(30)).expect("it ends").unwrap_err().to_string();
            assert!(error.contains(&format!("/{name}`: ")), "{by}: {error}");
        }
    }
}

#[test]
fn a_truncated_segment_is_left_out_with_a_warning() {
    let parent = tempfile::tempdir().unwrap();
    let trace = Trace::open(&truncated(parent.path(), false)).unwrap();
    assert_eq!(calls(&trace).unwrap().len(), 70_000);
    let [warning] = trace.warnings() else { panic!("{:?}", trace.warnings()) };
    let warning = warning.to_string();
    assert!(warning.starts_with("left out a segment: failed to read `"), "{warning}");
    assert!(warning.contains("calls/000002.parquet`: "), "{warning}");
}

#[test]
fn a_truncated_segment_of_a_finished_trace_is_an_error() {
    let parent = tempfile::tempdir().unwrap();
    let error = Trace::open(&truncated(parent.path(), true)).unwrap_err().to_string();
    assert!(error.contains("calls/000002.parquet`: "), "{error}");
}

#[test]
fn what_is_no_trace_says_so() {
    let parent = tempfile::tempdir().unwrap();
    let open = |path: &Path| Trace::open(path).unwrap_err().to_string();
    assert!(open(parent.path()).ends_with("not a trace directory, it holds no trace.json"));
    assert!(open(&parent.path().join("none")).ends_with("none`: No such file or directory (os error 2)"));

    fs::write(parent.path().join("trace.json"), "{\"schema\": 3, \"more\": []}").unwrap();
    assert!(open(parent.path()).ends_with("it has schema version 3, this rtrace reads version 2"));
    fs::write(parent.path().join("trace.json"), "{\"schema\": 2}").unwrap();
    assert!(open(parent.path()).contains("trace.json`: missing field `status`"));
    assert!(open(&parent.path().join("trace.json")).ends_with("Not a directory (os error 20)"));
}

#[test]
fn missing_and_foreign_files_are_named() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    writer.define(&definitions()[3]).unwrap();
    writer.finish(&summary()).unwrap();

    let regions = path.join("regions.parquet");
    fs::copy(path.join("locations.parquet"), &regions).unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("regions.parquet`: column `region` is missing"), "{error}");
    fs::remove_file(&regions).unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("regions.parquet`: No such file or directory (os error 2)"), "{error}");
    fs::write(&regions, "PAR1 and then nothing").unwrap();
    let error = Trace::open(&path).unwrap_err().to_string();
    assert!(error.contains("failed to read `") && error.contains("regions.parquet`: "), "{error}");
}

#[test]
fn a_recording_that_never_began_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("trace");
    drop(TraceWriter::create(&path, None).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_vanished_directory_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    fs::remove_dir_all(&path).unwrap();
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    let error = writer.finish(&summary()).unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(cause.ends_with("calls/000001.parquet`: No such file or directory (os error 2)"), "{cause}");
    assert!(error.to_string().starts_with("failed to record into `"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_segments_are_errors_at_most(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let parent = tempfile::tempdir().unwrap();
        let (mut writer, path) = begin(parent.path());
        writer.calls(&vec![call(1, 1), call(1, 2), call(2, 1)].into()).unwrap();
        writer.finish(&summary()).unwrap();
        let segment = path.join("calls/000001.parquet");
        let mut content = fs::read(&segment).unwrap();
        for (place, byte) in damage {
            let place = place.index(content.len());
            content[place] = byte;
        }
        fs::write(&segment, content).unwrap();
        let _ = Trace::open(&path).and_then(|trace| calls(&trace));
    }
}

struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "none"]).arg(folder.path()).output();
        mount.is_ok_and(|mount| mount.status.success()).then(|| SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_named_and_keeps_what_was_written() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    };
    let path = disk.0.path().join("trace");
    let mut writer = TraceWriter::create(&path, None).unwrap();
    writer.begin(&header()).unwrap();
    writer.calls(&vec![call(1, 1)].into()).unwrap();
    second();
    writer.tick().unwrap();

    let mut noise = 1_u64;
    let mut filling = (2..2_000_000).map(|id| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Call { duration: Some(noise >> 24), ..call(1, id) }
    });
    let error = loop {
        let batch: Vec<Call> = filling.by_ref().take(10_000).collect();
        if let Err(error) = writer.calls(&batch.clone().into()).and_then(|()| writer.tick()) {
            break error;
        }
    };
    let cause = error.source().unwrap().to_string();
    assert!(cause.starts_with("failed to write `"), "{cause}");
    assert!(cause.ends_with("calls/000001.parquet`: No space left on device (os error 28)"), "{cause}");
    drop(writer);
    assert!(!path.join("calls/.000001.parquet.tmp").exists());
    assert_eq!(calls(&Trace::open(&path).unwrap()).unwrap(), [call(1, 1)]);
}
