//! Exceptions and panics that leave calls.

use crate::common::scenario::Scenario;

#[test]
fn caught_outside_all_calls() {
    Scenario::new("exceptions", "caught_outside").run();
}

#[test]
fn caught_inside_a_call() {
    Scenario::new("exceptions", "caught_inside").run();
}

#[test]
fn caught_and_thrown_again() {
    Scenario::new("exceptions", "rethrown").run();
}

#[test]
fn destructors_call() {
    Scenario::new("exceptions", "destructors").run();
}

#[test]
fn forty_calls_deep() {
    Scenario::new("exceptions", "deep").run();
}

#[test]
fn calls_deeper_than_those_that_were_left() {
    Scenario::new("exceptions", "deeper_after").run();
}

#[test]
fn rust_panics() {
    Scenario::new("panic", "").run();
}
