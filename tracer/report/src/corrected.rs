//! Times without what tracing itself took, as far as that is known.
//!
//! Before it records, rtrace measures by kind of site what tracing a call costs: the part between
//! the call's time stamps (*inner*), which makes the call itself look longer, and all of it
//! (*whole*), which makes every caller look longer. For a call with the traced calls D below it:
//!
//! - inclusive time = as recorded − inner − Σ whole(D), over all D;
//! - exclusive time = as recorded − inner − Σ (whole(D) − inner(D)), over those D that it made
//!   itself: inner(D) is in the duration of D, which is not in the exclusive time.
//!
//! A call may cost more now than in the measurement: caches are colder, and the machine's speed drifts. The
//! error that is stated is how much the measurement depended on the call's surroundings, summed as if every call
//! were off to the same side, and a fifth of what is taken off. Where more than a third of a time would
//! have to be taken off, nothing is said.

use foldhash::HashMap;
use rtrace_exporters::{Cost, Costs, TraceSet, Traced};
use rtrace_model::{Measured, Timestamp, histogram_bucket};
use rtrace_profile::{Caller, Visited};

use super::key::RowId;
use super::time::{OfRow, Tracing};

/// Sums what tracing took by row.
pub(super) struct TracingSums<'a> {
    costs: Costs<'a>,
    /// Of calls that began earlier not all callees are known.
    from: Option<Timestamp>,
    rows: HashMap<RowId, TracingCost>,
    visits: u64,
}

/// What tracing took of a row.
#[derive(Clone, Copy, Default)]
struct TracingCost {
    inclusive: Tracing,
    exclusive: Tracing,
    /// Whether a call's callees are not all known, nor what tracing these took.
    is_cut: bool,
    /// The last visit that came by this row, so that recursion does not count twice.
    visit: u64,
}

/// The calls, in two parts: others, and those that end with the call that made them.
fn parts(calls: Visited<'_>, caller: Caller<'_, RowId>) -> [Traced; 2] {
    let of = |calls_of: u64, stamped, share_returns| Traced {
        region: calls.region(),
        location: calls.location(),
        site: calls.call_site(),
        calls: calls_of,
        stamped,
        share_returns,
    };
    match calls {
        Visited::One(Measured { call, .. }) | Visited::Around(Measured { call, .. }) => {
            let end = call.end();
            let of_caller = caller.timed().next_back().map(|open| open.end);
            let share_returns = end.is_some() && end == of_caller;
            [of(1, u64::from(call.duration.is_some_and(|duration| duration > 0)), share_returns), of(0, 0, true)]
        }
        Visited::Path(path) => {
            let instant = match &path.detail {
                Some(detail) => path.unseen.saturating_add(detail.instant),
                None if path.inclusive == 0 => path.calls,
                None => path.unseen + path.histogram[histogram_bucket(0)],
            };
            let stamped = path.calls.saturating_sub(instant);
            let sharing = path.detail.as_ref().map_or([0; 2], |of| [of.ended_with_caller, of.instant_with_caller]);
            let shared = sharing[0].saturating_add(sharing[1]);
            let others = of(path.calls.saturating_sub(shared), stamped.saturating_sub(sharing[0]), false);
            [others, of(shared, sharing[0], true)]
        }
    }
}

