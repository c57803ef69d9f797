//! Hits that no program could cause: whatever comes, the stack keeps its own rules.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::wire::{LossCode, PolicyCode};

use super::{FRAMES, Hit, OTHER, OWN, SIGNAL, TRAMPOLINE, Thread};

#[derive(Clone, Debug)]
enum Op {
    Enter {
        slot: u64,
        stack: u32,
        region: u32,
        policy: PolicyCode,
        /// What the slot holds, if something else than before.
        word: Option<u64>,
    },
    Exit {
        slot: u64,
        stack: u32,
        region: u32,
    },
    /// Many calls, each deeper than the one before.
    Dive {
        stack: u32,
        policy: PolicyCode,
        calls: u64,
    },
    Abandon,
}

fn slot() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..40_u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..4_u64, 1 => Just(TRAMPOLINE)]
}

fn stack() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(OWN), 2 => Just(SIGNAL), 2 => Just(OTHER | 1), 1 => Just(OTHER | 2), 1 => Just(0)]
}

fn policy() -> impl Strategy<Value = PolicyCode> {
    prop_oneof![
        Just(PolicyCode::RT_POLICY_URETPROBE),
        Just(PolicyCode::RT_POLICY_RET_SITE),
        Just(PolicyCode::RT_POLICY_ENTRY_ONLY),
        Just(PolicyCode::RT_POLICY_INSTANT),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let enter = (slot(), stack(), 0..4_u32, policy(), prop::option::of(word()))
        .prop_map(|(slot, stack, region, policy, word)| Op::Enter { slot, stack, region, policy, word });
    let exit = (slot(), stack(), 0..4_u32).prop_map(|(slot, stack, region)| Op::Exit { slot, stack, region });
    let dive = (stack(), policy(), 0..1_200_u64).prop_map(|(stack, policy, calls)| Op::Dive { stack, policy, calls });
    prop_oneof![60 => enter, 40 => exit, 2 => dive, 1 => Just(Op::Abandon)]
}

fn run(thread: &mut Thread, op: Op, now: u64) {
    match op {
        Op::Enter { slot, stack, region, policy, word } => {
            if let Some(word) = word {
                thread.memory.write(slot, word);
            }
            thread.enter(Hit { slot, stack, now }, region, policy);
        }
        Op::Exit { slot, stack, region } => {
            thread.exit(Hit { slot, stack, now }, region);
        }
        Op::Dive { stack, policy, calls } => {
            for call in 0..calls {
                thread.enter(Hit { slot: 100_000 - call, stack, now }, 9, policy);
            }
        }
        Op::Abandon => thread.abandon(now),
    }
}

/// What holds after any sequence of hits.
fn assert_rules(thread: &mut Thread, now: u64) {
    assert!(thread.is_intact());
    assert!(thread.counts_well());
    let frames = thread.frames();
    assert!(frames.len() <= FRAMES as usize);
    assert_eq!(frames.iter().filter(|frame| frame.hooked).count(), thread.hooked() as usize);
    assert!(frames.is_sorted_by(|older, younger| older.call.id < younger.call.id));

    let lost = [LossCode::RT_LOSS_TOO_DEEP, LossCode::RT_LOSS_NO_MEMORY].map(|reason| thread.lost(reason));
    let known = thread.records().iter().chain(frames.iter().map(|frame| &frame.call));
    let mut ids = HashSet::new();
    for call in known {
        assert!(ids.insert(call.id), "id {} twice", call.id);
        assert!(call.parent < call.id && (1..=thread.calls()).contains(&call.id));
        assert_eq!(call.parent == 0, call.depth == 0);
        assert!(call.start.checked_add(call.duration).is_some_and(|end| end <= now));
    }
    assert_eq!(ids.len() as u64 + lost.iter().sum::<u64>(), thread.calls());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_hits_keep_the_rules(
        memory_is_short in prop::bool::weighted(0.2),
        hits in prop::collection::vec((op(), 0..3_u64), 0..600),
    ) {
        let mut thread = if memory_is_short { Thread::short_of_memory() } else { Thread::new() };
        let mut now = 0;
        for (step, (op, tick)) in hits.into_iter().enumerate() {
            now += tick;
            run(&mut thread, op, now);
            if step % 50 == 0 {
                assert_rules(&mut thread, now);
            }
        }
        assert_rules(&mut thread, now);
        thread.abandon(now);
        assert_eq!(thread.frames().len(), 0);
        assert_rules(&mut thread, now);
    }
}
