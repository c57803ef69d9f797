//! Children, other programs, and processes that end inside a call.

use crate::common::scenario::Scenario;

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

#[test]
fn exec_inside_a_call() {
    Scenario::new("processes", "execs").run();
}

#[test]
fn killed_inside_a_call() {
    Scenario::new("processes", "killed").run();
}

#[test]
fn the_exit_code_is_the_programs_own() {
    Scenario::new("processes", "ends_with_code").run();
}
