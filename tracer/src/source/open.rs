//! The calls that still ran when recording was switched off.

use rtrace_bpf::OpenThread;
use rtrace_model::{Call, Timestamp};

use super::call_of;

/// Each running call, with the time up to `end`, its part of which goes to its caller, and with the
/// id of its call path.
pub fn calls_of(thread: &OpenThread, end: Timestamp) -> Vec<(Call, u32)> {
    let mut calls: Vec<(Call, u32)> = thread.calls.iter().map(|open| (call_of(&open.call), open.path)).collect();
    for (call, _) in &mut calls {
        call.duration = end.since(call.start);
    }
    for index in (0..calls.len()).rev() {
        let Call { parent, duration, .. } = calls[index].0;
        if let Some((caller, _)) = calls[..index].iter_mut().rev().find(|(caller, _)| caller.id == parent) {
            caller.child += duration;
        }
    }
    calls.reverse();
    calls
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::{CallRecord, EndingCode, OpenCallRecord, OpenThreadRecord};

    use super::*;

    fn record(id: u64, parent: u64, start: u64, child: u64) -> OpenCallRecord {
        let call = CallRecord { id, parent, start, child, ending: EndingCode::RT_OPEN, ..CallRecord::default() };
        OpenCallRecord { call, ..OpenCallRecord::default() }
    }

    #[test]
    fn a_callers_child_time_includes_the_call_that_still_runs() {
        let calls = vec![record(1, 0, 100, 30), record(4, 1, 150, 0), record(9, 0, 170, 0)];
        let thread = OpenThread { thread: OpenThreadRecord::default(), calls };
        let calls = calls_of(&thread, Timestamp(200));
        let seen: Vec<_> = calls.iter().map(|(call, _)| (call.id, call.duration, call.child)).collect();
        assert_eq!(seen, [(9, 30, 0), (4, 50, 0), (1, 100, 80)]);
    }
}
