//! Exceptions and panics that leave calls.

use rtrace_model::Ending;

use crate::common::rtrace;
use crate::common::scenario::Scenario;
use crate::common::skip::Turn;
use crate::common::spans::assert_left_soon;

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

/// Who catches goes on for 20 ms, once it has said since when.
#[test]
fn a_call_that_is_left_ends_with_the_exception() {
    let Some((output, recording)) = Scenario::new("throws", "thrown_over_callers").run_with_output() else { return };
    assert_left_soon(&recording, &output.stdout);
}

#[test]
fn what_throws_does_not_return() {
    let Some(_turn) = Turn::take() else { return };
    let target = Scenario::new("exceptions", "destructors").target();
    let libraries = ["--lib", "libstdc++.so.6", "--lib", "libgcc_s.so.1"].map(str::to_owned);
    let functions = ["visit", "leaf", "__cxa_throw", "_Unwind_Resume", "_Unwind_SetIP"];
    let functions = functions.into_iter().flat_map(|name| ["--func".to_owned(), name.to_owned()]);
    let options: Vec<String> = target.selection().into_iter().chain(libraries).chain(functions).collect();
    let (output, recording) = rtrace::run(&options, &target.command("destructors"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, count) in [("__cxa_throw", 200), ("_Unwind_Resume", 600)] {
        let counted = recording.counted(name);
        let endings: Vec<Ending> = counted.values().flatten().map(|(call, _)| call.ending).collect();
        assert_eq!(endings, vec![Ending::Unwound; count], "{name}");
    }
}
