//! The tables of `rtrace report` that a page shows, from one reading of the trace.

use std::collections::HashSet;

use rtrace_exporters::TraceSet;
use rtrace_model::{Loss, RegionId};
use rtrace_profile::{CallReader, ClockSpan, Walk};
use serde_json::{Value as Json, json};

use super::edges::Edges;
use super::names::PageNames;
use super::rows;
use crate::chains::ChainDepth;
use crate::efficiency::Balance;
use crate::grouping::Grouping;
use crate::groups::Groups;
use crate::measures::Measures;
use crate::setup::JobTimes;
use crate::stats::TIMELESS;
use crate::table::{Datum, Table};
use crate::transfers::Transfers;
use crate::tree::{SiblingOrder, Tree};
use crate::untimed::Shares;
use crate::waiting::WaitingSums;
use crate::{By, Error, Sort};

/// Functions with a histogram.
const HISTOGRAMS: usize = 2_000;

/// What gathers the tables.
pub(super) struct Walks<'a> {
    functions: Walk<Measures<'a, Groups<'a>>>,
    threads: Walk<Measures<'a, Groups<'a>>>,
    processes: Walk<Measures<'a, Groups<'a>>>,
    tree: Walk<Measures<'a, Tree<'a>>>,
    callers: Walk<Edges<'a>>,
    sites: Walk<Edges<'a>>,
    waiting: Walk<WaitingSums>,
}

/// The tables, with all their rows.
pub(super) struct Tables<'a> {
    /// With corrected times, if what tracing costs was measured.
    pub(super) functions: Table,
    pub(super) histograms: Table,
    pub(super) threads: Table,
    pub(super) processes: Table,
    pub(super) tree: Tree<'a>,
    pub(super) callers: Edges<'a>,
    pub(super) sites: Edges<'a>,
    pub(super) shares: Shares,
    /// Exclusive time of all functions without tracing, in nanoseconds.
    pub(super) total: u64,
    /// How well processes and threads share the work.
    pub(super) balance: Option<Balance>,
    pub(super) remarks: Vec<String>,
}

impl<'a> Walks<'a> {
    pub(super) fn new(trace: &'a TraceSet, span: ClockSpan) -> Walks<'a> {
        let groups = |by| {
            let grouping = Grouping::new(&by, trace).ok().flatten();
            let groups = grouping.map(Groups::new).expect("these rows are no tree, and need no values");
            let groups = if span == ClockSpan::ALL { groups } else { groups.of_part() };
            Measures::new(groups, trace, span.from)
        };
        let waiting = WaitingSums::new(trace);
        Walks {
            functions: Walk::new(groups(By::Function)),
            threads: Walk::new(groups(By::Thread).uncounted()),
            processes: Walk::new(groups(By::Process).uncounted()),
            tree: Walk::new(Measures::new(Tree::of(trace), trace, span.from).uncounted()),
            callers: Walk::new(Edges::new(ChainDepth::Caller, trace)),
            sites: Walk::new(Edges::new(ChainDepth::Site, trace)),
            waiting: Walk::new(if span == ClockSpan::ALL { waiting } else { waiting.of_part() }),
        }
    }

    /// What reads sums by call path, or calls one by one.
    pub(super) fn readers(&mut self) -> Vec<&mut dyn CallReader> {
        vec![
            &mut self.functions,
            &mut self.threads,
            &mut self.processes,
            &mut self.tree,
            &mut self.callers,
            &mut self.waiting,
            &mut self.sites,
        ]
    }

    /// Calls whose callers are not on record.
    pub(super) fn lost_callers(&self) -> u64 {
        self.functions.lost_callers
    }

    pub(super) fn into_tables(
        mut self,
        trace: &TraceSet,
        losses: &[Loss],
        span: ClockSpan,
        shares: Shares,
    ) -> Result<Tables<'a>, Error> {
        if span == ClockSpan::ALL {
            self.tree.visitor.rows.add_samples();
        }
        let timeless: &[&str] = if span == ClockSpan::ALL { &[] } else { &TIMELESS };
        let Measures { rows: mut groups, counting, .. } = self.functions.visitor;
        groups.add_estimates(trace.estimates());
        groups.add_samples(trace);
        let histograms = groups.histograms(Sort::Exclusive, None, Some(HISTOGRAMS));
        let total = groups.total();
        let mut functions = groups.table(Sort::Exclusive, losses);
        functions.forget(timeless);
        counting.add_to(&mut functions);
        let waiting = self.waiting.visitor;
        waiting.add_to(&mut functions, groups.grouping());
        let [mut threads, mut processes] = [self.threads, self.processes].map(|walk| walk.visitor.rows);
        for groups in [&mut threads, &mut processes] {
            groups.add_estimates(trace.estimates());
        }
        let times = JobTimes::new(trace, &waiting.setup)?;
        let transfers = if span == ClockSpan::ALL { Transfers::new(trace)? } else { Transfers::default() };
        let rows = [(&mut processes, "process"), (&mut threads, "thread")];
        let [(processes, of_processes), (threads, of_threads)] = rows.map(|(groups, row)| {
            let shares = waiting.shares(trace, &times, &transfers, groups.grouping());
            let mut table = groups.table(Sort::Exclusive, losses);
            table.forget(timeless);
            shares.add_to(&mut table);
            (table, shares.balance(row, groups.grouping()))
        });
        let balance = of_processes.or(of_threads);
        let remarks = balance.iter().flat_map(|of| of.notes.iter().map(|note| note.text.clone())).collect();
        Ok(Tables {
            functions,
            histograms,
            threads,
            processes,
            tree: self.tree.visitor.rows,
            callers: self.callers.visitor,
            sites: self.sites.visitor,
            shares,
            total,
            balance,
            remarks,
        })
    }
}

