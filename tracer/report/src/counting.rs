//! What calls counted, summed up beside the figures of a report.
//!
//! As with times, a row's *inclusive* count is that of its outermost calls, and *exclusive* counts
//! add up over rows. Derived figures are computed from exclusive counts, those of operations from inclusive ones.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Count, Metric, Scope, Tally, escape};
use rtrace_profile::{Caller, Visited};

use super::key::RowId;
use super::people::Note;
use super::table::{Column, Datum, Shown, Table};
use crate::derived::{self, Derived, Input};

/// The unit of metrics that count operations.
const OPERATION: &str = "flop";

/// The metric that counts the bytes of their operands.
const OPERANDS: &str = "operand_bytes";

/// Sums the readings of calls by row.
#[derive(Default)]
pub(super) struct Counting {
    metrics: Vec<Metric>,
    sums: HashMap<RowId, CounterSums>,
}

#[derive(Clone, Default)]
struct CounterSums {
    calls: u64,
    /// Time without traced callees.
    duration: u64,
    /// Of each metric.
    counts: Vec<Count>,
    /// The time of the outermost calls that counted operations, with their callees.
    computing: u64,
}

/// Whether a counter is that of a watched variable, whose name says which accesses it counts.
fn is_watch(metric: &Metric) -> bool {
    metric.name.ends_with(":w") || metric.name.ends_with(":rw")
}

impl CounterSums {
    fn add(&mut self, calls: u64, exclusive: u64, counts: &[Count], is_outermost: bool) {
        self.calls = self.calls.saturating_add(calls);
        self.duration = self.duration.saturating_add(exclusive);
        Count::add_exclusive(&mut self.counts, counts.iter().copied());
        if is_outermost {
            Count::add_inclusive(&mut self.counts, counts.iter().copied());
        }
    }

    /// Of the metric at that place with and without traced callees.
    fn counts(&self, index: usize) -> [u64; 2] {
        self.counts.get(index).map_or([0; 2], |count| [count.inclusive, count.exclusive])
    }

    /// Operations, and what they are done on, are those of a call with all that it calls.
    fn input(&self, input: Input, metrics: &[Metric]) -> u64 {
        match input {
            Input::Duration => self.duration,
            Input::Counter(index) => self.counts(index)[usize::from(!is_computation(&metrics[index]))],
            Input::Computing => self.computing,
        }
    }
}

impl Counting {
    pub(super) fn new(trace: &TraceSet) -> Counting {
        let metrics = trace.metrics().iter().filter(|metric| metric.scope == Scope::Call).cloned().collect();
        Counting { metrics, sums: HashMap::new() }
    }

    pub(super) fn add(&mut self, row: RowId, calls: Visited<'_>, caller: Caller<'_, RowId>) {
        if self.metrics.is_empty() || !calls.have_time() {
            return;
        }
        let (totals, counts) = (calls.totals(), calls.counts());
        if calls.single().map_or(counts.len() == self.metrics.len(), |_| !counts.is_empty()) {
            let sums = self.sums.entry(row).or_default();
            sums.add(totals.timed(), totals.exclusive, &counts, !caller.is_within(row));
            // The operations of a call are those of all that it calls: so is their time.
            let counted =
                self.metrics.iter().zip(counts.iter()).any(|(of, count)| of.unit == OPERATION && count.inclusive > 0);
            if counted && !caller.is_within(row) {
                sums.computing = sums.computing.saturating_add(totals.inclusive);
            }
        }
    }

    /// Says of watched variables why all counts are 0: what is outside of traced calls is not counted.
    pub(super) fn unaccessed(&self) -> impl Iterator<Item = Note> {
        let is_counted = |index: usize| self.sums.values().any(|sums| sums.counts(index) != [0, 0]);
        let is_idle = move |(index, metric): &(usize, &Metric)| is_watch(metric) && !is_counted(*index);
        let idle = self.metrics.iter().enumerate().filter(is_idle).filter(|_| !self.sums.is_empty());
        idle.map(|(_, metric)| {
            Note::plain(format!(
                "no traced call accessed {}: what the program does outside of traced calls is not counted; trace the functions \
                 that do it, such as `--lib exe`",
                escape(&metric.name)
            ))
        })
    }

    /// Adds the counts to a table of the rows.
    pub(super) fn add_to(&self, table: &mut Table) {
        if self.metrics.is_empty() {
            return;
        }
        let derived = self.derived();
        let columns = self.columns(&derived);
        // Where no call was timed, nothing was counted, which is not a count of 0.
        let absent = || vec![Datum::Absent; columns.len()];
        table.insert(&columns, |mark| self.sums.get(&mark).map_or_else(absent, |sums| self.values(sums, &derived)));
    }

