//! How exits are seen changes what is known of them, never the program and never the counts.

use rtrace_model::{Call, Ending, ExitPolicy, Region};

use crate::common::recording::Recording;
use crate::common::scenario::{Scenario, Truth};

fn with_policy(program: &'static str, scenario: &'static str, policy: &str) -> Scenario {
    Scenario::new(program, scenario).option("--exit").option(policy)
}

fn called_regions(recording: &Recording) -> impl Iterator<Item = &Region> {
    let called = recording.calls_by_region();
    recording.regions().iter().filter(move |region| called.contains_key(&region.id))
}

#[test]
fn ret_sites_see_a_tail_call_follow_its_caller() {
    with_policy("shapes", "tails", "return-site").run();
}

#[test]
fn ret_sites_see_nested_calls() {
    let Some(recording) = with_policy("shapes", "nested", "return-site").run() else { return };
    assert!(called_regions(&recording).all(|region| region.exit == ExitPolicy::ReturnSite));
}

#[test]
fn ret_sites_see_deep_recursion() {
    with_policy("shapes", "recursion", "return-site").run();
}

#[test]
fn ret_sites_see_every_return_of_a_jump_table() {
    with_policy("shapes", "branches", "return-site").run();
}

#[test]
fn entry_only_counts_calls() {
    let Some(recording) = with_policy("shapes", "nested", "entry-only").truth(Truth::Counts).run() else { return };
    assert!(recording.calls().all(|call| call.ending == Ending::Unseen && call.duration.is_none()));
}

#[test]
fn calls_of_a_few_instructions_are_timed_where_that_is_asked_for() {
    let Some(recording) = with_policy("shapes", "brief", "return-site").run() else { return };
    assert!(recording.calls().all(|call| call.duration != Some(0)));
    assert!(recording.calls().any(Call::is_timed));
}
