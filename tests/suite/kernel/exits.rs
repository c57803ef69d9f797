//! How exits are seen changes what is known of them, never the program and never the counts.

use rtrace_bpf::Mechanism;
use rtrace_model::{Ending, ExitPolicy, Region};

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
    with_policy("shapes", "tails", "ret-site").run();
}

#[test]
fn uretprobes_count_tail_calls() {
    with_policy("shapes", "tails", "uretprobe").truth(Truth::Counts).run();
}

#[test]
fn uretprobes_see_nested_calls() {
    let Some(recording) = with_policy("shapes", "nested", "uretprobe").run() else { return };
    assert!(called_regions(&recording).all(|region| region.exit == ExitPolicy::Uretprobe));
}

#[test]
fn ret_sites_see_nested_calls() {
    let Some(recording) = with_policy("shapes", "nested", "ret-site").run() else { return };
    assert!(called_regions(&recording).all(|region| region.exit == ExitPolicy::RetSite));
}

#[test]
fn ret_sites_see_deep_recursion() {
    with_policy("shapes", "recursion", "ret-site").run();
}

#[test]
fn ret_sites_see_every_return_of_a_jump_table() {
    with_policy("shapes", "branches", "ret-site").run();
}

#[test]
fn entry_only_counts_calls() {
    let Some(recording) = with_policy("shapes", "nested", "entry-only").truth(Truth::Counts).run() else { return };
    assert!(recording.calls().all(|call| call.ending == Ending::Unseen && call.duration.is_none()));
}

#[test]
fn one_probe_sees_calls_of_a_few_instructions_begin_and_end() {
    let Some(recording) = Scenario::new("shapes", "brief").run() else { return };
    let next = called_regions(&recording).find(|region| region.name == "next").unwrap();
    assert_eq!(next.exit, ExitPolicy::Instant);
    let calls = recording.calls().filter(|call| call.region == next.id);
    assert!(calls.into_iter().all(|call| call.ending == Ending::Returned && call.duration == Some(0)));
}

#[test]
fn calls_of_a_few_instructions_are_timed_where_that_is_asked_for() {
    for policy in ["uretprobe", "ret-site"] {
        let Some(recording) = with_policy("shapes", "brief", policy).run() else { return };
        assert!(recording.calls().all(|call| call.duration > Some(0)), "{policy}");
    }
}

/// Nothing unwinds through a function that only computes, and the program may throw.
#[test]
fn closed_functions_are_hooked_where_others_unwind() {
    let Some(recording) = Scenario::new("exceptions", "destructors").attach() else { return };
    let policy = |name| {
        let region = called_regions(&recording).find(|region| region.name == name);
        region.map(|region| region.exit)
    };
    if rtrace_bpf::best_mechanism() != Ok(Mechanism::Session) {
        eprintln!("skipped: this kernel cannot refuse the hook of a single call");
        return;
    }
    assert_eq!(policy("leaf"), Some(ExitPolicy::Uretprobe));
    assert_eq!(policy("visit"), Some(ExitPolicy::RetSite));
}
