//! The calls that still ran when recording was switched off.

use rtrace_bpf::OpenThread;
use rtrace_model::{Batch, Call, Reading, Timestamp};

use super::{call_of, reading_of};

/// Gives each running call the time up to `end`, and each its part of its caller's time and counts.
pub fn calls_of(thread: &OpenThread, counters: usize, end: Timestamp) -> Batch {
    let mut calls: Vec<Call> = thread.calls.iter().map(call_of).collect();
    for call in &mut calls {
        call.duration = end.since(call.start);
    }
    let mut readings: Vec<Reading> = thread.readings.iter().map(reading_of).collect();
    for index in (0..calls.len()).rev() {
        let Call { parent, duration, .. } = calls[index];
        let Some(caller) = calls[..index].iter().rposition(|caller| caller.id == parent) else { continue };
        calls[caller].child += duration;
        for counter in 0..counters {
            readings[caller * counters + counter].child += readings[index * counters + counter].inclusive;
        }
    }
    // The innermost first, as if they ended now.
    calls.reverse();
    let readings = readings.chunks(counters.max(1)).rev().flatten().copied().collect();
    Batch::measured(calls, counters, readings)
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::{CallRecord, EndingCode, OpenThreadRecord, ReadingRecord};

    use super::*;

    fn record(id: u64, parent: u64, start: u64, child: u64) -> CallRecord {
        CallRecord { id, parent, start, child, ending: EndingCode::RT_OPEN, ..CallRecord::default() }
    }

    #[test]
    fn a_callers_child_time_includes_the_call_that_still_runs() {
        let calls = vec![record(1, 0, 100, 30), record(4, 1, 150, 0), record(9, 0, 170, 0)];
        let count = |inclusive, child| ReadingRecord { inclusive, child };
        let readings = vec![count(10, 2), count(3, 0), count(1, 0)];
        let thread = OpenThread { thread: OpenThreadRecord::default(), calls, readings };
        let calls = calls_of(&thread, 1, Timestamp(200));
        let seen: Vec<_> = calls.iter().map(|call| (call.id, call.duration, call.child)).collect();
        assert_eq!(seen, [(9, 30, 0), (4, 50, 0), (1, 100, 80)]);
        let counted: Vec<_> = (0..3).map(|index| calls.readings(index)[0].exclusive()).collect();
        assert_eq!(counted, [1, 3, 5]);
    }
}
