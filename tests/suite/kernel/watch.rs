//! Accesses to watched variables, compared with what the program says that it writes.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use rtrace_exporters::Trace;
use rtrace_model::{Call, Ending, EventKind, Reading, Sample, Scope};

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target, compile_text};
use crate::common::truth::Thread;

/// Writes during each call of a thread, in the order of enters: all, and those of callees.
type Writes = BTreeMap<Thread, Vec<(u64, u64)>>;

/// The `wrote` lines of `watched.c`.
fn told(stderr: &[u8]) -> Writes {
    let mut writes = Writes::new();
    for line in String::from_utf8_lossy(stderr).lines() {
        let Some(numbers) = line.strip_prefix("wrote ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [pid, tid, inclusive, child] = numbers[..] else { panic!("{line}") };
        let thread = (pid.try_into().unwrap(), tid.try_into().unwrap());
        writes.entry(thread).or_default().push((inclusive, child));
    }
    writes
}

/// What the calls counted. What is told is taken for calls that went unseen, which count nothing, and for what
/// their callers counted in callees.
fn counted(recording: &Recording, counter: usize, told: &Writes) -> Writes {
    let is_unseen = |call: Option<&(&Call, &[Reading])>| call.is_some_and(|(call, _)| call.ending == Ending::Unseen);
    let of_thread = |(thread, calls): (Thread, Vec<(&Call, &[Reading])>)| {
        let told = told.get(&thread).map_or(&[][..], Vec::as_slice);
        let writes = |index: usize| match (is_unseen(calls.get(index)), is_unseen(calls.get(index + 1))) {
            (true, _) => told.get(index).copied().unwrap_or_default(),
            (false, is_callee_unseen) => {
                let Reading { inclusive, child } = calls[index].1[counter];
                (inclusive, if is_callee_unseen { told.get(index).map_or(child, |told| told.1) } else { child })
            }
        };
        (thread, (0..calls.len()).map(writes).collect())
    };
    recording.counted("visit").into_iter().map(of_thread).collect()
}

fn options(target: &Target, watched: &[&str]) -> Vec<String> {
    let watched = watched.iter().flat_map(|name| ["--watch".to_owned(), (*name).to_owned()]);
    target.selection().into_iter().chain(watched).collect()
}

/// Whether the hardware has breakpoints; if not, says so.
fn can_watch() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::build("watched", Flavour::Cet);
    let output = rtrace::command()
        .args(["run", "--no-tui", "-o"])
        .arg(folder.path().join("trace"))
        .args(options(&target, &["noted"]))
        .arg("--")
        .arg(&target.program)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let can = !complaint.contains("by a breakpoint in the hardware");
    if !can {
        println!("skipped: {complaint}");
    }
    can
}

