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
//! The probes run on the CPU of the thread, so that the same goes for counted CPU time.
//!
//! A call that ends at the same moment as the call that made it shares that one's probe: its caller only
//! returns from there. How much of what tracing takes outside of the time stamps belongs to the return
//! was not measured; half of it is taken off, and the other half is uncertain.
//!
//! A call may cost more now than in the measurement: caches are colder, and the machine's speed drifts. The
//! error that is stated is how much the measurement depended on the call's surroundings, summed as if every call
//! were off to the same side, and a fifth of what is taken off. Where more than a third of a time would
//! have to be taken off, nothing is said.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Call, CallCost, Library, Location, LocationId, PathProfile, Region, RegionId, histogram_bucket};

use super::table::{Column, Shown, Table, Value};
use super::walk::{Caller, Visitor};
use super::{Error, Sort};

/// The part of what is taken off that is uncertain, for the machine's speed: one of so many.
const MARGIN: u64 = 5;

/// The most of a recorded time that is taken off: one of so many.
const MOST: u64 = 3;

/// Sums times and their corrections by function.
pub(super) struct Corrected<'a> {
    trace: &'a TraceSet,
    rows: HashMap<RegionId, Row>,
    visits: u64,
}

#[derive(Clone, Copy, Default)]
struct Row {
    calls: u64,
    /// Of these, calls whose time is known.
    timed: u64,
    inclusive: Time,
    exclusive: Time,
    /// The last visit that came by this row, so that recursion does not count twice.
    visit: u64,
}

/// A sum of times, and what is known of its error.
#[derive(Clone, Copy, Default)]
pub(super) struct Time {
    recorded: u64,
    tracing: u64,
    error: u64,
}

impl Time {
    fn subtract(&mut self, tracing: u64, error: u64) {
        self.tracing = self.tracing.saturating_add(tracing);
        self.error = self.error.saturating_add(error);
    }

    fn corrected(self) -> u64 {
        self.recorded.saturating_sub(self.tracing)
    }

    /// Another time of the same calls, such as on a CPU, of which tracing took the same.
    pub(super) fn of(self, recorded: u64) -> Time {
        Time { recorded, ..self }
    }

    /// Whether tracing took too much of it to say what is left.
    fn is_withheld(self) -> bool {
        self.tracing > self.recorded / MOST
    }

    /// As recorded, corrected, and the error.
    pub(super) fn values(self) -> [Value; 3] {
        let recorded = Value::Time(self.recorded);
        if self.is_withheld() {
            return [recorded, Value::Absent, Value::Absent];
        }
        [recorded, Value::Time(self.corrected()), Value::Time(self.error.saturating_add(self.tracing / MARGIN))]
    }
}

/// Calls that are looked at together: of one region on one location, made by one call path.
struct Calls {
    region: RegionId,
    location: LocationId,
    calls: u64,
    /// Of these, calls whose time is known.
    timed: u64,
    /// Of these, calls between two time stamps: not those of which one probe saw both ends, which
    /// take 0 ns.
    stamped: u64,
    /// Whether they end with the call that made them, at the same probe.
    share_returns: bool,
    inclusive: u64,
    exclusive: u64,
}

impl Visitor for Corrected<'_> {
    type Mark = u32;

    fn visit(&mut self, call: &Call, caller: Caller<'_, u32>) -> u32 {
        let end = call.end();
        let of_caller = caller.timed().next_back().map(|open| open.end);
        self.add(
            &Calls {
                region: call.region,
                location: call.location,
                calls: 1,
                share_returns: end.is_some() && end == of_caller,
                timed: u64::from(call.is_timed()),
                stamped: u64::from(call.duration.is_some_and(|duration| duration > 0)),
                inclusive: call.duration.unwrap_or(0),
                exclusive: call.exclusive().unwrap_or(0),
            },
            caller,
        )
    }

    fn visit_path(&mut self, path: &PathProfile, caller: Caller<'_, u32>) -> u32 {
        let instant = if path.inclusive == 0 { path.calls } else { path.unseen + path.histogram[histogram_bucket(0)] };
        self.add(
            &Calls {
                region: path.region,
                location: path.location,
                calls: path.calls,
                share_returns: false,
                timed: path.calls.saturating_sub(path.unseen),
                stamped: path.calls.saturating_sub(instant),
                inclusive: path.inclusive,
                exclusive: path.exclusive,
            },
            caller,
        )
    }
}

