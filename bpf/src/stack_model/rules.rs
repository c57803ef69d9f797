//! What holds after any sequence of hits, also of those that no program could cause.

use std::collections::HashSet;

use crate::wire::{EndingCode, Limit, LossCode};

use super::thread::Thread;

/// Panics where the shadow stack does not keep its own rules at this time.
pub fn assert_rules(thread: &mut Thread, now: u64) {
    assert!(thread.is_intact());
    assert!(thread.counts_well());
    let frames = thread.frames();
    assert!(frames.len() <= Limit::RT_FRAMES.0 as usize);
    assert!(frames.is_sorted_by(|older, younger| older.id < younger.id));

    // Regions of an odd number open.
    assert_eq!(frames.iter().filter(|call| call.region % 2 == 1).count(), thread.openers() as usize);

    let mut ids = HashSet::new();
    for call in thread.records().iter().chain(&frames) {
        assert!(ids.insert(call.id), "id {} twice", call.id);
        assert!(call.parent < call.id && (1..=thread.calls()).contains(&call.id));
        assert_eq!(call.parent == 0, call.depth == 0);
        assert!(call.start.checked_add(call.duration).is_some_and(|end| end <= now));
        assert!(call.ending != EndingCode::RT_UNSEEN || (call.duration, call.child) == (0, 0));
    }
    let lost = thread.lost(LossCode::RT_LOSS_TOO_DEEP) + thread.lost(LossCode::RT_LOSS_NO_MEMORY);
    assert_eq!(ids.len() as u64 + u64::from(thread.left()) + lost, thread.calls());
}
