//! The calls that still ran when recording was switched off, and those that run while it is on.

use rtrace_bpf::OpenThread;
use rtrace_model::{Batch, Call, Ending, Reading, Timestamp};

use super::{call_of, reading_of};

/// The calls that still run on a thread at the end of the recording, the innermost first, as if they
/// ended then.
pub struct OpenCalls {
    calls: Batch,
    /// Of each call, the id of its call path, where calls are folded.
    paths: Vec<u32>,
    /// Of each call, whether it has a record of its own.
    has_record: Vec<bool>,
}

impl OpenCalls {
    /// `calls`: those of the thread. Gives each call that runs the time up to `end`, which is part of its caller's, as are its counts. Behind
    /// these stand calls that were left before; what they took is with their callers already.
    pub fn of(thread: &OpenThread, mut calls: Vec<Call>, counters: usize, end: Timestamp) -> OpenCalls {
        for call in calls.iter_mut().filter(|call| call.ending == Ending::Open) {
            call.duration = Some(end.since(call.start));
        }
        let mut readings: Vec<Reading> = thread.readings.iter().map(reading_of).collect();
        let mut has_record: Vec<bool> = thread.calls.iter().map(|open| open.has_record != 0).collect();
        for index in (0..calls.len()).rev() {
            let caller_of =
                |index: usize| calls[..index].iter().rposition(|caller: &Call| caller.id == calls[index].parent);
            let Some(caller) = caller_of(index).filter(|_| calls[index].ending != Ending::Unwound) else { continue };
            has_record[caller] |= has_record[index];
            // An untimed call may have ended: then this one is within the caller of that.
            let timed = std::iter::successors(Some(caller), |&caller| caller_of(caller));
            let timed = timed.into_iter().find(|&caller| calls[caller].is_timed());
            let (Some(caller), Some(duration)) = (timed, calls[index].duration) else { continue };
            calls[caller].child += duration;
            for counter in 0..counters {
                readings[caller * counters + counter].child += readings[index * counters + counter].inclusive;
            }
        }
        calls.reverse();
        has_record.reverse();
        let readings = readings.chunks(counters.max(1)).rev().flatten().copied().collect();
        let paths = thread.calls.iter().rev().map(|open| open.path).collect();
        OpenCalls { calls: Batch::measured(calls, counters, readings), paths, has_record }
    }

    /// The calls with what they counted and the ids of their paths.
    pub fn with_paths(&self) -> impl Iterator<Item = (&Call, &[Reading], u32)> {
        let calls = self.calls.iter().enumerate().zip(&self.paths);
        calls.map(|((index, call), &path)| (call, self.calls.readings(index), path))
    }

    /// Those that have a record of their own.
    pub fn recorded(&self) -> Batch {
        self.calls.selected((0..self.calls.len()).filter(|&index| self.has_record[index]))
    }
}

