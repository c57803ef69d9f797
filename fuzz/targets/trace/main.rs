//! Takes the input as a list of changes to the files of a sound trace, and reads what comes of it.
//!
//! The reader may refuse a damaged trace; it may not panic, nor take memory or time that the size
//! of the files does not account for.

#![no_main]

mod edit;
mod sound;

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::abort;
use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use rtrace_exporters::{Error, Trace};
use tempfile::TempDir;

use self::edit::Edit;

/// More damage hides what each part of it does.
const MOST_EDITS: usize = 24;

/// A finished and an unfinished recording.
static TRACES: OnceLock<[Recording; 2]> = OnceLock::new();

/// What the last panic said. The reader takes panics of the Parquet library as errors, so not every
/// panic is a finding.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

struct Recording {
    directory: TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
}

fuzz_target!(
    init: {
        std::panic::set_hook(Box::new(|panic| {
            if let Ok(mut last) = LAST_PANIC.lock() {
                *last = panic.to_string();
            }
        }));
        TRACES.get_or_init(|| [true, false].map(Recording::make));
    },
    |bytes: &[u8]| {
        let Some((which, edits)) = bytes.split_first() else { return };
        let recording = &TRACES.get().expect("made at the start")[usize::from(which % 2)];
        let (edits, _) = edits.as_chunks();
        let edits: Vec<Edit> = edits.iter().take(MOST_EDITS).copied().map(Edit::of).collect();
        recording.read_changed(&edits);
    }
);

impl Recording {
    fn make(finished: bool) -> Recording {
        let directory = TempDir::new().expect("there is room for a small directory");
        sound::write(directory.path(), finished).expect("there is room for a small trace");
        let mut files = Vec::new();
        collect(directory.path(), &mut files);
        files.sort();
        Recording { directory, files }
    }

    fn read_changed(&self, edits: &[Edit]) {
        for (index, (path, sound)) in self.files.iter().enumerate() {
            let own = || edits.iter().filter(|edit| usize::from(edit.file) % self.files.len() == index);
            if own().next().is_some() {
                let mut bytes = sound.clone();
                own().for_each(|edit| edit.apply(&mut bytes));
                put(path, &bytes);
            }
        }
        if catch_unwind(|| read(self.directory.path())).is_err() {
            eprintln!("{}", LAST_PANIC.lock().expect("no panic while it is held"));
            abort();
        }
        for (index, (path, sound)) in self.files.iter().enumerate() {
            if edits.iter().any(|edit| usize::from(edit.file) % self.files.len() == index) {
                put(path, sound);
            }
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("it is ours") {
        let path = entry.expect("it is ours").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            let bytes = fs::read(&path).expect("it is ours");
            files.push((path, bytes));
        }
    }
}

/// A new file each time: some file systems wait for the disk where one is overwritten.
fn put(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).expect("it is ours");
    fs::write(path, bytes).expect("there is room for a small file");
}

/// Asks for all that a trace holds.
fn read(directory: &Path) {
    let mut said = String::new();
    let mut refuse = |error: Error| write!(said, "{error}").expect("a string takes everything");
    let trace = match Trace::open(directory) {
        Ok(trace) => trace,
        Err(error) => return refuse(error),
    };
    for batch in trace.calls() {
        match batch {
            Ok(calls) => calls.iter().for_each(|call| {
                black_box((trace.region(call.region), trace.location(call.location), call.end(), call.exclusive()));
            }),
            Err(error) => refuse(error),
        }
    }
    trace.events().rev().for_each(|batch| drop(batch.map_err(&mut refuse)));
    trace.losses().map(drop).unwrap_or_else(&mut refuse);
    for location in trace.locations() {
        black_box(trace.process_of(location));
    }
    for region in trace.regions() {
        black_box(trace.library(region.library));
    }
    for warning in trace.warnings() {
        write!(said, "{warning}").expect("a string takes everything");
    }
    black_box((said, trace.header().begin, trace.summary().map(ToString::to_string)));
}
