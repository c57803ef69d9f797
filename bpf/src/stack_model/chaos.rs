//! Hits that no program could cause: whatever comes, the stack keeps its own rules.

use proptest::prelude::*;

use crate::wire::{ArrivalCode, PolicyCode, TailsCode};

use super::rules::assert_rules;
use super::{Function, Hit, OTHER, OWN, SIGNAL, TRAMPOLINE, Thread};

#[derive(Clone, Debug)]
enum Op {
    Enter {
        slot: u64,
        stack: u32,
        function: Function,
        /// What the slot holds, if something else than before.
        word: Option<u64>,
    },
    Arrive {
        slot: u64,
        stack: u32,
        word: u64,
        is_fixed: bool,
        reach: u8,
    },
    Jump {
        from: u64,
        target: u64,
        stack: u32,
        is_final: bool,
    },
    Hook {
        slot: u64,
    },
    /// What returns from the slot has done so on another thread.
    ReturnElsewhere {
        slot: u64,
    },
    /// Something else is known of a return address; where a probe is there, `words` say that its caller catches.
    Learn {
        word: u64,
        kind: u32,
        words: u32,
    },
    LearnTail {
        from: u32,
        to: u32,
    },
    /// Many calls, each deeper than the one before.
    Dive {
        stack: u32,
        function: Function,
        calls: u64,
    },
    Abandon,
}

fn slot() -> impl Strategy<Value = u64> {
    prop_oneof![8 => (0..40_u64).prop_map(|word| 8 * word), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..5_u64, 1 => Just(TRAMPOLINE)]
}

fn stack() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(OWN), 2 => Just(SIGNAL), 2 => Just(OTHER | 1), 1 => Just(OTHER | 2), 1 => Just(0)]
}

fn function() -> impl Strategy<Value = Function> {
    let policy = prop_oneof![
        6 => Just(PolicyCode::RT_POLICY_RETURN_SITE),
        1 => Just(PolicyCode::RT_POLICY_NEVER),
        1 => Just(PolicyCode::RT_POLICY_ENTRY_ONLY),
    ];
    (0..4_u32, policy, 0..4_u32, prop::bool::weighted(0.2), prop_oneof![4 => Just(0), 1 => 0..4_u32]).prop_map(
        |(region, policy, tails, laps, pops)| Function { region, policy, tails: TailsCode(tails), laps, pops },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let enter = (slot(), stack(), function(), prop::option::of(word()))
        .prop_map(|(slot, stack, function, word)| Op::Enter { slot, stack, function, word });
    let reach = prop_oneof![1 => Just(0), 2 => 0..17_u8];
    let arrive = (slot(), stack(), word(), any::<bool>(), reach)
        .prop_map(|(slot, stack, word, is_fixed, reach)| Op::Arrive { slot, stack, word, is_fixed, reach });
    let jump = (slot(), slot(), stack(), any::<bool>()).prop_map(|(from, target, stack, is_final)| Op::Jump {
        from,
        target,
        stack,
        is_final,
    });
    let learn = (1..5_u64, 0..5_u32, 0..4_u32).prop_map(|(word, kind, words)| Op::Learn { word, kind, words });
    let dive =
        (stack(), function(), 0..1_200_u64).prop_map(|(stack, function, calls)| Op::Dive { stack, function, calls });
    prop_oneof![
        60 => enter,
        40 => arrive,
        5 => jump,
        5 => slot().prop_map(|slot| Op::Hook { slot }),
        5 => slot().prop_map(|slot| Op::ReturnElsewhere { slot }),
        5 => learn,
        2 => (0..4_u32, 0..4_u32).prop_map(|(from, to)| Op::LearnTail { from, to }),
        1 => dive,
        1 => Just(Op::Abandon),
    ]
}

fn run(thread: &mut Thread, op: Op, now: u64) {
    match op {
        Op::Enter { slot, stack, function, word } => {
            if let Some(word) = word {
                thread.world.write(slot, word);
            }
            thread.enter(Hit { slot, stack, now }, function);
        }
        Op::Arrive { slot, stack, word, is_fixed, reach } => {
            thread.arrive(Hit { slot, stack, now }, word, is_fixed, reach);
        }
        Op::Jump { from, target, stack, is_final } => thread.jump(from, target, stack, now, is_final),
        Op::Hook { slot } => thread.world.hook(slot),
        Op::ReturnElsewhere { slot } => thread.returns_elsewhere(slot),
        Op::Learn { word, kind, words } => thread.world.set_arrival(word, ArrivalCode(kind), words),
        Op::LearnTail { from, to } => thread.world.add_tail(from, to),
        Op::Dive { stack, function, calls } => {
            for call in 0..calls {
                thread.enter(Hit { slot: 100_000 - call, stack, now }, function);
            }
        }
        Op::Abandon => thread.abandon(now),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

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
        assert_eq!((thread.frames().len(), thread.left()), (0, 0));
        assert_rules(&mut thread, now);
    }
}
