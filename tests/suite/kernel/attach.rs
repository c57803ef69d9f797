//! Recorders that come and go while a program runs.

use std::thread::sleep;
use std::time::Duration;

use rtrace_exporters::Trace;
use rtrace_model::{Ending, EventKind};

use crate::common::rtrace::{Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::text::Text;
use crate::common::truth;

/// A scenario that waits for a line, and a recorder attached to it.
fn start(program: &str, scenario: &str) -> Option<(Turn, Waiting, Attached)> {
    let turn = Turn::take()?;
    let target = Target::build(program, Flavour::Cet);
    let waiting = Waiting::start(&mut target.command(scenario));
    let attached = Attached::start(waiting.pid(), &target.selection());
    Some((turn, waiting, attached))
}

#[test]
fn nested() {
    Scenario::new("shapes", "nested").attach();
}

#[test]
fn threads_that_start_later() {
    Scenario::new("threads", "parallel").attach();
}

#[test]
fn children_with_follow() {
    Scenario::new("processes", "forks").option("--follow").attach();
}

#[test]
fn children_are_left_alone_without_follow() {
    let Some((_turn, mut waiting, attached)) = start("processes", "forks") else { return };
    let pid = waiting.pid();
    waiting.go();
    let output = waiting.finish();
    let (_, recording) = attached.finish();
    let mut told = truth::trees(&output.stdout);
    told.retain(|&(process, _), _| process == pid);
    assert_eq!(recording.trees(), told);
}

#[test]
fn a_call_that_blocks_is_open_at_the_end() {
    let Some((_turn, mut waiting, attached)) = start("processes", "blocks") else { return };
    waiting.go();
    sleep(Duration::from_millis(300));
    attached.interrupt();
    let (output, recording) = attached.finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(waiting.runs(), "the program goes on without its recorder");
    let told = waiting.finish();
    assert!(told.status.success());
    assert_eq!(recording.trees(), truth::trees(&told.stdout));
    assert_eq!(recording.calls().filter(|call| call.ending == Ending::Open).count(), 1);
}

#[test]
fn an_interrupt_ends_the_recording_not_the_program() {
    let Some((_turn, mut waiting, attached)) = start("processes", "calls_on") else { return };
    waiting.go();
    waiting.feed(&[b'x'; 100]);
    sleep(Duration::from_millis(300));
    attached.interrupt();
    let (_, recording) = attached.finish();
    let trees = recording.trees();
    assert_eq!(trees.values().map(ToString::to_string).collect::<Vec<_>>(), ["outer*100(middle(leaf*2) leaf)"]);
    waiting.feed(&[b'x'; 100]);
    assert!(waiting.finish().status.success());
}

#[test]
fn a_killed_recorder_leaves_the_program_and_a_trace() {
    let Some((_turn, mut waiting, attached)) = start("processes", "calls_on") else { return };
    let pid = waiting.pid();
    waiting.go();
    waiting.feed(&[b'x'; 100]);
    // The trace may miss the last second, no more.
    sleep(Duration::from_millis(2500));
    let folder = attached.kill();
    waiting.feed(&[b'x'; 100]);
    sleep(Duration::from_millis(500));
    assert_eq!(Text::of(pid).changes(), 0, "no probe stays behind");
    waiting.feed(&[b'x'; 100]);
    assert!(waiting.finish().status.success());

    let trace = Trace::open(&folder.path().join("trace")).unwrap();
    assert_eq!(trace.summary(), None);
    assert_eq!(trace.calls().map(|batch| batch.unwrap().len()).sum::<usize>(), 500);
    assert!(trace.events().flatten().flatten().any(|event| event.kind == EventKind::Armed));
}
