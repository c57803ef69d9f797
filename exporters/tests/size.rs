//! How much disk a call takes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Instant;

use common::*;
use rtrace_model::{Call, LocationId, RegionId, Sink, Timestamp};

/// A thread that runs a transform in a loop: a root call, its steps, their parts, times with jitter.
struct Thread {
    location: LocationId,
    clock: u64,
    next_id: u64,
    noise: u64,
    done: Vec<Call>,
}

impl Thread {
    fn jitter(&mut self, below: u64) -> u64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.noise >> 33) % below
    }

    /// Calls a function and in it `widths[0]` others, and so on; gives back its duration.
    fn call(&mut self, parent: u64, depth: u32, region: u32, widths: &[u64]) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let start = self.clock;
        self.clock += 300 + self.jitter(100);
        let mut child = 0;
        if let [width, inner @ ..] = widths {
            for nth in 0..*width {
                child += self.call(id, depth + 1, region * 4 + nth as u32 % 4 + 1, inner);
                self.clock += 200 + self.jitter(50);
            }
        } else {
            self.clock += 1_000 + self.jitter(4_000);
        }
        let duration = self.clock - start;
        self.done.push(Call {
            location: self.location,
            region: RegionId(region),
            id,
            parent,
            depth,
            start: Timestamp(start),
            duration: Some(duration),
            child,
            ..Call::default()
        });
        duration
    }
}

#[test]
fn a_call_takes_at_most_ten_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let (mut writer, path) = begin(parent.path());
    let mut threads: Vec<Thread> = (1..=4)
        .map(|id| Thread {
            location: LocationId(id),
            clock: 8_000_000_000_000 + u64::from(id),
            next_id: 1,
            noise: u64::from(id),
            done: Vec::new(),
        })
        .collect();
    let mut rows = 0;
    let mut writing = std::time::Duration::ZERO;
    while rows < 500_000 {
        for thread in &mut threads {
            for turn in 0..50 {
                let widths = [&[2, 3, 2][..], &[4, 2], &[8]][turn % 3];
                thread.call(0, 0, turn as u32 % 3, widths);
                thread.clock += 900 + thread.jitter(400);
            }
            rows += thread.done.len();
            let started = Instant::now();
            writer.calls(&thread.done.clone().into()).unwrap();
            writing += started.elapsed();
            thread.done.clear();
        }
    }
    let started = Instant::now();
    writer.finish(&summary()).unwrap();
    writing += started.elapsed();
    let files = std::fs::read_dir(path.join("calls")).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    let per_row = bytes as f64 / rows as f64;
    println!("{per_row:.2} bytes and {:.0} ns per call", writing.as_nanos() as f64 / rows as f64);
    assert!(per_row <= 10.0, "{per_row:.2} bytes per call");
}
