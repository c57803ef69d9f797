//! Shapes of call trees on one thread.

use rtrace_model::{Untimed, UntimedReason};

use crate::common::scenario::{Scenario, Truth};
use crate::common::target::Flavour;

#[test]
fn nested() {
    Scenario::new("shapes", "nested").run();
}

#[test]
fn nested_without_endbr64() {
    Scenario::new("shapes", "nested").flavour(Flavour::Plain).run();
}

#[test]
fn several_returns_behind_a_jump_table() {
    Scenario::new("shapes", "branches").run();
}

#[test]
fn several_returns_behind_a_jump_table_without_endbr64() {
    Scenario::new("shapes", "branches").flavour(Flavour::Plain).run();
}

/// A return site that is hit in vain is taken out, until some hundred calls come from there: in a million at half a
/// million a second, looks now and then would be too late.
#[test]
fn calls_from_where_mostly_others_are_called() {
    let scenario = Scenario::new("shapes", "seldom_then_often").truth(Truth::Counts);
    let Some(recording) = scenario.run() else { return };
    let summary = recording.summary();
    let of_reason = Untimed::by_reason(&summary.untimed);
    let dropped: u64 =
        of_reason.iter().filter(|(reason, _)| *reason == UntimedReason::SiteDropped).map(|(_, n)| n).sum();
    assert!(dropped < summary.calls / 100, "{of_reason:?} of {}", summary.calls);
    let timed = summary.calls - summary.unseen;
    assert!(timed * 2 > summary.calls, "{timed} timed of {}", summary.calls);
    let in_vain = summary.return_sites.unmatched;
    // Emulated kernels take longer to place a site than the others are called.
    assert!(dropped > 0 || in_vain < summary.calls / 2, "{in_vain} hits in vain, and it was not taken out");
    assert!(in_vain < summary.calls * 2, "{in_vain} hits in vain for {} calls", summary.calls);
}

/// The site was met in the process before it executed the program in which it is taken out.
#[test]
fn calls_from_such_a_place_after_an_exec() {
    let scenario = Scenario::new("shapes", "executed").truth(Truth::Counts);
    let Some(recording) = scenario.run() else { return };
    let summary = recording.summary();
    assert_eq!((summary.unwound, summary.open), (0, 0), "of {} calls", summary.calls);
    assert!(summary.unseen < summary.calls / 10, "{} of {} not timed", summary.unseen, summary.calls);
}

/// Nothing tells of the mapping that goes: what is known of its addresses counts only as long as their file is there.
#[test]
fn calls_from_where_another_file_was_mapped() {
    let Some(recording) = Scenario::new("shapes", "replaced").truth(Truth::Counts).run() else { return };
    let summary = recording.summary();
    assert_eq!((summary.unwound, summary.open), (0, 0), "of {} calls", summary.calls);
    // An emulated kernel takes as long to place the new site as half of the calls take.
    assert!(summary.unseen < summary.calls / 10 * 9, "{} of {} not timed", summary.unseen, summary.calls);
}

#[test]
fn mutual_recursion() {
    Scenario::new("shapes", "mutual").run();
}

#[test]
fn recursion_deeper_than_the_kernel_follows_returns() {
    Scenario::new("shapes", "recursion").run();
}
