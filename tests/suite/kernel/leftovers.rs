//! Breakpoints that nobody owns are taken out; those in use stay.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rtrace_model::EventKind;

use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::text::Text;
use crate::common::tree::Forest;
use crate::common::truth::{self, Trees};

fn clean(pid: u32) -> String {
    let output = rtrace::command().args(["clean", "-p", &pid.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn breakpoints_of_nobody_are_taken_out() {
    let Some(_turn) = Turn::take() else { return };
    let mut waiting = Waiting::start(&mut Target::build("processes", Flavour::Cet).command("calls_on"));
    let text = Text::of(waiting.pid());
    text.break_at_function("leaf");
    assert_eq!(text.changes(), 1);
    let told = clean(waiting.pid());
    assert!(told.ends_with("libtruth.so: 1 removed, 0 in use\n"), "{told}");
    assert_eq!(text.changes(), 0);
    assert_eq!(clean(waiting.pid()), "no breakpoints found\n");
    waiting.go();
    assert!(waiting.finish().status.success());
}

/// Nobody is there to be asked.
fn refuses_to_clean(pid: u32, doubt: &str) {
    let said = rtrace::refuses(&["clean", "-p", &pid.to_string()]);
    assert!(said.contains(doubt) && said.contains("add --yes"), "{said}");
}

#[test]
fn breakpoints_where_no_probe_would_be_stay() {
    let Some(_turn) = Turn::take() else { return };
    let mut waiting = Waiting::start(&mut Target::build("processes", Flavour::Cet).command("calls_on"));
    let text = Text::of(waiting.pid());
    // The begin of the text belongs to no function under test; nothing runs it meanwhile.
    text.break_at(0);
    text.break_at_function("leaf");
    refuses_to_clean(waiting.pid(), "1 breakpoint: rtrace places no probes there");
    assert_eq!(text.changes(), 1, "the other one is gone");
    let output = rtrace::command().args(["clean", "--yes", "-p", &waiting.pid().to_string()]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.ends_with("libtruth.so: 1 removed, 0 in use\n"), "{told}");
    assert_eq!(text.changes(), 0);
    waiting.go();
    assert!(waiting.finish().status.success());
}

/// Each call is to meet the breakpoint that the program has set itself, at the place of a probe.
#[test]
fn breakpoints_of_the_program_stay() {
    let Some(_turn) = Turn::take() else { return };
    let mut waiting = Waiting::start(&mut Command::new(Target::build("trapped", Flavour::Plain).program));
    refuses_to_clean(waiting.pid(), "1 breakpoint: the program handles SIGTRAP");
    waiting.go();
    assert_eq!(waiting.line(), "called\n");
    let options = ["--lib", "exe", "--func", "w_*"].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    assert_eq!(waiting.line(), "called\n");
    attached.interrupt();
    let (_, recording) = attached.finish();
    assert_eq!(recording.calls().count(), 100, "those of `w_plain`");
    let is_told = |event: &EventKind| matches!(event, EventKind::Refused { region, .. } if region == "w_trapped");
    assert!(recording.events().iter().any(is_told));
    waiting.go();
    assert_eq!(waiting.line(), "called\n");
    let output = waiting.finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn probes_in_use_stay() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("nested"));
    let attached = Attached::start(waiting.pid(), &target.selection());
    let probes = Text::of(waiting.pid()).changes();
    assert!(probes > 0);
    let told = clean(waiting.pid());
    assert!(told.contains(&format!("libtruth.so: 0 removed, {probes} in use\n")), "{told}");
    waiting.go();
    let output = waiting.finish();
    let (_, recording) = attached.finish();
    let told = truth::trees(&output.stdout);
    let counts = |trees: &Trees| trees.values().map(Forest::counts).collect::<Vec<_>>();
    assert_eq!(counts(&recording.trees()), counts(&told));
}

#[test]
fn recorders_killed_at_any_moment() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("calls_on"));
    let text = Text::of(waiting.pid());
    waiting.go();
    for moment in 0..24 {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = rtrace::command();
        recorder.args(["attach", "--no-tui", "-p", &waiting.pid().to_string()]).args(target.selection());
        recorder.arg("-o").arg(folder.path().join("trace")).stderr(Stdio::piped());
        let mut recorder = recorder.spawn().unwrap();
        waiting.feed(&[b'x'; 50]);
        sleep(Duration::from_millis(moment * 30));
        recorder.kill().unwrap();
        // Its guard keeps nothing open by which others would wait for a recorder that is gone.
        recorder.wait_with_output().unwrap();
        waiting.feed(&[b'x'; 50]);
        text.becomes_the_file();
    }
    let output = waiting.finish();
    assert!(output.status.success(), "{output:?}");
}
