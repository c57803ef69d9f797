//! Calls summed up by function, library, thread or process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use rtrace_exporters::TraceSet;
use rtrace_model::{Estimate, FoldedPath, LocationId, Loss, PathProfile};
use rtrace_profile::{Caller, Visited, Visitor};

use super::cpu;
use super::grouping::Grouping;
use super::histogram;
use super::key::{HIDDEN, RowId};
use super::people::Note;
use super::stats::{FIGURES, Stats, TIMED};
use super::table::{Column, Datum, Shown, Table};
use super::time::{self, OfRow, TimeRows};
use super::{Min, Sort};

pub(super) struct Groups<'a> {
    grouping: Grouping<'a>,
    groups: BTreeMap<RowId, Stats>,
    /// Whether it is known what tracing took.
    is_corrected: bool,
    /// Calls on record of each location.
    recorded: HashMap<LocationId, u64>,
    /// Whether all calls are asked for, so that those without a record belong to the rows, too.
    are_all: bool,
}

impl Visitor for Groups<'_> {
    type Mark = RowId;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, RowId>) -> RowId {
        let key = self.grouping.key(calls, &caller);
        if !calls.are_counted() {
            return key;
        }
        *self.recorded.entry(calls.location()).or_default() += calls.totals().calls;
        self.groups.entry(key).or_default().sums.add(calls, !caller.is_within(key));
        self.grouping.visited(calls);
        key
    }
}

impl TimeRows for Groups<'_> {
    fn take_off(&mut self, tracing: HashMap<RowId, OfRow>) {
        self.is_corrected = true;
        for (key, of_row) in tracing {
            if let Some(stats) = self.groups.get_mut(&key) {
                stats.tracing = Some(of_row);
            }
        }
    }
}

impl<'a> Groups<'a> {
    pub(super) fn new(grouping: Grouping<'a>) -> Groups<'a> {
        Groups { grouping, groups: BTreeMap::new(), is_corrected: false, recorded: HashMap::new(), are_all: true }
    }

    /// Only of calls of a part of the time. Calls without a record have no time.
    pub(super) fn of_part(self) -> Groups<'a> {
        Groups { are_all: false, ..self }
    }

    /// Adds calls without a record, of which the callers are not known.
    pub(super) fn add_estimates(&mut self, estimates: &[Estimate]) {
        if !self.are_all {
            return;
        }
        for estimate in estimates {
            let (region, location) = (estimate.region, estimate.location);
            let path = FoldedPath::from(PathProfile { region, location, ..PathProfile::default() });
            let key = self.grouping.key(Visited::Path(&path), &Caller::Lost(&[]));
            self.groups.entry(key).or_default().add_estimate(estimate);
        }
    }

    /// Adds what samples of CPU time say of functions or libraries, where rows stand for these.
    pub(super) fn add_samples(&mut self, trace: &TraceSet) {
        if !self.are_all || !self.grouping.is_of_code() {
            return;
        }
        for (region, sampled) in cpu::of_regions(trace) {
            let row = self.groups.get_mut(&self.grouping.key_of_region(region));
            row.into_iter().for_each(|stats| *stats.sampled.get_or_insert_default() += sampled);
        }
    }