impl<'a> Corrected<'a> {
    /// # Errors
    /// The recording was made without a measurement.
    pub(super) fn new(trace: &'a TraceSet) -> Result<Corrected<'a>, Error> {
        let is_known = |location: &Location| !costs(trace, location.id).is_empty();
        if !trace.locations().iter().all(is_known) {
            return Err(Error::NotCalibrated);
        }
        Ok(Corrected { trace, rows: HashMap::new(), visits: 0 })
    }

    fn add(&mut self, calls: &Calls, caller: Caller<'_, u32>) -> u32 {
        self.visits += 1;
        let (inner, whole, spread) = self.cost(calls);
        let own = self.row(calls.region);
        own.calls += calls.calls;
        own.timed += calls.timed;
        own.exclusive.recorded = own.exclusive.recorded.saturating_add(calls.exclusive);
        own.exclusive.subtract(inner, spread);
        // Where a caller was not timed, the call is in the exclusive time of that one's caller.
        if let (Caller::Known(_), Some(direct)) = (caller, caller.timed().next_back()) {
            self.row(RegionId(direct.mark)).exclusive.subtract(whole.saturating_sub(inner), spread);
        }
        for open in caller.timed() {
            let visit = self.visits;
            let above = self.row(RegionId(open.mark));
            if std::mem::replace(&mut above.visit, visit) != visit {
                above.inclusive.subtract(whole, spread);
            }
        }
        let visit = self.visits;
        let own = self.row(calls.region);
        if own.visit != visit {
            own.inclusive.recorded = own.inclusive.recorded.saturating_add(calls.inclusive);
            own.inclusive.subtract(inner, spread);
        }
        calls.region.0
    }

    fn row(&mut self, region: RegionId) -> &mut Row {
        self.rows.entry(region).or_default()
    }

    /// Inner and whole cost of the calls, and their spread.
    fn cost(&self, calls: &Calls) -> (u64, u64, u64) {
        let Some(region) = self.trace.region(calls.region) else { return (0, 0, 0) };
        let costs = costs(self.trace, calls.location);
        let of = |is_timed| CallCost::of(costs, region, is_timed);
        let times = |cost: Option<CallCost>, count: u64| {
            cost.map_or((0, 0, 0), |cost| (cost.inner * count, cost.whole * count, cost.spread * count))
        };
        let (stamped, others) = (times(of(true), calls.stamped), times(of(false), calls.calls - calls.stamped));
        let (inner, whole, spread) = (stamped.0, stamped.1 + others.1, stamped.2 + others.2);
        match calls.share_returns {
            true => {
                let outer = whole.saturating_sub(inner);
                (inner, inner + outer / 2, spread + outer / 2)
            }
            false => (inner, whole, spread),
        }
    }

    /// Inclusive and exclusive time of the function with that mark.
    pub(super) fn times(&self, mark: Option<u32>) -> [Time; 2] {
        let row = mark.and_then(|mark| self.rows.get(&RegionId(mark)));
        row.map_or_else(Default::default, |row| [row.inclusive, row.exclusive])
    }

    /// The rows, sorted.
    pub(super) fn table(&self, sort: Sort) -> Result<Table, Error> {
        let figure = |row: &Row| match sort {
            Sort::Calls => Ok(row.calls),
            Sort::Inclusive => Ok(row.inclusive.corrected()),
            Sort::Exclusive => Ok(row.exclusive.corrected()),
            Sort::Name => Ok(0),
            _ => Err(Error::SortCorrected(sort)),
        };
        let mut rows = Vec::new();
        for (&id, row) in &self.rows {
            let region = self.trace.region(id);
            let name = region.map_or("[unknown]", |region| region.name.as_str());
            rows.push((std::cmp::Reverse(figure(row)?), name, self.values(id, row, region)));
        }
        rows.sort_by_key(|(figure, name, _)| (*figure, *name));
        let rows = rows.into_iter().map(|(_, _, values)| values).collect();
        let mut table = Table { columns: COLUMNS.to_vec(), rows, left_out: 0 };
        if self.rows.values().any(|row| row.timed < row.calls) {
            table.show(TIMED.key);
        }
        Ok(table)
    }

    /// What is not said, if something is not.
    pub(super) fn withheld(&self) -> Option<String> {
        let timed = || self.rows.values().filter(|row| row.timed > 0);
        let count = timed().filter(|row| row.inclusive.is_withheld() || row.exclusive.is_withheld()).count();
        (count > 0).then(|| {
            format!(
                "not corrected: times of {count} of {} functions, of which tracing took a third or more",
                timed().count()
            )
        })
    }

    /// The values of [`COLUMNS`].
    fn values(&self, id: RegionId, row: &Row, region: Option<&Region>) -> Vec<Value> {
        let library = region.and_then(|region| self.trace.library(region.library)).map_or("[unknown]", Library::name);
        let mut values = vec![Value::Count(row.calls), Value::Count(row.timed)];
        for time in [row.inclusive, row.exclusive] {
            values.extend(if row.timed > 0 { time.values() } else { [const { Value::Absent }; 3] });
        }
        values.push(Value::Count(id.0.into()));
        values
            .extend([library, region.map_or("[unknown]", |region| &region.name)].map(|name| Value::Name(name.into())));
        values
    }
}

fn costs(trace: &TraceSet, location: LocationId) -> &[CallCost] {
    trace.header_of(location).map_or(&[], |header| header.calibration.as_slice())
}

/// How many calls the times are of; shown to people where a call was not timed.
const TIMED: Column = Column::new("timed", "timed").shown(Shown::Never);

const COLUMNS: [Column; 11] = [
    Column::new("calls", "calls"),
    TIMED,
    Column::new("inclusive_ns", "inclusive"),
    Column::new("inclusive_corrected_ns", "corrected"),
    Column::new("inclusive_error_ns", "+-"),
    Column::new("exclusive_ns", "exclusive"),
    Column::new("exclusive_corrected_ns", "corrected"),
    Column::new("exclusive_error_ns", "+-"),
    Column::label("region", "region").shown(Shown::Never),
    Column::label("library", "library"),
    Column::label("function", "function"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{ExitPolicy, Header, Sink};

    use super::*;
    use crate::testing::{script, text, writer};
    use crate::walk::Walk;

    fn cost(single_stepped: bool, inner: u64, whole: u64, spread: u64) -> CallCost {
        CallCost { single_stepped, written: false, exit: ExitPolicy::Uretprobe, inner, whole, spread }
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
        let mut walk = Walk::new(Corrected::new(&trace).unwrap());
        // The definitions say that the entry of c is single-stepped.
        walk.chunk(&mut script("thread 1\n a 0 1000\n  b 100 400\n   a 200 300\n  c 500 900"));
        walk.finish();
        assert_eq!(
            text(walk.visitor.table(Sort::Exclusive).unwrap()),
            "\
calls  inclusive  corrected     +-  exclusive  corrected     +-  library    function
    1     400 ns     350 ns  12 ns     400 ns     350 ns  12 ns  libone.so  c
    2   1.000 us     860 ns  33 ns     400 ns     340 ns  17 ns  libone.so  a
    1     300 ns     260 ns  10 ns     200 ns     170 ns   8 ns  libone.so  b
"
        );
    }

    #[test]
    fn an_untimed_call_has_no_time_to_correct_and_costs_its_callers() {
        let trace = trace(vec![cost(false, 10, 30, 1), cost(true, 50, 70, 2)]);
        let mut walk = Walk::new(Corrected::new(&trace).unwrap());
        walk.chunk(&mut script("thread 1\n a 0 1000\n  b 100 ?\n   a 200 300\n   d 400 500\n d 2000 2100"));
        walk.finish();
        // What a call costs whose return has no probe was not measured here.
        assert_eq!(
            text(walk.visitor.table(Sort::Calls).unwrap()),
            "\
calls  timed  inclusive  corrected     +-  exclusive  corrected     +-  library    function
    2      2   1.000 us     930 ns  17 ns     900 ns     840 ns  16 ns  libone.so  a
    2      2     200 ns     180 ns   6 ns     200 ns     180 ns   6 ns  libtwo.so  d
    1      0          -          -      -          -          -      -  libone.so  b
"
        );
    }

    #[test]
    fn a_call_that_ends_with_its_caller_shares_the_probe_of_its_return() {
        let trace = trace(vec![cost(false, 10, 30, 1)]);
        let mut walk = Walk::new(Corrected::new(&trace).unwrap());
        walk.chunk(&mut script("thread 1\n a 0 1000\n  b 100 1000"));
        walk.finish();
        // Of the 20 ns outside of its time stamps, 10 +- 10.
        assert_eq!(
            text(walk.visitor.table(Sort::Exclusive).unwrap()),
            "\
calls  inclusive  corrected     +-  exclusive  corrected     +-  library    function
    1     900 ns     890 ns  13 ns     900 ns     890 ns  13 ns  libone.so  b
    1   1.000 us     970 ns  18 ns     100 ns      80 ns  16 ns  libone.so  a
"
        );
        assert_eq!(walk.visitor.withheld(), None);
    }

    #[test]
    fn where_tracing_took_more_than_a_third_nothing_is_said() {
        let trace = trace(vec![cost(false, 34, 60, 1)]);
        let mut walk = Walk::new(Corrected::new(&trace).unwrap());
        walk.chunk(&mut script("thread 1\n a 0 101\n b 200 302"));
        walk.finish();
        assert_eq!(
            text(walk.visitor.table(Sort::Name).unwrap()),
            "\
calls  inclusive  corrected    +-  exclusive  corrected    +-  library    function
    1     101 ns          -     -     101 ns          -     -  libone.so  a
    1     102 ns      68 ns  7 ns     102 ns      68 ns  7 ns  libone.so  b
"
        );
        let note = "not corrected: times of 1 of 2 functions, of which tracing took a third or more";
        assert_eq!(walk.visitor.withheld().as_deref(), Some(note));
    }

    #[test]
    fn without_a_measurement_nothing_is_corrected() {
        let error = Corrected::new(&trace(Vec::new())).err().unwrap();
        assert!(error.to_string().starts_with("failed to correct times: "), "{error}");
    }
}