/// The library's variable lies in the library, or is copied into the program, or there is only the program.
#[test]
fn calls_count_their_writes_whichever_file_has_the_variable() {
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    for flavour in [Flavour::Cet, Flavour::Static, Flavour::Exporting] {
        let target = Target::build("watched", flavour);
        let options = options(&target, &["noted:w"]);
        let (output, recording) = rtrace::run(&options, &target.command("writes"));
        let told = told(&output.stderr);
        assert_eq!(told.len(), 3, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(counted(&recording, 0, &told), told, "{flavour:?}");
        let is_late = |kind: &EventKind| matches!(kind, EventKind::Watched { .. });
        assert!(!recording.events().iter().any(is_late), "{flavour:?}: watched from the begin");
    }
}

/// Where it is told where calls go, the dynamic linker is not alone in loading the program.
#[test]
fn a_program_with_stubs_is_watched_from_its_begin() {
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    let target = Target::build("stubs", Flavour::Plain);
    let options = [options(&target, &["entered:w"]), vec!["--stubs".into()]].concat();
    let (_, recording) = rtrace::run(&options, &target.command("calls"));
    let writes: Vec<u64> =
        recording.counted("within").into_values().flatten().map(|(_, readings)| readings[0].inclusive).collect();
    assert_eq!(writes, [1; 50]);
}

/// With a counter of another kind before it, in threads that begin after the watching.
#[test]
fn a_program_that_runs_is_watched() {
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    let target = Target::build("watched", Flavour::Cet);
    let options = [options(&target, &["noted"]), ["--counters", "task-clock"].map(str::to_owned).to_vec()].concat();
    let mut waiting = Waiting::start(&mut target.command("writes"));
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    let traced = waiting.finish();
    let (_, recording) = attached.finish();
    let told = told(&traced.stderr);
    assert_eq!(counted(&recording, 1, &told), told);
}

#[test]
fn values_are_those_written() {
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let target = Target::build("watched", Flavour::Cet);
    let options = options(&target, &["exe:stamp:w:signed"]);
    rtrace::record(&options, &target.command("writes"), &directory);
    let trace = Trace::open(&directory).unwrap();
    let metric = trace.metrics().iter().find(|metric| metric.name == "value/stamp").unwrap();
    assert_eq!(metric.scope, Scope::Thread);
    let mut samples: Vec<Sample> =
        trace.samples().flat_map(Result::unwrap).filter(|sample| sample.metric == metric.id).collect();
    samples.sort_by_key(|sample| sample.time);
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    assert_eq!(values, (0..100).map(|i| f64::from(100 - 7 * i)).collect::<Vec<_>>());
    assert_eq!(trace.summary().unwrap().losses, []);
}

/// A block of the heap, in a process that has it already.
#[test]
fn memory_at_an_address_is_watched() {
    const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
long *volatile block;
__attribute__((noinline)) void write_some(int i) { for (int k = 0; k < i % 3; k++) *block = 10 * i + k; }
int main(void) {
    block = malloc(800);
    printf("ready now\n%p\n", (void *)block); fflush(stdout); getchar();
    for (int i = 0; i < 30; i++) write_some(i);
    return 0;
}"#;
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    compile_text(folder.path(), PROGRAM, "program", &["-O1", "-rdynamic"]);
    let mut waiting = Waiting::start(&mut Command::new(folder.path().join("program")));
    let address = waiting.line();
    let watched = format!("{}/8:w:signed", address.trim());
    let options = ["--lib", "exe", "--func", "write_some", "--watch", &watched].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    assert!(waiting.finish().status.success());
    let (_, recording) = attached.finish();
    let writes: Vec<u64> =
        recording.counted("write_some").into_values().flatten().map(|(_, readings)| readings[0].inclusive).collect();
    // The first return may not be seen.
    assert_eq!(writes[1..], (1..30).map(|i| i % 3).collect::<Vec<_>>());
    let program = folder.path().join("program").display().to_string();
    let refused = rtrace::refuses(&["run", "--no-tui", "--lib", "exe", "--watch", "0x1000/8", "--", &program]);
    assert!(refused.contains("failed to watch `0x1000/8:w`: only a running process says"), "{refused}");
}

#[test]
fn what_cannot_be_watched_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::build("watched", Flavour::Cet);
    let witness = folder.path().join("trace");
    for (watched, cause) in [
        ("nowhere", "failed to watch `nowhere:w`: neither the program nor the libraries named have such a variable"),
        ("libc:environ:rw", ""),
        ("libc:errno", "failed to watch `libc:errno:w`: each thread has its own"),
        ("libc:_res", "failed to watch `libc:_res:w`: "),
    ] {
        let Some(_turn) = Turn::take() else { return };
        let output = rtrace::command()
            .args(["run", "--no-tui", "-o"])
            .arg(&witness)
            .args(options(&target, &[watched]))
            .arg("--")
            .arg(&target.program)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains(cause), "{watched}: {complaint}");
        assert_eq!(fs::exists(&witness).unwrap(), cause.is_empty(), "{complaint}");
        let _ = fs::remove_dir_all(&witness);
    }
}

/// The library is loaded by `dlopen`, and unloaded again.
#[test]
fn a_variable_that_is_loaded_later_is_watched_from_a_time_that_is_told() {
    let Some(_turn) = Turn::take() else { return };
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let target = Target::build("loading", Flavour::Cet);
    let output = rtrace::record(&options(&target, &["noted"]), &target.command("reopen"), &directory);
    let trace = Trace::open(&directory).unwrap();
    let events = trace.events().flat_map(Result::unwrap);
    // It may be unloaded again before rtrace has looked.
    let mut told = events.filter(|event| match &event.kind {
        EventKind::Watched { variable, since } => variable == "noted:w" && *since <= event.time,
        EventKind::Unwatched { variable, .. } => variable == "noted:w",
        _ => false,
    });
    assert!(told.next().is_some(), "{}", String::from_utf8_lossy(&output.stderr));
}
