//! Takes the input as a list of probe hits, likely ones or not, and looks whether the shadow stack
//! keeps its rules: no call twice, none missing uncounted, nothing written beside it.

#![no_main]

#[path = "../../../bpf/src/stack_model/memory.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod memory;
#[path = "../../../bpf/src/stack_model/thread.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod thread;

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use rtrace_bpf::wire::{self, LossCode, PolicyCode};

use self::memory::TRAMPOLINE;
use self::thread::{Hit, Thread};

/// Unknown, signal, own, and two others: `enum rt_stack_key` of `frame.h`.
const STACKS: [u32; 5] = [0, 1, 2, 0x8000_0001, 0x8000_0002];
const POLICIES: [PolicyCode; 4] = [
    PolicyCode::RT_POLICY_URETPROBE,
    PolicyCode::RT_POLICY_RET_SITE,
    PolicyCode::RT_POLICY_ENTRY_ONLY,
    PolicyCode::RT_POLICY_INSTANT,
];
/// Limits of `rtrace.h`.
const FRAMES: usize = 1024;
const HOOKED_MAX: u32 = 56;

/// Slots that can be read.
const READABLE: u64 = 64;

/// Bounds the time of one input.
const MOST_OPERATIONS: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let Some((memory, operations)) = bytes.split_first() else { return };
    let mut thread = if *memory == 0 { Thread::short_of_memory() } else { Thread::new() };
    (0..READABLE).for_each(|slot| thread.memory.write(slot, 0));
    let mut now = 0;
    let (operations, _) = operations.as_chunks();
    for (step, &operation) in operations.iter().take(MOST_OPERATIONS).enumerate() {
        run(&mut thread, operation, &mut now);
        if step % 32 == 0 {
            check_rules(&mut thread, now);
        }
    }
    check_rules(&mut thread, now);
    thread.abandon(now);
    assert!(thread.frames().is_empty());
    check_rules(&mut thread, now);
});

fn run(thread: &mut Thread, [kind, slot, word, site, tick]: [u8; 5], now: &mut u64) {
    *now += u64::from(tick);
    let slot = match slot {
        0..240 => u64::from(slot % 80),
        _ => u64::MAX - u64::from(255 - slot),
    };
    let hit = Hit { slot, stack: pick(STACKS, site), now: *now };
    let policy = pick(POLICIES, site / 8);
    let region = u32::from(site / 32 % 4);
    match kind {
        0..144 => {
            match word % 8 {
                0..4 => write(thread, slot, u64::from(word)),
                4 => write(thread, slot, TRAMPOLINE),
                _ => {}
            }
            thread.enter(hit, region, policy);
        }
        144..224 => {
            thread.exit(hit, region);
        }
        224..250 => write(thread, slot, u64::from(word)),
        // Many calls, each deeper than the one before: seldom, as it takes long.
        250..252 => {
            for call in 0..u64::from(word) * 4 {
                thread.enter(Hit { slot: 100_000 - call, ..hit }, region, policy);
            }
        }
        _ => thread.abandon(*now),
    }
}

fn write(thread: &Thread, slot: u64, word: u64) {
    if slot < READABLE {
        thread.memory.write(slot, word);
    }
}

fn pick<T: Copy, const N: usize>(choices: [T; N], byte: u8) -> T {
    choices[usize::from(byte) % N]
}

/// What holds after any sequence of hits.
fn check_rules(thread: &mut Thread, now: u64) {
    assert!(thread.is_intact());
    let frames = thread.frames();
    assert!(frames.len() <= FRAMES);
    assert_eq!(frames.iter().filter(|frame| frame.hooked).count(), thread.hooked() as usize);
    assert!(thread.hooked() <= HOOKED_MAX);
    assert!(frames.is_sorted_by(|older, younger| older.call.id < younger.call.id));

    let mut ids = HashSet::new();
    for call in thread.records().iter().chain(frames.iter().map(|frame| &frame.call)) {
        assert!(ids.insert(call.id), "id {} twice", call.id);
        assert!(call.parent < call.id && (1..=thread.calls()).contains(&call.id));
        assert_eq!(call.parent == 0, call.depth == 0);
        assert!(call.start.checked_add(call.duration).is_some_and(|end| end <= now));
    }
    let lost = thread.lost(LossCode::RT_LOSS_TOO_DEEP) + thread.lost(LossCode::RT_LOSS_NO_MEMORY);
    assert_eq!(ids.len() as u64 + lost, thread.calls());
}
