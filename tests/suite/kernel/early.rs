//! Calls that are seen to begin and to end at jumps, not at first instructions and returns, are the same
//! calls.

use rtrace_model::{Call, ExitPolicy};

use crate::common::recording::Recording;
use crate::common::scenario::Scenario;
use crate::common::skip::{may_step, skip};

fn calls_of<'a>(recording: &'a Recording, name: &str) -> Vec<&'a Call> {
    let region = recording.regions().iter().find(|region| region.name == name).expect("the region is there");
    recording.calls().filter(|call| call.region == region.id).collect()
}

fn policy(recording: &Recording, name: &str) -> ExitPolicy {
    recording.regions().iter().find(|region| region.name == name).expect("the region is there").exit
}

#[test]
fn every_way_through_a_function_is_a_call_of_its_own() {
    for recording in [Scenario::new("early", "ways").run(), Scenario::new("early", "ways").attach()] {
        let Some(recording) = recording else { return };
        for name in ["framed", "several", "lock"] {
            assert_eq!(policy(&recording, name), ExitPolicy::RetSite, "{name}");
        }
        assert!(calls_of(&recording, "several").iter().all(|call| call.duration > Some(0)));
    }
}

/// A call that is over at the jump where it begins takes no time; one that goes on there is timed.
#[test]
fn one_jump_tells_calls_that_are_over_from_those_that_go_on() {
    if may_step().is_ok() {
        return skip("this kernel needs no single step for a return, so that none is seen early");
    }
    let Some(recording) = Scenario::new("early", "ways").run() else { return };
    for name in ["framed", "lock"] {
        let (over, on): (Vec<&Call>, Vec<&Call>) =
            calls_of(&recording, name).into_iter().partition(|call| call.duration == Some(0));
        assert!(on.iter().all(|call| call.child > 0), "{name}: the others call back");
        assert!(over.iter().all(|call| call.child == 0), "{name}");
        let share = if name == "framed" { 4 } else { 2 };
        assert_eq!(over.len() * share, over.len() + on.len(), "{name}");
    }
}

#[test]
fn calls_that_are_jumped_or_unwound_out_of_are_seen_to_be_left() {
    Scenario::new("early", "left").run();
    Scenario::new("early", "unwound").run();
}

#[test]
fn where_returns_are_asked_for_the_calls_are_the_same() {
    let Some(recording) = Scenario::new("early", "ways").option("--exit").option("ret-site").run() else { return };
    assert!(recording.calls().all(|call| call.duration > Some(0)));
}