/// What runs on a thread, seen while its frames may change: only what hangs together is kept.
///
/// Frames are copied while the thread goes on, so one may be there twice, half replaced by the next
/// call or left over. A frame is taken if its id was given out and is above that of the frame
/// before, and its caller is one taken before it, or none.
pub fn running_of(thread: &OpenThread, now: Timestamp) -> Vec<Call> {
    let mut running: Vec<Call> = Vec::new();
    for call in thread.calls.iter().map(|open| call_of(&open.call)) {
        let above = running.last().is_none_or(|last| last.id < call.id);
        let depth = match call.parent {
            0 => Some(0),
            parent => running.iter().rev().find(|caller| caller.id == parent).map(|caller| caller.depth + 1),
        };
        let is_whole = call.ending == Ending::Open
            && above
            && call.id <= thread.thread.calls
            && call.start <= now
            && depth == Some(call.depth);
        if is_whole && call.location.0 == thread.thread.location {
            running.push(Call { duration: Some(now.since(call.start)), ..call });
        }
    }
    running
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::{CallRecord, EndingCode, OpenCallRecord, OpenThreadRecord, ReadingRecord};

    use super::*;

    fn record(id: u64, parent: u64, start: u64, child: u64) -> CallRecord {
        CallRecord { id, parent, start, child, ending: EndingCode::RT_OPEN, ..CallRecord::default() }
    }

    fn open(calls: Vec<CallRecord>) -> Vec<OpenCallRecord> {
        calls.into_iter().map(|call| OpenCallRecord { call, ..OpenCallRecord::default() }).collect()
    }

    fn of(thread: &OpenThread, counters: usize) -> OpenCalls {
        let calls = thread.calls.iter().map(|open| call_of(&open.call)).collect();
        OpenCalls::of(thread, calls, counters, Timestamp(200))
    }

    #[test]
    fn a_callers_child_time_includes_the_call_that_still_runs() {
        let calls = vec![record(1, 0, 100, 30), record(4, 1, 150, 0), record(9, 0, 170, 0)];
        let count = |inclusive, child| ReadingRecord { inclusive, child };
        let readings = vec![count(10, 2), count(3, 0), count(1, 0)];
        let thread =
            OpenThread { thread: OpenThreadRecord::default(), calls: open(calls), readings, values: Vec::new() };
        let calls = of(&thread, 1).calls;
        let seen: Vec<_> = calls.iter().map(|call| (call.id, call.duration, call.child)).collect();
        assert_eq!(seen, [(9, Some(30), 0), (4, Some(50), 0), (1, Some(100), 80)]);
        let counted: Vec<_> = (0..3).map(|index| calls.readings(index)[0].exclusive()).collect();
        assert_eq!(counted, [1, 3, 5]);
    }

    #[test]
    fn a_call_within_an_untimed_one_takes_time_of_the_nearest_timed_caller() {
        let untimed = CallRecord { ending: EndingCode::RT_UNSEEN, ..record(4, 1, 150, 7) };
        let calls = vec![record(1, 0, 100, 30), untimed, record(9, 4, 170, 0)];
        let count = |inclusive| ReadingRecord { inclusive, child: 0 };
        let readings = vec![count(10), count(5), count(3)];
        let thread =
            OpenThread { thread: OpenThreadRecord::default(), calls: open(calls), readings, values: Vec::new() };
        let calls = of(&thread, 1).calls;
        let seen: Vec<_> = calls.iter().map(|call| (call.id, call.duration, call.child)).collect();
        assert_eq!(seen, [(9, Some(30), 0), (4, None, 7), (1, Some(100), 60)]);
        let counted: Vec<_> = (0..3).map(|index| calls.readings(index).first().map(|of| of.exclusive())).collect();
        assert_eq!(counted, [Some(3), None, Some(7)]);
    }

    #[test]
    fn frames_that_do_not_hang_together_are_left_out_of_a_snapshot() {
        let with_depth = |depth, record| CallRecord { depth, ..record };
        let calls = vec![
            record(3, 0, 100, 0),
            with_depth(1, record(5, 3, 150, 0)),
            with_depth(1, record(5, 3, 150, 0)),  // moved while it was read
            with_depth(2, record(7, 4, 160, 0)),  // its caller is not here
            with_depth(3, record(8, 5, 170, 0)),  // half of another call
            with_depth(2, record(9, 5, 300, 0)),  // began after the snapshot
            with_depth(2, record(99, 5, 180, 0)), // never given out
        ];
        let thread = OpenThread {
            thread: OpenThreadRecord { calls: 20, ..OpenThreadRecord::default() },
            calls: open(calls),
            readings: Vec::new(),
            values: Vec::new(),
        };
        let running = running_of(&thread, Timestamp(200));
        let seen: Vec<_> = running.iter().map(|call| (call.id, call.duration)).collect();
        assert_eq!(seen, [(3, Some(100)), (5, Some(50))]);
    }
}
