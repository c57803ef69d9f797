//! The calls that still ran when recording was switched off, and those that run while it is on.

use rtrace_bpf::OpenThread;
use rtrace_model::{Call, Timestamp};

use super::call_of;

/// Gives each running call the time up to `end`, and each its part of its caller's.
pub fn calls_of(thread: &OpenThread, end: Timestamp) -> Vec<Call> {
    let mut calls: Vec<Call> = thread.calls.iter().map(call_of).collect();
    for call in &mut calls {
        call.duration = end.since(call.start);
    }
    for index in (0..calls.len()).rev() {
        let Call { parent, duration, .. } = calls[index];
        if let Some(caller) = calls[..index].iter_mut().rev().find(|caller| caller.id == parent) {
            caller.child += duration;
        }
    }
    calls.reverse();
    calls
}

/// What runs on a thread, seen while its frames may change: only what hangs together is kept.
///
/// Frames are copied while the thread goes on, so one may be there twice, half replaced by the next
/// call or left over. A frame is taken if its id was given out and is above that of the frame
/// before, and its caller is one taken before it, or none.
pub fn running_of(thread: &OpenThread, now: Timestamp) -> Vec<Call> {
    let mut running: Vec<Call> = Vec::new();
    for call in thread.calls.iter().map(call_of) {
        let above = running.last().is_none_or(|last| last.id < call.id);
        let depth = match call.parent {
            0 => Some(0),
            parent => running.iter().rev().find(|caller| caller.id == parent).map(|caller| caller.depth + 1),
        };
        let is_whole = above && call.id <= thread.thread.calls && call.start <= now && depth == Some(call.depth);
        if is_whole && call.location.0 == thread.thread.location {
            running.push(Call { duration: now.since(call.start), ..call });
        }
    }
    running
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::{CallRecord, EndingCode, OpenThreadRecord};

    use super::*;

    fn record(id: u64, parent: u64, start: u64, child: u64) -> CallRecord {
        CallRecord { id, parent, start, child, ending: EndingCode::RT_OPEN, ..CallRecord::default() }
    }

    #[test]
    fn a_callers_child_time_includes_the_call_that_still_runs() {
        let calls = vec![record(1, 0, 100, 30), record(4, 1, 150, 0), record(9, 0, 170, 0)];
        let thread = OpenThread { thread: OpenThreadRecord::default(), calls };
        let calls = calls_of(&thread, Timestamp(200));
        let seen: Vec<_> = calls.iter().map(|call| (call.id, call.duration, call.child)).collect();
        assert_eq!(seen, [(9, 30, 0), (4, 50, 0), (1, 100, 80)]);
    }

    #[test]
    fn frames_that_do_not_hang_together_are_left_out_of_a_glance() {
        let with_depth = |depth, record| CallRecord { depth, ..record };
        let calls = vec![
            record(3, 0, 100, 0),
            with_depth(1, record(5, 3, 150, 0)),
            with_depth(1, record(5, 3, 150, 0)),  // moved while it was read
            with_depth(2, record(7, 4, 160, 0)),  // its caller is not here
            with_depth(3, record(8, 5, 170, 0)),  // half of another call
            with_depth(2, record(9, 5, 300, 0)),  // began after the glance
            with_depth(2, record(99, 5, 180, 0)), // never given out
        ];
        let thread = OpenThread { thread: OpenThreadRecord { calls: 20, ..OpenThreadRecord::default() }, calls };
        let running = running_of(&thread, Timestamp(200));
        let seen: Vec<_> = running.iter().map(|call| (call.id, call.duration)).collect();
        assert_eq!(seen, [(3, 100), (5, 50)]);
    }
}
