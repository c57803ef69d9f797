//! Where one of the coroutines lies within the mapping of the own stack: callers may be mistaken, but what is recorded as
//! returned has.

use proptest::prelude::*;

use crate::wire::{ArrivalCode, CallRecord, EndingCode, PolicyCode, TailsCode, UntimedCode};

use super::jump::Seen;
use super::programs::{op, regions, signal_top, site};
use super::{Call, Machine, OWN_TOP, Op, REGIONS, Region, SITES, Site};

/// The nearest timed calls that a call has made, itself or by calls that were not timed.
fn timed_callees<'a>(call: &CallRecord, recorded: &'a [CallRecord]) -> Vec<&'a CallRecord> {
    let callees = recorded.iter().filter(|callee| callee.parent == call.id);
    let timed = callees.flat_map(|callee| match callee.ending {
        EndingCode::RT_UNSEEN => timed_callees(callee, recorded),
        _ => vec![callee],
    });
    timed.collect()
}

/// What must hold of a call and those recorded as its callees: when it ended, and what time they took. It may have got
/// time of calls that turned out, when it was over, to be nobody's, or to have no known end: `ambiguous`.
fn assert_child_time(call: &CallRecord, callees: &[&CallRecord], recorded: &[CallRecord], ambiguous: &[u64]) {
    let end = call.start + call.duration;
    // An untimed callee on another stack may be over later than this call: then it hands on nothing.
    let is_over = |callee: &&&CallRecord| callee.parent == call.id && callee.start + callee.duration <= end;
    let least: u64 = callees.iter().filter(is_over).map(|callee| callee.duration).sum();
    let most: u64 = callees.iter().map(|callee| callee.duration).sum();
    let is_nobodys = |other: &&CallRecord| {
        other.parent == 0 && (call.start..end).contains(&other.start) && other.start + other.duration > end
    };
    let is_of_no_known_end =
        |other: &&CallRecord| ambiguous.contains(&other.id) && (call.start..end).contains(&other.start);
    let is_meant = |other: &&CallRecord| is_nobodys(other) || is_of_no_known_end(other);
    let of_others: u64 = recorded.iter().filter(is_meant).map(|other| end - other.start).sum();
    assert!((least..=most + of_others).contains(&call.child), "{call:?} {callees:?} {recorded:?}");
}

/// Runs the program, each operation with its nanoseconds, and compares what must be true of its records.
fn check(mut machine: Machine, program: impl IntoIterator<Item = (Op, u64)>) {
    for (op, tick) in program {
        machine.tick = tick;
        machine.step(op);
    }
    let recorded = machine.finish();
    assert_eq!(machine.calls.len(), recorded.len());
    let is_ambiguous = |(truth, call): &(&Call, &CallRecord)| {
        truth.doubt.is_none_or(|doubt| doubt == UntimedCode::RT_UNTIMED_AMBIGUOUS)
            && truth.home != 0
            && call.ending == EndingCode::RT_UNSEEN
    };
    let ambiguous: Vec<u64> =
        machine.calls.iter().zip(&recorded).filter(is_ambiguous).map(|(_, call)| call.id).collect();
    for (truth, call) in machine.calls.iter().zip(&recorded) {
        assert_eq!((truth.record.id, truth.record.start), (call.id, call.start));
        assert_eq!(truth.record.region, call.region);
        assert!(call.parent < call.id);
        if call.ending == EndingCode::RT_RETURNED {
            assert_eq!(truth.returned_at, Some(call.start + call.duration), "{call:?}");
        }
        // Another tracer's trampoline writes below the slot, where the other stack may lie.
        let is_disturbed = machine.regions.iter().any(|region| region.is_hooked_by_others);
        assert!(call.ending != EndingCode::RT_UNWOUND || !truth.has_returned || is_disturbed, "{call:?}");
        if call.ending != EndingCode::RT_UNSEEN {
            assert_child_time(call, &timed_callees(call, &recorded), &recorded, &ambiguous);
        }
    }
}

/// A call that was left in silence has the slot, the return address and a known jump to what enters there next. Once
/// stacks were seen to share the mapping, no hit further up has shown that it is over.
#[test]
fn a_left_call_may_have_jumped_although_a_later_one_returned_further_up() {
    let region = |tails, known| Region {
        policy: PolicyCode::RT_POLICY_RETURN_SITE,
        tails,
        known,
        is_hooked_by_others: false,
        laps: false,
    };
    let mut regions = [region(TailsCode::RT_TAILS_NEVER, 0); REGIONS];
    regions[4] = region(TailsCode::RT_TAILS_KNOWN, 1 << 4);
    let mut sites = [Site { kind: ArrivalCode::RT_ARRIVAL_PLACED, fixed: None, catches: false }; SITES];
    sites[3].fixed = Some(4);
    let call = |region, words, site| Op::Call { region, words, site, only_returns: false, locals: None };
    let program = [
        // The stacks are seen to share the mapping: a call of the coroutine stands above one that returns.
        call(None, 1, 3),
        Op::Switch { stack: 1 },
        call(Some(0), 2, 0),
        Op::Switch { stack: 0 },
        Op::Return,
        // Left, and one call from further up.
        call(None, 19, 3),
        Op::Longjmp { activations: 1, seen: Seen::Not },
        call(None, 1, 3),
        Op::Return,
        // What has the slot of the first.
        call(None, 19, 3),
        Op::Return,
    ];
    let machine = Machine::new(regions, sites, OWN_TOP - 0x8000_0000, Some(OWN_TOP));
    check(machine, program.map(|op| (op, 1)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recorded_as_returned_has_wherever_stacks_lie(
        regions in regions(),
        sites in prop::array::uniform6(site()),
        signal_top in signal_top(),
        above in prop_oneof![Just(0), 0..64_u64],
        program in prop::collection::vec((op(), 1..5_u64), 0..400),
    ) {
        check(Machine::new(regions, sites, signal_top, Some(OWN_TOP - 8 * above)), program);
    }
}