/// The first rows of a table.
pub(super) fn first(table: &Table, most: usize) -> Table {
    let rows: Vec<_> = table.rows.iter().take(most).cloned().collect();
    Table { left_out: table.left_out + table.rows.len() - rows.len(), rows, ..table.clone() }
}

/// By function: inclusive and exclusive time without what tracing took, each with its error; null where most of the time is tracing's.
pub(super) fn corrected(tables: &Tables<'_>, shown: &HashSet<RegionId>, names: &mut PageNames<'_>) -> Vec<Json> {
    let table = &tables.functions;
    let figures = ["inclusive_corrected_ns", "inclusive_error_ns", "exclusive_corrected_ns", "exclusive_error_ns"];
    if figures.iter().any(|key| rows::column(table, key).is_none()) {
        return Vec::new();
    }
    let mut told = Vec::new();
    for row in &table.rows {
        if !rows::region(table, row).is_some_and(|region| shown.contains(&region)) {
            continue;
        }
        let figure = |key| rows::column(table, key).map_or(Json::Null, |place| rows::value(&row[place]));
        let name = [json!(rows::name(table, row, names))];
        told.push(name.into_iter().chain(figures.map(figure)).collect());
    }
    told
}

/// By function: from which duration on there are how many calls.
pub(super) fn histograms(table: &Table, shown: &HashSet<RegionId>, names: &mut PageNames<'_>) -> Vec<Json> {
    let (Some(from), Some(calls)) = (rows::column(table, "from_ns"), rows::column(table, "calls")) else {
        return Vec::new();
    };
    let mut told = Vec::new();
    for of_function in table.rows.chunk_by(|a, b| rows::region(table, a) == rows::region(table, b)) {
        let row = &of_function[0];
        if rows::region(table, row).is_some_and(|region| shown.contains(&region)) {
            let buckets = of_function.iter().flat_map(|row| [rows::value(&row[from]), rows::value(&row[calls])]);
            let name = rows::name(table, row, names);
            told.push(json!([name, buckets.collect::<Vec<_>>()]));
        }
    }
    told
}

/// Caller's row, function, calls, timed calls, inclusive and exclusive time and share of each node, callers first: the
/// `most` of them with most time. Shares are of the time without tracing.
pub(super) fn tree(tree: &Tree<'_>, trace: &TraceSet, most: usize, names: &mut PageNames<'_>) -> Result<Json, Error> {
    let table = &tree.table(trace, SiblingOrder::new(Sort::Inclusive)?, Some(most));
    let mut places = std::collections::HashMap::new();
    let mut told = Vec::new();
    for (place, row) in table.rows.iter().enumerate() {
        let cell = |key| rows::column(table, key).map_or(&Datum::Absent, |place| &row[place]);
        if let Datum::Count(node) | Datum::Id(node) = cell("node") {
            places.insert(*node, place);
        }
        let parent = match cell("parent") {
            Datum::Count(node) | Datum::Id(node) => places.get(node).map_or(-1, |&place| place as i64),
            _ => -1,
        };
        let figures = ["calls", "timed", "inclusive_ns", "exclusive_ns", "share"].map(|key| rows::value(cell(key)));
        told.push([json!(parent), json!(rows::name(table, row, names))].into_iter().chain(figures).collect::<Json>());
    }
    Ok(json!({ "rows": told, "left_out": table.left_out, "total_ns": tree.total() }))
}
