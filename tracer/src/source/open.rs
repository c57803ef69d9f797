//! The calls that still ran when recording was switched off.

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
}