impl<'a> TracingSums<'a> {
    /// Of the calls that ended later than `from`, if that is given; absent where it is not known what tracing cost.
    pub(super) fn new(trace: &'a TraceSet, from: Option<Timestamp>) -> Option<TracingSums<'a>> {
        Some(TracingSums { costs: Costs::of(trace)?, from, rows: HashMap::default(), visits: 0 })
    }

    pub(super) fn add(&mut self, mark: RowId, calls: Visited<'_>, caller: Caller<'_, RowId>) {
        let [others, sharing] = parts(calls, caller);
        self.add_part(mark, &others, caller);
        if sharing.calls > 0 {
            self.add_part(mark, &sharing, caller);
        }
        let start = calls.single().map(|measured| measured.call.start);
        if self.from.zip(start).is_some_and(|(from, start)| start < from) {
            self.row(mark).is_cut = true;
        }
    }

    /// What tracing took of the rows of which that is known.
    pub(super) fn into_rows(self) -> std::collections::HashMap<RowId, OfRow> {
        let known = self.rows.into_iter().filter(|(_, row)| !row.is_cut);
        known.map(|(mark, row)| (mark, [row.inclusive, row.exclusive])).collect()
    }

    fn add_part(&mut self, mark: RowId, calls: &Traced, caller: Caller<'_, RowId>) {
        let cost = self.costs.cost(calls);
        let Cost { inner, whole, spread } = cost;
        self.visits += 1;
        let visit = self.visits;
        // Where a caller was not timed, the call is in the exclusive time of that one's caller.
        if let (Caller::Known(_), Some(direct)) = (caller, caller.timed().next_back()) {
            self.row(direct.mark).exclusive.add(cost.outer(), spread);
        }
        for open in caller.timed() {
            let above = self.row(open.mark);
            if std::mem::replace(&mut above.visit, visit) != visit {
                above.inclusive.add(whole, spread);
            }
        }
        let own = self.row(mark);
        own.exclusive.add(inner, spread);
        if own.visit != visit {
            own.inclusive.add(inner, spread);
        }
    }

    fn row(&mut self, mark: RowId) -> &mut TracingCost {
        self.rows.entry(mark).or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{CallCost, ExitPolicy, Header, Sink};
    use rtrace_profile::{CallReader as _, Walk};

    use super::*;
    use crate::grouping::Grouping;
    use crate::groups::Groups;
    use crate::measures::Measures;
    use crate::testing::{in_order, script, text, writer};
    use crate::{By, Sort};

    /// The table of these calls with their corrected times.
    fn corrected(trace: &TraceSet, calls: &str, sort: Sort) -> String {
        let groups = Groups::new(Grouping::new(&By::Function, trace).unwrap().unwrap());
        let mut walk = Walk::new(Measures::new(groups, trace, None));
        walk.chunk(&in_order(&script(calls)));
        walk.finish();
        let mut table = walk.visitor.rows.table(sort, &[]);
        let shown = [
            "calls",
            "exclusive",
            "exclusive corrected",
            "exclusive +-",
            "inclusive",
            "inclusive corrected",
            "inclusive +-",
        ];
        table.choose(&shown.map(str::to_owned)).unwrap();
        text(table)
    }

    fn cost(single_stepped: bool, inner: u64, whole: u64, spread: u64) -> CallCost {
        CallCost { single_stepped, written: false, exit: ExitPolicy::ReturnSite, inner, whole, spread }
    }

    fn trace(calibration: Vec<CallCost>) -> TraceSet {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.begin(&Header { calibration, ..Header::default() }).unwrap();
        writer.finish(&Default::default()).unwrap();
        TraceSet::open(folder.path()).unwrap()
    }

    #[test]
    fn a_call_loses_its_inner_cost_and_the_whole_cost_of_all_below_it() {
        let trace = trace(vec![cost(false, 10, 30, 1), cost(true, 50, 70, 2)]);
        // The definitions say that the entry of c is single-stepped.
        let calls = "thread 1\n a 0 1000\n  b 100 400\n   a 200 300\n  c 500 900";
        assert_eq!(
            corrected(&trace, calls, Sort::Exclusive),
            "\
calls  exclusive ns  corrected ns  +- ns  inclusive ns  corrected ns  +- ns  library    function
    1           400           350     12           400           350     12  libone.so  c
    2           400           340     17          1000           860     33  libone.so  a
    1           200           170      8           300           260     10  libone.so  b
"
        );
    }

    #[test]
    fn an_untimed_call_has_no_time_to_correct_and_costs_its_callers() {
        let trace = trace(vec![cost(false, 10, 30, 1), cost(true, 50, 70, 2)]);
        let calls = "thread 1\n a 0 1000\n  b 100 ?\n   a 200 300\n   d 400 500\n d 2000 2100";
        // What a call costs whose return has no probe was not measured here.
        assert_eq!(
            corrected(&trace, calls, Sort::Calls),
            "\
calls  exclusive ns  corrected ns  +- ns  inclusive ns  corrected ns  +- ns  library    function
    2           900           840     16          1000           930     17  libone.so  a
    2           200           180      6           200           180      6  libtwo.so  d
    1             -             -      -             -             -      -  libone.so  b
"
        );
    }

    #[test]
    fn a_call_that_ends_with_its_caller_shares_the_probe_of_its_return() {
        let trace = trace(vec![cost(false, 10, 30, 1)]);
        let calls = "thread 1\n a 0 1000\n  b 100 1000";
        // Of the 20 ns outside of its time stamps, 10 +- 10.
        assert_eq!(
            corrected(&trace, calls, Sort::Exclusive),
            "\
calls  exclusive ns  corrected ns  +- ns  inclusive ns  corrected ns  +- ns  library    function
    1           900           890     13           900           890     13  libone.so  b
    1           100            80     16          1000           970     18  libone.so  a
"
        );
    }

    #[test]
    fn where_tracing_took_more_than_a_third_nothing_is_said() {
        let trace = trace(vec![cost(false, 34, 60, 1)]);
        let calls = "thread 1\n a 0 101\n b 200 302";
        assert_eq!(
            corrected(&trace, calls, Sort::Name),
            "\
calls  exclusive ns  corrected ns  +- ns  inclusive ns  corrected ns  +- ns  library    function
    1          101!             -      -          101!             -      -  libone.so  a
    1          102!            68      7          102!            68      7  libone.so  b
"
        );
    }
}
