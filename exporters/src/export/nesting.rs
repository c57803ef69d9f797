//! Enters and exits of one location in their order, from its calls in the order of their enters.
//!
//! A call that was not timed is left together with its last callee, and without one where it is
//! entered.
//!
//! The open calls form a stack. Before an enter, all calls are left that are not callers of it: up
//! to its caller where that is known, else all that are not less deep or ended before. Times never
//! run backward: where a damaged trace says that a call ended after its caller, the caller's exit
//! is moved to the callee's.

use rtrace_model::{Call, Measured, Timestamp};

use super::ExportError;

/// What is done with each enter and exit.
pub(super) trait Visitor {
    /// A call begins, made by the last of `callers`, the outermost first.
    fn enter(&mut self, time: Timestamp, measured: &Measured, callers: &[Measured]) -> Result<(), ExportError>;

    /// The call entered last, of those not yet left, ends.
    ///
    /// Where callees were left out of the selection, what they took is the call's own here: its
    /// `child` and those of its readings count the callees that were visited.
    fn leave(&mut self, time: Timestamp, measured: &Measured) -> Result<(), ExportError>;
}

/// What was found out about a location's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Calls visited.
    pub(super) calls: u64,
    /// Calls whose caller is not among the calls.
    pub(super) lost_callers: u64,
    /// Times moved so that none runs backward.
    pub(super) moved: u64,
}

/// Visits the calls of one location.
///
/// With `splits_trees`, the calls are a selection that may leave out callees of calls that it keeps.
pub(super) fn visit<V: Visitor + ?Sized>(
    calls: impl Iterator<Item = Result<Measured, ExportError>>,
    splits_trees: bool,
    visitor: &mut V,
) -> Result<Findings, ExportError> {
    let mut stack = Stack { open: Vec::new(), now: Timestamp(0), splits_trees, visitor, findings: Findings::default() };
    for measured in calls {
        stack.enter(measured?)?;
    }
    stack.leave_to(0)?;
    Ok(stack.findings)
}

struct Stack<'v, V: ?Sized> {
    open: Vec<Measured>,
    now: Timestamp,
    splits_trees: bool,
    visitor: &'v mut V,
    findings: Findings,
}

