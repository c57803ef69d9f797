//! What is lost is counted: recorded and lost calls are the true ones, for each function.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rtrace_exporters::Trace;
use rtrace_model::{EventKind, RegionId};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::truth;

/// Lets a process run for a tenth of the time, until told to stop.
fn throttle(pid: Pid, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (signal, milliseconds) in [(Signal::STOP, 90), (Signal::CONT, 10)] {
            let _ = kill_process(pid, signal);
            thread::sleep(Duration::from_millis(milliseconds));
        }
    }
}

#[test]
fn a_reader_that_hardly_runs() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("bursts"));
    let attached =
        Attached::start(waiting.pid(), &[target.selection(), vec!["--buffer".into(), "64K".into()]].concat());
    let stop = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| throttle(attached.pid(), &stop));
        waiting.go();
        let output = waiting.finish();
        stop.store(true, Ordering::Relaxed);
        output
    });
    let folder = attached.leave();
    let trace = Trace::open(&folder.path().join("trace")).unwrap();

    let mut told = BTreeMap::<String, u64>::new();
    for (name, count) in truth::trees(&output.stdout).values().flat_map(|calls| calls.counts()) {
        *told.entry(name).or_default() += count;
    }
    let name = |region: RegionId| trace.region(region).unwrap().name.clone();
    let mut accounted = BTreeMap::<String, u64>::new();
    for call in trace.calls().flat_map(|batch| batch.unwrap().into_calls()) {
        *accounted.entry(name(call.region)).or_default() += 1;
    }
    let recorded: u64 = accounted.values().sum();
    for loss in trace.losses().unwrap() {
        *accounted.entry(name(loss.region.unwrap())).or_default() += loss.count;
    }
    assert_eq!(accounted, told);
    let entered: u64 = trace.locations().iter().filter_map(|location| location.calls_entered).sum();
    assert_eq!(entered, told.values().sum::<u64>());
    assert!(recorded < entered, "the reader was fast enough, so nothing was tried");
}

/// rtrace checks that itself: under `--strict` a call that is neither recorded nor counted as lost is a failure.
#[test]
fn calls_of_threads_that_end_as_recording_does_are_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Plain);
    let mut waiting = Waiting::start(&mut target.command("restless"));
    waiting.go();
    let options = ["--strict", "--duration", "20ms"].map(str::to_owned);
    for _ in 0..20 {
        Attached::start(waiting.pid(), &[target.selection(), options.to_vec()].concat()).leave();
    }
    waiting.finish();
}

/// While its probes are planned and placed, calls of another library go on to be read.
#[test]
fn a_library_of_ten_thousand_functions_is_loaded_meanwhile() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("many", Flavour::Plain);
    let mut waiting = Waiting::start(&mut target.command("load"));
    let options = ["--lib", "lib[mt]*.so", "--buffer", "2M"].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    attached.wait_for(|event| matches!(event, EventKind::Attached { regions: 10_000, .. }));
    let output = waiting.finish();
    let folder = attached.leave();
    let trace = Trace::open(&folder.path().join("trace")).unwrap();
    let told: u64 =
        truth::trees(&output.stdout).values().flat_map(|calls| calls.counts()).map(|(_, count)| count).sum();
    let summary = trace.summary().unwrap();
    assert_eq!((summary.calls, &summary.losses), (told, &Vec::new()));
}

#[test]
fn strict_fails_where_calls_were_lost() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let strict = |buffer: &str, scenario: &str| {
        let mut recorder = rtrace::command();
        recorder.args(["run", "--strict", "--buffer", buffer]).args(target.selection());
        recorder.arg("-o").arg(folder.path().join(scenario)).arg("--").arg(&target.program).arg(scenario);
        recorder.output().unwrap().status.code()
    };
    assert_eq!(strict("64K", "bursts"), Some(3));
    assert_eq!(strict("8M", "short_lived"), Some(0));
}