    fn derived(&self) -> Vec<(Derived, [Input; 2])> {
        let names: Vec<&str> = self.metrics.iter().map(|metric| metric.name.as_str()).collect();
        derived::of(&names)
    }

    fn columns(&self, derived: &[(Derived, [Input; 2])]) -> Vec<Column> {
        let mut columns = Vec::new();
        for metric in &self.metrics {
            columns.extend(Tally::ALL.map(|tally| {
                let shown = if tally == Tally::PerCall { Shown::Never } else { Shown::IfNotZero };
                Column::named(tally.key(metric), tally.title(metric)).rank(rank(tally)).shown(shown)
            }));
        }
        columns.extend(derived.iter().map(|(derived, _)| {
            Column::named(derived.key.clone().into_owned(), derived.title.clone().into_owned())
                .rank(3)
                .shown(Shown::IfNotZero)
        }));
        columns
    }

    fn values(&self, sums: &CounterSums, derived: &[(Derived, [Input; 2])]) -> Vec<Datum> {
        let mut values = Vec::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            let [inclusive, exclusive] = sums.counts(index);
            if is_unknown(metric, [inclusive, exclusive]) {
                values.extend([Datum::Absent, Datum::Absent, Datum::Absent]);
                continue;
            }
            values.extend([value(metric, inclusive), value(metric, exclusive)]);
            let per_call = (sums.calls > 0).then(|| exclusive as f64 / sums.calls as f64);
            values.push(per_call.map_or(Datum::Absent, Datum::Ratio));
        }
        values.extend(derived.iter().map(|(derived, inputs)| {
            let is_known = |input: &Input| match *input {
                Input::Counter(index) => !is_unknown(&self.metrics[index], sums.counts(index)),
                Input::Duration | Input::Computing => true,
            };
            if !inputs.iter().all(is_known) {
                return Datum::Absent;
            }
            let figure = derived.value(inputs.map(|input| sums.input(input, &self.metrics)));
            figure.map_or(Datum::Absent, Datum::Ratio)
        }));
        values
    }
}

/// Counts without callees are what a row is about, and stay longer.
fn rank(tally: Tally) -> u8 {
    if tally == Tally::Exclusive { 3 } else { 5 }
}

/// Whether the sums of a row say nothing: operations and what they are done on come from the arguments of functions that are
/// known, and others compute, too.
fn is_unknown(metric: &Metric, sums: [u64; 2]) -> bool {
    is_computation(metric) && sums == [0, 0]
}

fn is_computation(metric: &Metric) -> bool {
    metric.unit == OPERATION || metric.name == OPERANDS
}

