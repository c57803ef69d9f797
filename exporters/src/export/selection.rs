//! Which calls of a trace are exported.

use std::collections::HashSet;

use rtrace_model::{Batch, Call, RegionId, Timestamp};

/// Which calls of a trace are exported; the default is all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only calls that ran at this time or later.
    pub from: Option<Timestamp>,
    /// Only calls that ran before this time.
    pub to: Option<Timestamp>,
    /// Only calls of these regions.
    pub regions: Option<HashSet<RegionId>>,
}

impl Selection {
    /// Whether the call is one of them; calls that reach into the time span are kept whole.
    pub fn keeps(&self, call: &Call) -> bool {
        self.from.is_none_or(|from| call.known_until() > from || call.start >= from)
            && self.to.is_none_or(|to| call.start < to)
            && self.regions.as_ref().is_none_or(|regions| regions.contains(&call.region))
    }

    /// Whether the time is in the span, for what has no duration.
    pub(super) fn spans(&self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }

    /// Whether no call is left out.
    pub fn is_all(&self) -> bool {
        self.regions.is_none() && self.from.is_none() && self.to.is_none()
    }

    /// Leaves in a batch what is kept.
    pub(super) fn apply(&self, batch: Batch) -> Batch {
        if self.is_all() {
            return batch;
        }
        batch.selected((0..batch.len()).filter(|&index| self.keeps(&batch[index])))
    }
}

#[cfg(test)]
mod tests {
    use rtrace_model::{Ending, LocationId};

    use super::*;

    fn call(start: u64, duration: u64) -> Call {
        Call {
            location: LocationId(1),
            region: RegionId(2),
            start: Timestamp(start),
            duration: Some(duration),
            ..Call::default()
        }
    }

    #[test]
    fn calls_that_reach_into_the_span_are_kept() {
        let span = Selection { from: Some(Timestamp(10)), to: Some(Timestamp(20)), ..Selection::default() };
        let kept = [call(0, 11), call(10, 0), call(19, 1), call(15, 100), call(0, 100)];
        let left_out = [call(0, 10), call(9, 1), call(20, 0), call(20, 5)];
        assert!(kept.iter().all(|call| span.keeps(call)));
        assert!(!left_out.iter().any(|call| span.keeps(call)));
        let untimed = |start| Call { duration: None, ending: Ending::Unseen, ..call(start, 0) };
        assert_eq!([9, 10, 19, 20].map(|start| span.keeps(&untimed(start))), [false, true, true, false]);
        assert_eq!([9, 10, 19, 20].map(|time| span.spans(Timestamp(time))), [false, true, true, false]);
    }

    #[test]
    fn a_batch_keeps_the_readings_of_its_calls() {
        use rtrace_model::Reading;
        let reading = |inclusive| Reading { inclusive, child: 0 };
        let batch = Batch::measured(vec![call(0, 1), call(50, 1)], 1, vec![reading(7), reading(8)]);
        let late = Selection { from: Some(Timestamp(10)), ..Selection::default() };
        let kept = late.apply(batch);
        assert_eq!((kept.len(), kept.readings(0)), (1, [reading(8)].as_slice()));
    }
}