    /// The rows, sorted by that figure.
    pub(super) fn table(&mut self, sort: Sort, losses: &[Loss]) -> Table {
        let losses = if self.are_all { self.grouping.lost(losses, &self.recorded) } else { Vec::new() };
        for (key, lost) in losses {
            self.groups.entry(key).or_default().lost += lost;
        }
        self.groups.remove(&HIDDEN);
        let total = self.total();
        let mut table =
            Table { columns: FIGURES.iter().chain(self.grouping.columns()).copied().collect(), ..Table::default() };
        for (key, labels, stats) in self.sorted(sort) {
            table.marks.push(key);
            table.rows.push(stats.values(total).into_iter().chain(labels).collect());
        }
        if self.groups.values().any(|stats| stats.sums.untimed() > 0) {
            table.show(TIMED.key, Shown::Always);
        }
        if sort == Sort::Inclusive {
            table.show("share", Shown::Always);
            table.show("exclusive_share", Shown::Never);
            table.seat("inclusive_ns", 2);
        }
        match &self.grouping {
            Grouping::Peer(peers) => peers.add_to(&mut table),
            Grouping::Marked(marked) => marked.add_to(&mut table),
            _ => {}
        }
        if self.groups.values().any(|stats| stats.sampled.is_some()) {
            let share = |key| self.groups.get(&key)?.sampled.map(|sampled| Datum::Share(sampled.share));
            table.insert(&[cpu::SHARE], |key| vec![share(key).unwrap_or(Datum::Absent)]);
        }
        if self.is_corrected {
            time::add_to(&mut table, |key| self.groups.get(&key)?.times());
        }
        table
    }

    /// The distributions of the first rows of [`table`](Groups::table).
    pub(super) fn histograms(&self, sort: Sort, min: Option<Min>, limit: Option<usize>) -> Table {
        let total = self.total();
        let mut rows = self.sorted(sort);
        rows.retain(|(key, _, stats)| {
            *key != HIDDEN && min.is_none_or(|min| stats.has_at_least(min, total)) && stats.sums.timed() > 0
        });
        let left_out = rows.len().saturating_sub(limit.unwrap_or(usize::MAX));
        rows.truncate(rows.len() - left_out);
        let rows = rows.into_iter().map(|(_, labels, stats)| (labels, &stats.sums.latency));
        Table { left_out, ..histogram::table(self.grouping.columns(), rows) }
    }

    /// Says of how many calls it is not known which row they have, if rows stand for values, messages or regions.
    pub(super) fn unknown(&self) -> Option<Note> {
        let by_value = match &self.grouping {
            Grouping::Value(by_value) => by_value,
            Grouping::Peer(peers) => return peers.unknown(),
            Grouping::Marked(marked) => return marked.unpaired(),
            _ => return None,
        };
        let unknown = self.groups.iter().filter(|&(&key, _)| by_value.is_unknown(key));
        by_value.asked().unknown(unknown.map(|(_, stats)| stats.sums.calls).sum())
    }

