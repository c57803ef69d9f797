//! Children, other programs, and processes that end inside a call.

use std::process::Command;

use rtrace_model::{Ending, EventKind};

use crate::common::rtrace;
use crate::common::scenario::Scenario;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::truth;

#[test]
fn children_call_too() {
    Scenario::new("processes", "forks").option("--everywhere").run();
}

#[test]
fn what_children_call_before_they_have_probes_is_a_blind_window() {
    Scenario::new("processes", "forks").run();
}

#[test]
fn a_child_leaves_a_call_that_its_parent_entered() {
    Scenario::new("processes", "fork_inside").option("--everywhere").run();
}

#[test]
fn vfork_and_exec() {
    Scenario::new("processes", "vforks").option("--everywhere").run();
}

/// However soon they are over: each program waits for its probes, and for the sites of its direct calls.
#[test]
fn programs_that_children_execute_are_recorded_from_their_first_call() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "for i in 1 2 3; do \"$0\" after_exec; done; (exec \"$0\" after_exec); exit 3"])
        .arg(&target.program);
    let (output, recording) = rtrace::run(&target.selection(), &shell);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let told = truth::trees(&output.stdout);
    assert_eq!(told.len(), 4);
    assert_eq!(recording.trees(), told);
    let is_blind = |kind: &&EventKind| matches!(kind, EventKind::BlindWindow { .. });
    assert_eq!(recording.events().iter().filter(is_blind).count(), 0);
}

#[test]
fn exec_inside_a_call() {
    Scenario::new("processes", "execs").run();
}

/// The kernel knows no probes of it any more.
#[test]
fn a_program_that_another_thread_executes_is_told_to_be_missing() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let (output, recording) = rtrace::run(&target.selection(), &target.command("execs_in_thread"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_blind = |kind: &EventKind| matches!(kind, EventKind::BlindWindow { .. });
    assert!(recording.events().iter().any(is_blind));
    assert!(recording.calls().all(|call| matches!(call.ending, Ending::Returned | Ending::Unseen)));
}

#[test]
fn killed_inside_a_call() {
    Scenario::new("processes", "killed").run();
}

#[test]
fn the_exit_code_is_the_programs_own() {
    Scenario::new("processes", "ends_with_code").run();
}