impl<V: Visitor + ?Sized> Stack<'_, V> {
    fn enter(&mut self, mut measured: Measured) -> Result<(), ExportError> {
        let callers = self.callers(&measured.call);
        self.leave_to(callers)?;
        let time = self.at(measured.call.start);
        self.findings.calls += 1;
        self.visitor.enter(time, &measured, &self.open)?;
        if self.splits_trees {
            measured.call.child = 0;
            measured.readings.iter_mut().for_each(|reading| reading.child = 0);
        }
        self.open.push(measured);
        Ok(())
    }

    /// Number of open calls that enclose one that is about to begin.
    fn callers(&mut self, call: &Call) -> usize {
        if call.parent == 0 {
            return 0;
        }
        if let Ok(place) = self.open.binary_search_by_key(&call.parent, |open| open.call.id) {
            return place + 1;
        }
        self.findings.lost_callers += 1;
        let encloses = |open: &Measured| open.call.depth < call.depth && open.call.known_until() > call.start;
        self.open.iter().rposition(encloses).map_or(0, |place| place + 1)
    }

    fn leave_to(&mut self, depth: usize) -> Result<(), ExportError> {
        while self.open.len() > depth {
            let Some(measured) = self.open.pop() else { break };
            let time = measured.call.end().map_or(self.now, |end| self.at(end));
            self.visitor.leave(time, &measured)?;
            if self.splits_trees {
                self.add_to_caller(&measured);
            }
        }
        Ok(())
    }

    /// Adds what a call took to the callees of the nearest caller that was timed.
    fn add_to_caller(&mut self, callee: &Measured) {
        let Some(duration) = callee.call.duration else { return };
        for caller in self.open.iter_mut().rev() {
            caller.call.child = caller.call.child.saturating_add(duration);
            if caller.call.is_timed() {
                for (sum, reading) in caller.readings.iter_mut().zip(&callee.readings) {
                    sum.child = sum.child.saturating_add(reading.inclusive);
                }
                break;
            }
        }
    }

    /// The time, or the latest one so far if that is later.
    fn at(&mut self, time: Timestamp) -> Timestamp {
        self.findings.moved += u64::from(time < self.now);
        self.now = self.now.max(time);
        self.now
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Ending, LocationId};

    use super::*;

    const UNTIMED: u64 = u64::MAX - 1;

    /// Writes `+id@time` and `-id@time`, with the child time at exits.
    #[derive(Default)]
    struct Text(Vec<String>);

    impl Visitor for Text {
        fn enter(&mut self, time: Timestamp, measured: &Measured, callers: &[Measured]) -> Result<(), ExportError> {
            let caller = callers.last().map_or(0, |caller| caller.call.id);
            self.0.push(format!("{caller}+{}@{}", measured.call.id, time.0));
            Ok(())
        }

        fn leave(&mut self, time: Timestamp, measured: &Measured) -> Result<(), ExportError> {
            self.0.push(format!("-{}@{}({})", measured.call.id, time.0, measured.call.child));
            Ok(())
        }
    }

    /// id, parent, depth, start, duration: [`UNTIMED`] where there is none
    fn walk(calls: &[(u64, u64, u32, u64, u64)], splits_trees: bool) -> (String, Findings) {
        let calls = calls.iter().map(|&(id, parent, depth, start, duration)| {
            let (location, child) = (LocationId(1), 77);
            let (duration, ending) = match duration {
                UNTIMED => (None, Ending::Unseen),
                duration => (Some(duration), Ending::Returned),
            };
            let start = Timestamp(start);
            let call = Call { location, id, parent, depth, start, duration, child, ending, ..Call::default() };
            Ok(Measured { call, readings: Box::default(), values: None })
        });
        let mut text = Text::default();
        let findings = visit(calls, splits_trees, &mut text).unwrap();
        (text.0.join(" "), findings)
    }

    #[test]
    fn calls_of_an_instant_nest_as_recorded() {
        let (text, findings) = walk(&[(1, 0, 0, 5, 0), (2, 1, 1, 5, 0), (3, 1, 1, 5, 0), (4, 0, 0, 5, 0)], false);
        assert_eq!(text, "0+1@5 1+2@5 -2@5(77) 1+3@5 -3@5(77) -1@5(77) 0+4@5 -4@5(77)");
        assert_eq!(findings, Findings { calls: 4, lost_callers: 0, moved: 0 });
    }

    #[test]
    fn a_lost_caller_leaves_its_callees_to_its_own_caller() {
        // 2, of depth 1, is lost; 5 follows after its end, made by 4, which is lost, too.
        let calls = [(1, 0, 0, 0, 100), (3, 2, 2, 10, 5), (5, 4, 2, 20, 5)];
        let (text, findings) = walk(&calls, false);
        assert_eq!(text, "0+1@0 1+3@10 -3@15(77) 1+5@20 -5@25(77) -1@100(77)");
        assert_eq!(findings.lost_callers, 2);
    }

    #[test]
    fn what_left_out_callees_took_is_the_callers_own() {
        let (text, _) = walk(&[(1, 0, 0, 0, 100), (3, 2, 2, 10, 5), (4, 1, 1, 50, 7)], true);
        assert!(text.ends_with("-1@100(12)"), "{text}");
    }

    #[test]
    fn an_untimed_call_is_left_with_its_last_callee_or_where_it_is_entered() {
        let calls = [(1, 0, 0, 0, 100), (2, 1, 1, 10, UNTIMED), (3, 2, 2, 20, 30), (4, 1, 1, 60, UNTIMED)];
        let (text, findings) = walk(&calls, false);
        assert_eq!(text, "0+1@0 1+2@10 2+3@20 -3@50(77) -2@50(77) 1+4@60 -4@60(77) -1@100(77)");
        assert_eq!(findings, Findings { calls: 4, lost_callers: 0, moved: 0 });
        let (text, _) = walk(&calls, true);
        assert!(text.ends_with("-2@50(30) 1+4@60 -4@60(0) -1@100(30)"), "{text}");
    }

    #[test]
    fn times_of_a_damaged_trace_do_not_run_backward() {
        let (text, findings) = walk(&[(1, 0, 0, 10, 5), (2, 1, 1, 12, 9), (3, 0, 0, 0, u64::MAX)], false);
        assert_eq!(text, "0+1@10 1+2@12 -2@21(77) -1@21(77) 0+3@21 -3@18446744073709551615(77)");
        assert_eq!(findings.moved, 2);
    }
}
