//! How exits are seen changes what is known of them, never the program and never the counts.

use rtrace_model::{Ending, ExitPolicy};

use crate::common::scenario::{Scenario, Truth};

fn with_policy(program: &'static str, scenario: &'static str, policy: &str) -> Scenario {
    Scenario::new(program, scenario).option("--exit").option(policy)
}

#[test]
fn ret_sites_see_a_tail_call_follow_its_caller() {
    with_policy("shapes", "tails", "ret-site").run();
}

#[test]
fn uretprobes_count_tail_calls() {
    with_policy("shapes", "tails", "uretprobe").truth(Truth::Counts).run();
}

#[test]
fn uretprobes_see_nested_calls() {
    let Some(recording) = with_policy("shapes", "nested", "uretprobe").run() else { return };
    assert!(recording.regions().iter().all(|region| region.exit == ExitPolicy::Uretprobe));
}

#[test]
fn ret_sites_see_nested_calls() {
    let Some(recording) = with_policy("shapes", "nested", "ret-site").run() else { return };
    assert!(recording.regions().iter().all(|region| region.exit == ExitPolicy::RetSite));
}

#[test]
fn entry_only_counts_calls() {
    let Some(recording) = with_policy("shapes", "nested", "entry-only").truth(Truth::Counts).run() else { return };
    assert!(recording.calls().all(|call| call.ending == Ending::Unseen && call.duration == 0));
}
