//! What random programs are made of.

use proptest::prelude::*;

use crate::wire::{ArrivalCode, PolicyCode, TailsCode};

use super::jump::Seen;
use super::{OWN_TOP, Op, REGIONS, Region, SITES, Site};

pub fn region() -> impl Strategy<Value = Region> {
    let policy = prop_oneof![
        6 => Just(PolicyCode::RT_POLICY_RETURN_SITE),
        1 => Just(PolicyCode::RT_POLICY_ENTRY_ONLY),
    ];
    (policy, 0..3_u32, any::<u8>(), prop::bool::weighted(0.2), prop::bool::weighted(0.3)).prop_map(
        |(policy, tails, known, is_hooked_by_others, laps)| Region {
            policy,
            tails: TailsCode(tails),
            known,
            is_hooked_by_others,
            laps,
        },
    )
}

pub fn site() -> impl Strategy<Value = Site> {
    let kind = prop_oneof![
        5 => Just(ArrivalCode::RT_ARRIVAL_PLACED),
        3 => Just(ArrivalCode::RT_ARRIVAL_ASKED),
        1 => Just(ArrivalCode::RT_ARRIVAL_IMPOSSIBLE),
        1 => Just(ArrivalCode::RT_ARRIVAL_DROPPED),
    ];
    (kind, prop::option::of(0..REGIONS), any::<bool>()).prop_map(|(kind, fixed, catches)| Site { kind, fixed, catches })
}

pub fn op() -> impl Strategy<Value = Op> {
    let region = || prop::option::weighted(0.7, 0..REGIONS);
    let words = prop_oneof![1..20_u64, 1..4_u64];
    let call = (region(), words, 0..SITES, prop::bool::weighted(0.3), prop::option::of(0..SITES));
    let call = call.prop_map(|(region, words, site, only_returns, locals)| Op::Call {
        region,
        words,
        site,
        only_returns,
        locals,
    });
    let seen = prop_oneof![Just(Seen::Not), Just(Seen::AsLongjmp), Just(Seen::AsFinal)];
    prop_oneof![
        12 => call,
        3 => region().prop_map(|region| Op::TailCall { region }),
        2 => Just(Op::Lap),
        6 => Just(Op::Return),
        3 => (1..6_usize, seen).prop_map(|(activations, seen)| Op::Longjmp { activations, seen }),
        1 => Just(Op::Signal),
        2 => (0..3_usize).prop_map(|stack| Op::Switch { stack }),
        1 => (0..SITES).prop_map(|site| Op::Place { site }),
    ]
}

pub fn regions() -> impl Strategy<Value = [Region; REGIONS]> {
    prop::array::uniform6(region())
}

pub fn signal_top() -> impl Strategy<Value = u64> {
    prop_oneof![Just(OWN_TOP + 0x8000_0000), Just(OWN_TOP - 0x8000_0000)]
}