    /// How calls are put into rows.
    pub(super) fn grouping(&self) -> &Grouping<'a> {
        &self.grouping
    }

    /// What a row is.
    pub(super) fn columns(&self) -> &'static [Column] {
        self.grouping.columns()
    }

    /// The rows with their labels in their order, without those of less time.
    pub(super) fn shown(&self, sort: Sort, min: Option<Min>) -> Vec<(RowId, Vec<Datum>)> {
        let total = self.total();
        let mut rows = self.sorted(sort);
        rows.retain(|(key, _, stats)| *key != HIDDEN && min.is_none_or(|min| stats.has_at_least(min, total)));
        rows.into_iter().map(|(key, labels, _)| (key, labels)).collect()
    }

    /// The rows, each with its labelled values.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (Vec<(Column, Datum)>, Stats)> {
        let columns = self.grouping.columns();
        let grouping = self.grouping;
        let labels = move |key| columns.iter().copied().zip(grouping.labels(key)).collect();
        self.groups.into_iter().map(move |(key, stats)| (labels(key), stats))
    }

    /// The rows with their labels and figures in their order.
    fn sorted(&self, sort: Sort) -> Vec<(RowId, Vec<Datum>, &Stats)> {
        let label = |(&key, stats)| (key, self.grouping.labels(key), stats);
        let mut rows: Vec<(RowId, Vec<Datum>, &Stats)> = self.groups.iter().map(label).collect();
        // Peers are in the order of their keys: the source comes first.
        let by_name = !matches!(self.grouping, Grouping::Peer(_));
        rows.sort_by_cached_key(|(_, labels, stats)| {
            let names = labels.iter().rev().map(Datum::sortable).filter(|_| by_name);
            let figure = stats.figure(sort);
            // What has no time stands by its calls.
            let calls = (figure.is_none() && sort != Sort::Name).then(|| Reverse(stats.figure(Sort::Calls)));
            (Reverse(figure), calls, names.collect::<Vec<_>>())
        });
        rows
    }

    /// Time of all rows without tracing, in nanoseconds.
    pub(super) fn total(&self) -> u64 {
        let exclusive = |stats: &Stats| stats.corrected().map_or(0, |[_, exclusive]| exclusive);
        self.groups.values().map(exclusive).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Call, Ending, LossReason, RegionId};
    use rtrace_profile::{CallReader as _, Walk};

    use super::*;
    use crate::By;
    use crate::testing::{definitions, in_order, script, text};

    fn table(by: By, calls: &[Call], sort: Sort, losses: &[Loss]) -> String {
        let trace = definitions();
        let mut walk = Walk::new(Groups::new(Grouping::new(&by, &trace).unwrap().unwrap()));
        walk.chunk(&in_order(calls));
        walk.finish();
        text(walk.visitor.table(sort, losses))
    }

    #[test]
    fn recursive_time_is_counted_once() {
        let calls = script(
            "thread 1
             a 0 100
              b 10 60
               a 20 50
                b 30 40
              b 70 80",
        );
        assert_eq!(
            table(By::Function, &calls, Sort::Exclusive, &[]),
            "\
calls  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  library    function
    2         60.0            60           100       65      30     100     100  libone.so  a
    3         40.0            40            60       23      10      50      50  libone.so  b
"
        );
    }

    #[test]
    fn open_calls_count_until_the_end_and_untimed_ones_have_no_time() {
        let mut calls = script("thread 1\n a 0 10\n a 20 40\n a 50 90\n a 100 ?\n b 100 ?");
        calls[1].ending = Ending::Unwound;
        calls[2].ending = Ending::Open;
        assert_eq!(
            table(By::Function, &calls, Sort::Calls, &[]),
            "\
calls  timed  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  unwound  open  library    function
    4      2        100.0            70            70       15      10      20      20        1     1  libone.so  a
    1      0            -             -             -        -       -       -       -        0     0  libone.so  b
"
        );
    }

    #[test]
    fn figures_are_of_the_timed_calls_whatever_else_there_is() {
        let calls = script("thread 1\n a 0 ?\n a 1 ?\n a 2 ?\n a 10 20\n a 30 60\n b 70 ?\n c 80 85");
        let table = table(By::Function, &calls, Sort::P50, &[]);
        assert_eq!(
            table,
            "\
calls  timed  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  library    function
    5      2         88.9            40            40       20      10      30      30  libone.so  a
    1      1         11.1             5             5        5       5       5       5  libone.so  c
    1      0            -             -             -        -       -       -       -  libone.so  b
"
        );
    }

    #[test]
    fn time_within_an_untimed_call_of_the_same_row_is_the_rows() {
        let calls = script("thread 1\n a 0 ?\n  b 10 60\n   a 20 50\n    a 30 40");
        assert_eq!(
            table(By::Function, &calls, Sort::Name, &[]),
            "\
calls  timed  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  library    function
    3      2         60.0            30            30       20      10      30      30  libone.so  a
    1      1         40.0            20            50       50      50      50      50  libone.so  b
"
        );
        assert_eq!(
            table(By::Thread, &calls, Sort::Name, &[]).lines().nth(1),
            Some(
                "    4      3        100.0            50            50       30      30      50      50     0   70   71  main\\x1b"
            )
        );
    }

    #[test]
    fn a_library_a_thread_and_a_process_count_time_inside_them_once() {
        let calls = script(
            "thread 1
             a 0 100
              d 10 60
               b 20 50
             thread 2
             d 0 10",
        );
        assert_eq!(
            table(By::Library, &calls, Sort::Name, &[]),
            "\
calls  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  library
    2         72.7            80           100       65      30     100     100  /usr/lib/libone.so
    2         27.3            30            60       30      10      50      50  /usr/lib/libtwo.so
"
        );
        // The definitions say that thread 2 entered 3 calls.
        assert_eq!(
            table(By::Thread, &calls, Sort::Inclusive, &[]),
            "\
calls  inclusive %  inclusive ns  exclusive ns  mean ns  p50 ns  p99 ns  max ns  lost  pid  tid  thread
    3         90.9           100           100       60      50     100     100     0   70   71  main\\x1b
    1          9.1            10            10       10      10      10      10     2   70   72  worker
"
        );
        assert_eq!(
            table(By::Process, &calls, Sort::Lost, &[]),
            "\
calls  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  lost  pid  process
    4        100.0           110           110       47      30     100     100     2   70  /usr/bin/prog
"
        );
    }

    #[test]
    fn a_function_is_told_apart_by_its_caller_or_all_of_them() {
        let calls = script(
            "thread 1
             a 0 100
              b 10 60
               c 20 50
              c 70 80
             b 100 130
              c 110 120
             thread 2
             a 0 10
              c 1 5",
        );
        assert_eq!(
            table(By::Caller, &calls, Sort::Calls, &[]),
            "\
calls  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  library    function  called by
    2         32.9            46           110       55      10     100     100  libone.so  a         -
    2         10.0            14            14        7       4      10      10  libone.so  c         a
    2         28.6            40            40       20      10      30      30  libone.so  c         b
    1         14.3            20            30       30      30      30      30  libone.so  b         -
    1         14.3            20            50       50      50      50      50  libone.so  b         a
"
        );
        let paths = table(By::Callpath, &calls, Sort::Calls, &[]);
        let paths: Vec<(&str, &str)> = paths
            .lines()
            .skip(1)
            .map(|line| (line.split_whitespace().next().unwrap(), line.split_once("libone.so  ").unwrap().1))
            .collect();
        let expected = [
            ("2", "a         -"),
            ("2", "c         a"),
            ("1", "b         -"),
            ("1", "b         a"),
            ("1", "c         b"),
        ];
        assert_eq!(paths[..5], expected);
        assert_eq!(paths[5], ("1", "c         b < a"));
    }

    #[test]
    fn callees_of_lost_calls_have_a_lost_caller() {
        let mut calls = script("thread 1\n a 0 100\n  b 10 60\n   c 20 50");
        calls.retain(|call| call.depth != 1);
        assert!(table(By::Callpath, &calls, Sort::Calls, &[]).contains("c         [lost caller]"));
        assert!(table(By::Caller, &calls, Sort::Calls, &[]).contains("c         [lost caller]"));
    }

    #[test]
    fn losses_appear_with_their_function_even_without_calls() {
        let loss = |region| Loss { reason: LossReason::RingFull, region, count: 5 };
        let losses = [loss(Some(RegionId(2))), loss(None), loss(Some(RegionId(2)))];
        assert_eq!(
            table(By::Function, &script("thread 1\n a 0 10"), Sort::Lost, &losses),
            "\
calls  exclusive %  exclusive ns  inclusive ns  mean ns  p50 ns  p99 ns  max ns  lost  library    function
    0            -             -             -        -       -       -       -    10  libone.so  c
    1        100.0            10            10       10      10      10      10     0  libone.so  a
"
        );
    }

    #[test]
    fn calls_of_unknown_functions_are_there() {
        let mut calls = script("thread 1\n a 0 10");
        calls[0].region = RegionId(99);
        assert!(table(By::Function, &calls, Sort::Calls, &[]).contains("[unknown]  [unknown]"));
        assert!(table(By::Library, &calls, Sort::Calls, &[]).contains("[unknown]"));
    }
}
