//! Takes the input as a list of probe hits, likely ones or not, and looks whether the shadow stack
//! keeps its rules: no call twice, none missing uncounted, nothing written beside it.

#![no_main]

#[path = "../../../bpf/src/stack_model/rules.rs"]
mod rules;
#[path = "../../../bpf/src/stack_model/thread.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod thread;
#[path = "../../../bpf/src/stack_model/world.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod world;

use libfuzzer_sys::fuzz_target;
use rtrace_bpf::wire::{self, ArrivalCode, PolicyCode, StackCode, TailsCode};

use self::rules::assert_rules;
use self::thread::{Function, Hit, Thread};
use self::world::TRAMPOLINE;

const STACKS: [u32; 5] = [
    StackCode::RT_STACK_UNKNOWN.0,
    StackCode::RT_STACK_SIGNAL.0,
    StackCode::RT_STACK_OWN.0,
    StackCode::RT_STACK_OTHER.0 | 1,
    StackCode::RT_STACK_OTHER.0 | 2,
];
const POLICIES: [PolicyCode; 4] = [
    PolicyCode::RT_POLICY_RETURN_SITE,
    PolicyCode::RT_POLICY_RETURN_SITE,
    PolicyCode::RT_POLICY_NEVER,
    PolicyCode::RT_POLICY_ENTRY_ONLY,
];
const TAILS: [TailsCode; 4] =
    [TailsCode::RT_TAILS_NEVER, TailsCode::RT_TAILS_KNOWN, TailsCode::RT_TAILS_ANYWHERE, TailsCode::RT_TAILS_DOUBTFUL];
const ARRIVALS: [ArrivalCode; 5] = [
    ArrivalCode::RT_ARRIVAL_ASKED,
    ArrivalCode::RT_ARRIVAL_PLACED,
    ArrivalCode::RT_ARRIVAL_SKIP,
    ArrivalCode::RT_ARRIVAL_IMPOSSIBLE,
    ArrivalCode::RT_ARRIVAL_DROPPED,
];

/// Slots that can be read.
const READABLE: u64 = 64;

/// Bounds the time of one input.
const MOST_OPERATIONS: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let Some((memory, operations)) = bytes.split_first() else { return };
    let mut thread = if *memory == 0 { Thread::short_of_memory() } else { Thread::new() };
    (0..READABLE).for_each(|slot| thread.world.write(8 * slot, 0));
    let mut now = 0;
    let (operations, _) = operations.as_chunks();
    for (step, &operation) in operations.iter().take(MOST_OPERATIONS).enumerate() {
        run(&mut thread, operation, &mut now);
        if step % 32 == 0 {
            assert_rules(&mut thread, now);
        }
    }
    assert_rules(&mut thread, now);
    thread.abandon(now);
    assert!(thread.frames().is_empty() && thread.left() == 0);
    assert_rules(&mut thread, now);
});

fn run(thread: &mut Thread, [kind, place, word, site, tick]: [u8; 5], now: &mut u64) {
    *now += u64::from(tick);
    let slot = match place {
        0..240 => 8 * u64::from(place % 80),
        _ => u64::MAX - u64::from(255 - place),
    };
    let hit = Hit { slot, stack: pick(STACKS, site), now: *now };
    let region = u32::from(site / 32 % 4);
    let (policy, tails) = (pick(POLICIES, site / 8), pick(TAILS, word / 8));
    let function = Function { region, policy, tails, laps: word / 64 == 3, pops: u32::from(tick / 64) };
    let address = u64::from(word % 8);
    match kind {
        0..120 => {
            match word % 8 {
                0..6 => write(thread, slot, address),
                6 => write(thread, slot, TRAMPOLINE),
                _ => {}
            }
            thread.enter(hit, function);
        }
        120..216 => {
            thread.arrive(hit, address, site / 128 != 0, tick % 17);
        }
        216..230 => write(thread, slot, address),
        230..238 => thread.world.hook(slot),
        238..246 => thread.world.set_arrival(address, pick(ARRIVALS, place), u32::from(site % 4)),
        246..250 => thread.world.add_tail(region, u32::from(word % 4)),
        // Many calls, each deeper than the one before: seldom, as it takes long.
        250..252 => {
            for call in 0..u64::from(word) * 4 {
                thread.enter(Hit { slot: 100_000 - 8 * call, ..hit }, function);
            }
        }
        _ => thread.abandon(*now),
    }
}

fn write(thread: &Thread, slot: u64, word: u64) {
    if slot < 8 * READABLE {
        thread.world.write(slot, word);
    }
}

fn pick<T: Copy, const N: usize>(choices: [T; N], byte: u8) -> T {
    choices[usize::from(byte) % N]
}