/// A sum in its metric's unit.
fn value(metric: &Metric, sum: u64) -> Datum {
    if metric.is_nanoseconds() { Datum::Time(sum) } else { Datum::Count(sum) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use rtrace_model::{
        Base, Batch, Call, Definition, Event, EventKind, MetricId, Reading, Sink, Span, Summary, Timestamp,
    };

    use super::*;
    use crate::testing::{script, writer};
    use crate::{By, Format, Options, run};

    fn metric(id: u32, name: &str, unit: &str, exponent: i32) -> Metric {
        Metric {
            id: MetricId(id),
            name: name.to_owned(),
            unit: unit.to_owned(),
            base: Base::Decimal,
            exponent,
            scope: Scope::Call,
            span: Span::SinceStart,
        }
    }

    /// Half of all time is on a CPU, and the faults are the hundredth part of it.
    fn counted() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        for metric in [metric(0, "task-clock", "s", -9), metric(1, "page-faults", "#", 0)] {
            writer.define(&Definition::Metric(metric)).unwrap();
        }
        let calls = script("thread 1\n a 0 4000\n  b 1000 3000\n   a 1200 1400\n a 5000 6000");
        let part = |call: &Call, by| Reading { inclusive: call.duration.unwrap_or(0) / by, child: call.child / by };
        let readings = calls.iter().flat_map(|call| [part(call, 2), part(call, 200)]).collect();
        writer.calls(&Batch::measured(calls, 2, readings)).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    }

    #[test]
    fn rows_are_sorted_by_what_was_counted_and_by_its_rate() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.define(&Definition::Metric(metric(0, "io_bytes", "B", 0))).unwrap();
        // In 1 us, 2 us and 4 us; of the last it is not known.
        let calls = script("thread 1\n a 0 1000\n b 2000 4000\n c 5000 9000\n d 9500 ?");
        let bytes = [3_000, 5_000, 1_000, 0].map(|inclusive| Reading { inclusive, child: 0 });
        writer.calls(&Batch::measured(calls, 1, bytes.to_vec())).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let report = |title: &str| {
            let columns = vec!["io_bytes".to_owned(), "io MB/s".to_owned()];
            let (sort_by, format) = (Some(title.to_owned()), Format::Csv);
            let mut out = Vec::new();
            run(folder.path(), &Options { sort_by, columns, format, ..Options::default() }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let csv = report("io_bytes");
        assert_eq!(column(&csv, "function"), ["b", "a", "c", "d"]);
        assert_eq!(column(&csv, "io_bytes_inclusive"), ["5000", "3000", "1000", ""]);
        let rates = ["2500.000000", "3000.000000", "250.000000", ""];
        assert_eq!(column(&csv, "io_megabytes_per_second"), rates);
        assert_eq!(column(&report("io MB/s"), "function"), ["a", "b", "c", "d"]);
        let unknown = Options { sort_by: Some("mass".to_owned()), ..Options::default() };
        let error = run(folder.path(), &unknown, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("failed to find column `mass`: this report has calls, "), "{error}");
        assert!(error.contains("io_bytes, io_bytes excl, io_bytes/call, io MB/s"), "{error}");
    }

    #[test]
    fn a_variable_that_no_traced_call_writes_is_not_just_0() {
        let text = |counts: [u64; 2], names: [&str; 2]| {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = writer(folder.path());
            for (id, name) in (0..).zip(names) {
                writer.define(&Definition::Metric(metric(id, name, "#", 0))).unwrap();
            }
            let calls = script("thread 1\n a 0 4000");
            let readings = counts.map(|inclusive| Reading { inclusive, child: 0 }).to_vec();
            writer.calls(&Batch::measured(calls, 2, readings)).unwrap();
            writer.finish(&Summary::default()).unwrap();
            let mut out = Vec::new();
            run(folder.path(), &Options::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let said = text([0, 7], ["exe:total:w", "errors:rw"]);
        assert!(said.contains("no traced call accessed exe:total:w") && !said.contains("accessed errors"), "{said}");
        assert!(!text([0, 0], ["page-faults", "cycles:u"]).contains("no traced call"));
    }

    #[test]
    fn what_was_counted_in_part_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.define(&Definition::Metric(metric(0, "cycles", "#", 0))).unwrap();
        let calls = script("thread 1\n a 0 4000");
        writer.calls(&Batch::measured(calls, 1, vec![Reading { inclusive: 7, child: 0 }])).unwrap();
        let (metric, variable, reason) = ("cycles".to_owned(), "x:w".to_owned(), "no process had it".to_owned());
        for (time, kind) in [
            (10, EventKind::Estimated { metric }),
            (1_005, EventKind::Watched { variable: variable.clone(), since: Timestamp(5) }),
            (2_000, EventKind::Unwatched { variable, reason }),
        ] {
            writer.event(&Event { time: Timestamp(time), pid: None, tid: None, kind }).unwrap();
        }
        writer.finish(&Summary::default()).unwrap();
        let mut out = Vec::new();
        run(folder.path(), &Options::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "cycles is estimated: at times its hardware counted something else, or a switch of threads was missed",
            "variables that were there before they were watched: 1, for up to 1.000 us; accesses may be missing",
            "x:w was not watched: no process had it",
        ] {
            assert!(text.lines().any(|of| of == line), "{text}");
        }
    }

    /// A trace of these calls, with what each counted.
    fn of_calls(metric: Metric, calls: &str, counted: &[u64]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.define(&Definition::Metric(metric)).unwrap();
        let readings = counted.iter().map(|&inclusive| Reading { inclusive, child: 0 }).collect();
        writer.calls(&Batch::measured(script(calls), 1, readings)).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    }

    fn functions(trace: &Path, format: Format) -> String {
        let mut out = Vec::new();
        run(trace, &Options { format, ..Options::default() }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_call_that_was_not_timed_counts_nothing() {
        let folder = of_calls(metric(0, "page-faults", "#", 0), "thread 1\n a 0 ?\n a 10 20\n b 30 ?", &[9, 9, 9]);
        let csv = functions(folder.path(), Format::Csv);
        assert_eq!(column(&csv, "function"), ["a", "b"]);
        assert_eq!(column(&csv, "page-faults_inclusive"), ["9", ""]);
        assert_eq!(column(&csv, "page-faults_per_call"), ["9.000000", ""]);
        assert_eq!(column(&csv, "timed"), ["1", "0"]);
        assert_eq!(column(&csv, "inclusive_ns"), ["10", ""]);
    }

    #[test]
    fn a_function_whose_operations_are_not_known_has_none() {
        let folder = of_calls(metric(0, "flops", "flop", 0), "thread 1\n a 0 10\n b 10 20", &[8, 0]);
        let csv = functions(folder.path(), Format::Csv);
        assert_eq!(column(&csv, "function"), ["a", "b"]);
        assert_eq!(column(&csv, "flops_exclusive"), ["8", ""]);
        assert_eq!(column(&csv, "flops_per_call"), ["8.000000", ""]);
        assert_eq!(column(&csv, "gigaflops_per_second"), ["0.800000", ""]);
    }

    #[test]
    fn operations_are_those_of_a_call_with_all_that_it_calls() {
        // `a` computes in `b`, of which no operations are known, and once in `c`, of which they are: what `c` does is part
        // of what `a` says that it does, as `cblas_dgemm` of MKL calls `dgemm`.
        let calls = "thread 1\n a 0 100\n  b 10 90\n a 200 300\n  c 210 250\n   b 215 245";
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.define(&Definition::Metric(metric(0, "flops", "flop", 0))).unwrap();
        writer.define(&Definition::Metric(metric(1, "operand_bytes", "B", 0))).unwrap();
        let reading = |inclusive, child| Reading { inclusive, child };
        let flops = [(0, 0), (500, 0), (0, 0), (500, 0), (500, 500)].map(|(all, child)| reading(all, child));
        let bytes = [(0, 0), (50, 0), (0, 0), (50, 0), (50, 50)].map(|(all, child)| reading(all, child));
        let readings = flops.into_iter().zip(bytes).flat_map(|(flops, bytes)| [flops, bytes]).collect();
        writer.calls(&Batch::measured(script(calls), 2, readings)).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let csv = functions(folder.path(), Format::Csv);
        assert_eq!(column(&csv, "function"), ["b", "a", "c"]);
        // Of 1000 in 100 + 100, and of 500 in 40.
        assert_eq!(column(&csv, "gigaflops_per_second"), ["", "5.000000", "12.500000"]);
        assert_eq!(column(&csv, "flops_per_byte"), ["", "10.000000", "10.000000"]);
        assert_eq!(column(&csv, "operand_bytes_inclusive"), ["", "100", "50"]);
        assert_eq!(column(&csv, "operand_bytes_exclusive"), ["", "50", "50"]);
    }

    #[test]
    fn what_is_0_in_all_rows_has_no_column_for_people() {
        let folder = of_calls(metric(0, "page-faults", "#", 0), "thread 1\n a 0 10\n b 10 20", &[0, 0]);
        let shown = |format| functions(folder.path(), format).contains("page-faults");
        assert_eq!([Format::Table, Format::Csv].map(shown), [false, true]);
    }

    fn report(by: By, format: Format) -> String {
        let mut out = Vec::new();
        run(counted().path(), &Options { by, format, ..Options::default() }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn column(csv: &str, name: &str) -> Vec<String> {
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let place = lines.next().unwrap().iter().position(|column| *column == name).unwrap();
        lines.map(|line| line[place].to_owned()).collect()
    }

    #[test]
    fn functions_have_sums_that_count_recursion_once_and_derived_figures() {
        let csv = report(By::Function, Format::Csv);
        assert_eq!(column(&csv, "function"), ["a", "b"]);
        assert_eq!(column(&csv, "task-clock_inclusive"), ["2500", "1000"]);
        assert_eq!(column(&csv, "task-clock_exclusive"), ["1600", "900"]);
        assert_eq!(column(&csv, "page-faults_inclusive"), ["25", "10"]);
        assert_eq!(column(&csv, "page-faults_per_call"), ["5.333333", "9.000000"]);
        assert_eq!(column(&csv, "cpus_used"), ["0.500000", "0.500000"]);
        let table = report(By::Function, Format::Table);
        assert!(table.contains("  2.50               1.600           25                16      0.500"), "{table}");
    }

    #[test]
    fn paths_and_threads_have_them_too() {
        let csv = report(By::Tree, Format::Csv);
        assert_eq!(column(&csv, "task-clock_inclusive"), ["2500", "1000", "100"]);
        assert_eq!(column(&csv, "page-faults_exclusive"), ["15", "9", "1"]);
        let csv = report(By::Thread, Format::Csv);
        assert_eq!(column(&csv, "task-clock_inclusive"), ["2500", ""], "the other thread's calls are lost");
        assert_eq!(column(&report(By::Library, Format::Csv), "task-clock_inclusive"), ["2500"]);
    }
}
