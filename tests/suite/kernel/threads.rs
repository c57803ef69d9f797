//! Several threads, and threads that end inside a call.

use crate::common::scenario::Scenario;

#[test]
fn four_threads_at_once() {
    Scenario::new("threads", "parallel").run();
}

#[test]
fn two_hundred_short_threads() {
    Scenario::new("threads", "short_lived").run();
}

#[test]
fn pthread_exit_inside_a_call() {
    Scenario::new("threads", "exit").run();
}

#[test]
fn pthread_exit_with_calls_in_a_cleanup_handler() {
    Scenario::new("threads", "exit_cleanup").run();
}

#[test]
fn pthread_cancel_inside_a_call() {
    Scenario::new("threads", "cancel").run();
}

#[test]
fn pthread_cancel_with_calls_in_a_cleanup_handler() {
    Scenario::new("threads", "cancel_cleanup").run();
}
