//! What stored traces say. [`info`] tells what one holds, [`diff()`] compares two, [`replay`] tells one again to a sink,
//! [`derived`] has figures of counters, [`suggest()`] names functions
//! that are not worth tracing, and [`run`] is `rtrace report`: a stored trace summed up by function, library,
//! thread, process or call path. [`html()`] is the same as a page.
//!
//! The trace is read once, from its end to its begin, in bounded memory whatever its length. What
//! the figures mean:
//!
//! - *calls* counts all, of every ending.
//! - *shares*, and the order of rows, go by the times without what tracing took of them, as far as that is known.
//! - *inclusive* is time with callees, counted once: a call nested in a call of the same row (same
//!   function, or library, thread, process) adds nothing, as its time is in the outer one's. Calls
//!   that were still open at the end count up to then.
//! - *exclusive* is time without traced callees; it adds up over rows.
//! - *min, mean, p50, p99, max* are durations of *timed* calls, which are those that returned or were
//!   unwound, not open ones. Percentiles have three digits.
//! - *unseen* calls were not timed: they have no duration and are in no time. Where no call of a row
//!   was timed, its times are absent. What is nested in a call that was not timed is in the time of
//!   the nearest timed one around it.
//! - *working* and *waiting* are parts of the exclusive time: `waiting` says which.
//! - *lost* are calls known to be missing.
//! - *cpu* is the part of the programs' CPU time that samples found in the function itself. Functions that a budget left
//!   calls of without a record stand where these say, as such calls have no time.
//! - *counted* and *estimated* are calls beside these that a budget left without a record: the ones
//!   exact, the others within the margin (±) 95 times of 100; absent where nothing is known of them.
//!
//! Where calls are folded by call path, all of them are, and the figures are sums of these: the same
//! as from single calls, save that percentiles are upper bounds, powers of two, and that it is not known which calls
//! share the probe of their return, so that what tracing took of them is known less well. Where calls were
//! counted, `counting` adds the sums of what they counted.

mod about;
mod by_value;
mod chains;
mod corrected;
mod counting;
mod cpu;
pub mod derived;
mod diff;
mod distribution;
mod efficiency;
mod grouping;
mod groups;
mod histogram;
pub mod html;
pub mod info;
mod key;
mod library_pairs;
mod marked;
mod measures;
mod memory;
mod notes;
mod overhead;
mod overview;
mod part;
mod peers;
mod people;
mod reading;
mod render;
pub mod replay;
mod setup;
mod stats;
mod suggest;
mod table;
#[cfg(test)]
mod testing;
mod time;
mod transfers;
mod tree;
mod untimed;
mod waiting;

use std::io::{self, Write};
use std::path::Path;

use rtrace_exporters::{ExportError, TraceSet};
use rtrace_model::{Loss, words};
use rtrace_profile::{CallReader, ClockSpan, Visitor, Walk};

use self::about::About;
pub use self::diff::{DiffOptions, diff, diff_figures};
use self::distribution::Distribution;
use self::efficiency::Efficiency;
use self::grouping::Grouping;
use self::groups::Groups;
pub use self::html::html;
use self::measures::Measures;
use self::memory::Memory;
pub use self::part::Part;
use self::people::Note;
use self::reading::Need;
use self::setup::JobTimes;
use self::stats::TIMELESS;
pub use self::suggest::{Suggestion, is_suggestion, savings, suggest};
use self::table::{Column, Table};
use self::transfers::Transfers;
use self::tree::Tree;
use self::untimed::Shares;
use self::waiting::WaitingSums;

/// Calls that are looked at together: two such chunks are in memory at a time.
const CHUNK: usize = 128 * 1024;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] rtrace_exporters::Error),
    /// The report cannot be written.
    #[error("failed to write the report: {0}")]
    Write(#[from] io::Error),
    /// The page cannot be written.
    #[error(transparent)]
    Page(#[from] ExportError),
    /// Call paths do not have that figure.
    #[error("failed to sort the call tree by {}: choose calls, inclusive, exclusive or name", .0.name())]
    Sort(Sort),
    /// Nothing is known of what tracing cost, by which functions are judged.
    #[error("failed to suggest a filter: what tracing costs was not measured when this was recorded")]
    CostsUnknown,
    /// These rows do not have that column.
    #[error("failed to show column `{0}`: rows of this kind do not have it")]
    Column(String),
    /// This report does not have it.
    #[error("failed to find column `{title}`: this report has {known}")]
    NoColumn {
        /// What was asked for.
        title: String,
        /// The columns that there are.
        known: String,
    },
    /// Nobody is known to send anything to anybody.
    #[error(
        "failed to report messages: none is on record; their ends are arguments of MPI's functions: record with \
         `--lib libmpi.so.40 --args`"
    )]
    NoMessages,
    /// No call is known to allocate anything.
    #[error(
        "failed to report memory: no allocation is on record with its address; record with `--lib libc.so.6 --func \
         '*alloc*' --func free --args`"
    )]
    NoAllocations,
    /// There are no such regions.
    #[error("failed to find regions: `{0}` does not read BEGIN..END with the names of two traced functions")]
    NoMarkers(String),
    /// Nothing is known of CPU time.
    #[error("failed to report CPU time: it was not sampled; record with `--sampling 99`")]
    NoCpuSamples,
    /// Samples have no calls.
    #[error(
        "failed to report CPU time: samples are of the whole recording, and of no calls; omit --from, --to, --min, --histogram and \
         --memory"
    )]
    SamplesAreWhole,
    /// Rows of that kind have an order of their own.
    #[error("failed to sort by `{0}`: call trees and distributions are sorted by other figures")]
    SortByColumn(String),
    /// There is nothing to compare in nodes of a tree.
    #[error("failed to compare call trees: choose functions or call paths")]
    Diff,
    /// No call has values.
    #[error("failed to find values: none were recorded, as the recording was made without --args")]
    NoValues,
    /// Values belong to single calls.
    #[error("failed to find values: calls are aggregated (--mode profile, --min-duration)")]
    Aggregated,
    /// No function has it.
    #[error("failed to find `{name}`: no function has it; there are {known}")]
    NoSuchValue {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// It has no distribution.
    #[error("failed to show the distribution of `{0}`: its values are no integers; --by arg:{0} shows them")]
    NoInteger(String),
    /// Sums by call path have no times.
    #[error("failed to report a part of the time: calls are aggregated (--mode profile, --min-duration)")]
    PartOfAggregated,
    /// No call can have ended in it.
    #[error("failed to report a part of the time: it ends before it starts")]
    EmptyPart,
    /// No call can have ended in it, either.
    #[error("failed to report a part of the time: it starts when the recording, which lasted {}, has ended", rtrace_model::format_ns(*.0))]
    PartBehindEnd(u64),
    /// What is lost has no time.
    #[error("failed to sort by lost: calls that were lost have no time, so they are in no part of it")]
    LostOfPart,
    /// There are only processes.
    #[error("failed to report ranks: no process of the recording is known to have one")]
    NoRanks,
    /// Call paths have no distributions.
    #[error("failed to show histograms of a call tree: choose --by callpath")]
    Histogram,
}

/// What a row of the report is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A function.
    #[default]
    Function,
    /// A call path; rows form a tree.
    Tree,
    /// A thread.
    Thread,
    /// A library.
    Library,
    /// A library that makes calls, and the one that these are to.
    LibraryPair,
    /// A function in which CPU time was sampled, traced or not.
    Cpu,
    /// A process.
    Process,
    /// A rank of a parallel job.
    Rank,
    /// A rank that sends messages, and one that receives them.
    Peer,
    /// A function and who called it.
    Caller,
    /// A function and the whole chain of its callers.
    Callpath,
    /// A function and the place in the code that called it.
    Callsite,
    /// A function and the value of its argument or result of that name.
    Value(String),
    /// What runs between calls of two functions, `BEGIN..END`.
    Marked(String),
}

/// What a distribution is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Histogram {
    /// Durations of calls.
    Durations,
    /// Values of the argument or result of that name, which are integers.
    Value(String),
}

words! {
    /// What comes first: the largest figure, or the first name.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Sort {
        /// Number of calls.
        Calls = "calls",
        /// Time with callees.
        Inclusive = "inclusive",
        /// Time without traced callees.
        #[default]
        Exclusive = "exclusive",
        /// Mean duration.
        Mean = "mean",
        /// Median duration.
        P50 = "p50",
        /// Duration that one call in ten exceeds.
        P90 = "p90",
        /// Duration that one call in a hundred exceeds.
        P99 = "p99",
        /// Duration that one call in a thousand exceeds.
        P999 = "p99.9",
        /// Longest duration.
        Max = "max",
        /// Calls known to be missing.
        Lost = "lost",
        /// Name, from A to Z.
        Name = "name",
    }
}

/// How the report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns for people, with units and remarks.
    #[default]
    Table,
    /// Comma-separated values with a line of names, times in nanoseconds; no remarks.
    Csv,
    /// One JSON object, times in nanoseconds.
    Json,
}

/// The least time with callees of a row that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Min {
    /// In nanoseconds.
    Time(u64),
    /// As a part, 0 to 1, of the time of all rows.
    Share(f64),
}

impl Min {
    /// Whether a row of so much time is shown, of a total of `total` nanoseconds.
    fn admits(self, time: u64, total: u64) -> bool {
        match self {
            Min::Time(min) => time >= min,
            Min::Share(min) => time as f64 >= min * total as f64,
        }
    }
}

/// What is reported and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// Order of rows, in a tree of siblings.
    pub sort: Sort,
    /// The figure that rows are sorted by instead, by its heading: of those that not every report has.
    pub sort_by: Option<String>,
    /// Show how much of the allocated memory was in use at the peak, and was not freed.
    pub memory: bool,
    /// Leave out rows with less time.
    pub min: Option<Min>,
    /// The figures to show, by their headings; those that are usual where there are none.
    pub columns: Vec<String>,
    /// Show distributions instead of figures.
    pub histogram: Option<Histogram>,
    /// Most rows; of a tree those with most inclusive time.
    pub limit: Option<usize>,
    /// How it is written.
    pub format: Format,
    /// How a table looks.
    pub look: Look,
    /// The part of the time whose calls are shown, where not all are.
    pub part: Option<Part>,
}

/// How a table for people looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Columns of the terminal, if it is one; elsewhere nothing is cut or left out.
    pub width: Option<usize>,
    /// Whether to use colours.
    pub colours: bool,
    /// Whether names are shown with all arguments.
    pub full_names: bool,
    /// Whether all notes are shown on a terminal, not only what belongs to the rows.
    pub notes: bool,
    /// Whether the terminal has no characters for bars.
    pub is_ascii: bool,
}

/// A report before it is given a format.
#[derive(Default)]
struct Report {
    /// Which recording it is about, or which two, by their names in JSON.
    about: Vec<(&'static str, About)>,
    /// Whether two recordings are compared per second; absent where only one is reported.
    is_per_second: Option<bool>,
    /// How well threads, processes or ranks share the work, where rows stand for these and it is known.
    efficiency: Option<Efficiency>,
    table: Table,
    notes: Vec<Note>,
    /// What marks say to people, if any are shown.
    legend: Option<Note>,
}

impl Report {
    fn write(&self, format: Format, look: &Look, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Table => people::table(self, look, out),
            Format::Csv => render::csv(&self.table, out),
            Format::Json => render::json(self, out),
        }
    }
}

/// The headings of the figures that a report may have, beside those of counters and their rates.
pub fn figures() -> Vec<&'static str> {
    let corrected = time::SUMS.iter().flat_map(|(_, columns)| columns);
    let others: [&[Column]; 6] =
        [&waiting::COLUMNS, &efficiency::COLUMNS, &peers::COLUMNS, &memory::COLUMNS, &marked::COLUMNS, &cpu::COLUMNS];
    table::titles(stats::FIGURES.iter().chain(corrected).chain(others.into_iter().flatten()))
}

/// Reports on the trace in `directory`.
///
/// # Errors
/// The trace cannot be read, `out` not be written, or the order does not suit the rows.
pub fn run(directory: &Path, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    sum_up(&TraceSet::open(directory)?, options)?.write(options.format, &options.look, out)?;
    Ok(())
}

/// Rows, and what is found out about calls while these are summed up.
struct SummedRows {
    table: Table,
    lost_callers: u64,
    shares: Shares,
    remarks: Vec<Note>,
    efficiency: Option<Efficiency>,
}

fn sum_up(trace: &TraceSet, options: &Options) -> Result<Report, Error> {
    let losses = trace.losses()?;
    let span = options.part.map(|part| part.of(trace)).transpose()?;
    if span.is_some() && options.sort == Sort::Lost {
        return Err(Error::LostOfPart);
    }
    let summed = match Grouping::new(&options.by, trace)? {
        None if options.by == By::Cpu => cpu::sum_up(trace, options)?,
        Some(grouping) => sum_up_rows(trace, options, grouping, span, &losses)?,
        None => sum_up_tree(trace, options, span)?,
    };
    let SummedRows { mut table, lost_callers, shares, remarks, efficiency } = summed;
    if span.is_some() {
        table.forget(&TIMELESS);
    }
    if let Some(title) = &options.sort_by {
        if options.by == By::Tree || options.histogram.is_some() {
            return Err(Error::SortByColumn(title.clone()));
        }
        table.sort_by(title).map_err(|known| Error::NoColumn { title: title.clone(), known })?;
    }
    table.keep(options.sort_by.as_deref().unwrap_or(options.sort.name()));
    let left_out = if options.histogram.is_some() {
        table.left_out
    } else {
        if let Some(min) = options.min {
            table.at_least(min);
        }
        table.limit(options.limit)
    };
    let legend = time::explain(&mut table, options.sort);
    if !options.columns.is_empty() {
        let known = table.titles();
        table.choose(&options.columns).map_err(|title| Error::NoColumn { title: title.to_owned(), known })?;
    }
    let mut notes = notes::notes(trace, options.part, &losses, (lost_callers, left_out))?;
    notes.extend(untimed::note(&shares, trace, span.is_some())?);
    notes.extend(remarks);
    Ok(Report {
        about: vec![("trace", About::new(trace).of_part(options.part))],
        is_per_second: None,
        efficiency,
        table,
        notes,
        legend,
    })
}

/// Sums up the calls of each row of a grouping.
fn sum_up_rows(
    trace: &TraceSet,
    options: &Options,
    grouping: Grouping<'_>,
    span: Option<ClockSpan>,
    losses: &[Loss],
) -> Result<SummedRows, Error> {
    let Options { by, sort, min, histogram, limit, .. } = options;
    let groups = Groups::new(grouping);
    let groups = if span.is_some() { groups.of_part() } else { groups };
    let mut measures = Measures::new(groups, trace, span.and_then(|span| span.from));
    let mut need = need(by, span);
    if let Some(Histogram::Value(name)) = histogram {
        measures.distribution = Some(Distribution::new(name, trace)?);
        need = Need::Values(span.unwrap_or(ClockSpan::ALL));
    }
    if options.memory && histogram.is_none() {
        measures.memory = Some(Memory::new(trace)?);
        // Sums do not say which block a call returned.
        need = if need == Need::Paths { Need::Calls } else { need };
    }
    let waiting = WaitingSums::new(trace);
    let waiting = if span.is_some() { waiting.of_part() } else { waiting };
    let (mut walk, mut waiting) = (Walk::new(measures), Walk::new(waiting));
    let is_split = histogram.is_none() && WaitingSums::splits(by);
    let mut readers: Vec<&mut dyn CallReader> = vec![&mut walk];
    readers.extend(is_split.then_some(&mut waiting as &mut dyn CallReader));
    let shares = reading::read(trace, need, &mut readers)?;
    let Measures { rows: mut groups, counting, distribution, memory, .. } = walk.visitor;
    let (mut remarks, mut efficiency) = (Vec::new(), None);
    let table = match (histogram, distribution) {
        (_, Some(distribution)) => {
            remarks.extend(distribution.unknown());
            distribution.table(&groups, *sort, *min, *limit)
        }
        (Some(_), None) => groups.histograms(*sort, *min, *limit),
        (None, None) => {
            groups.add_estimates(trace.estimates());
            groups.add_samples(trace);
            remarks.extend(groups.unknown());
            let mut table = groups.table(*sort, losses);
            counting.add_to(&mut table);
            if let Some(memory) = memory {
                remarks.push(memory.note());
                memory.add_to(&mut table);
            }
            let grouping = groups.grouping();
            if let Some(row) = efficiency::worker(by).filter(|_| is_split) {
                let times = JobTimes::new(trace, &waiting.visitor.setup)?;
                let transfers = if span.is_none() { Transfers::new(trace)? } else { Transfers::default() };
                let shares = waiting.visitor.shares(trace, &times, &transfers, grouping);
                remarks.extend(shares.balance(row, grouping).into_iter().flat_map(|balance| balance.notes));
                efficiency = shares.efficiency();
                shares.add_to(&mut table);
            } else if is_split {
                waiting.visitor.add_to(&mut table, grouping);
            }
            table
        }
    };
    if histogram.is_none() {
        remarks.extend(counting.unaccessed());
    }
    Ok(SummedRows { table, lost_callers: walk.lost_callers, shares, remarks, efficiency })
}

/// Sums up the calls of each call path.
fn sum_up_tree(trace: &TraceSet, options: &Options, span: Option<ClockSpan>) -> Result<SummedRows, Error> {
    if options.histogram.is_some() {
        return Err(Error::Histogram);
    }
    let order = tree::SiblingOrder::new(options.sort)?;
    let measures = Measures::new(Tree::of(trace), trace, span.and_then(|span| span.from));
    let (mut walk, shares) = walk(trace, need(&options.by, span), measures)?;
    // Samples are of the whole time.
    let has_samples = span.is_none() && walk.visitor.rows.add_samples();
    let mut table = walk.visitor.rows.table(trace, order, options.limit);
    walk.visitor.counting.add_to(&mut table);
    let sampled = "[sampled] is CPU time beside traced calls, by samples with their stacks; all other time is that of traced calls";
    let remarks = has_samples.then(|| Note::plain(sampled).kept()).into_iter().collect();
    Ok(SummedRows { table, lost_callers: walk.lost_callers, shares, remarks, efficiency: None })
}

/// What rows of that kind need of the calls, of all or of a part of the time.
fn need(by: &By, span: Option<ClockSpan>) -> Need {
    match (by, span) {
        (By::Value(_), span) => Need::Values(span.unwrap_or(ClockSpan::ALL)),
        (_, Some(span)) => Need::Within(span),
        // Call paths do not tell single calls apart.
        (By::Marked(_) | By::Peer, None) => Need::Calls,
        (_, None) => Need::Paths,
    }
}

/// Visits all calls, and sums them up by function and thread.
fn walk<V: Visitor<Mark: Send> + Send>(trace: &TraceSet, need: Need, visitor: V) -> Result<(Walk<V>, Shares), Error> {
    let mut walk = Walk::new(visitor);
    let shares = reading::read(trace, need, &mut [&mut walk])?;
    Ok((walk, shares))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        CallCost, ClockAnchor, Event, EventKind, ExitPolicy, Header, Loss, LossReason, Sink, Summary, Timestamp,
    };

    use super::testing::{script, writer};
    use super::*;

    fn report(directory: &Path, options: &Options) -> String {
        let mut out = Vec::new();
        run(directory, options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn finished() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let calls = script("thread 1\n a 0 5000\n  b 10 1500\n thread 2\n b 0 100");
        writer.calls(&calls.into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(2_000_000), realtime_ns: 0 };
        let losses = vec![Loss { reason: LossReason::RingFull, region: None, count: 2 }];
        let summary = Summary { calls: 3, locations: 2, regions: 6, refused: 1, losses, end, ..Summary::default() };
        writer.finish(&summary).unwrap();
        folder
    }

    #[test]
    fn a_table_says_what_was_recorded_and_what_is_missing() {
        let folder = finished();
        assert_eq!(
            report(folder.path(), &Options { limit: Some(1), ..Options::default() }),
            "\
prog on box (Linux 6.18), recorded for 2.000 ms

calls  exclusive %  exclusive us  inclusive us  mean us  p50 us  p99 us  max us  library    function
    1         68.8          3.51          5.00     5.00    5.00    5.00    5.00  libone.so  a

1 more row
3 calls to 6 functions on 2 threads. Incomplete: 2 calls lost (ring full: 2). 1 function skipped.
"
        );
    }

    #[test]
    fn rows_can_be_left_out_and_figures_chosen() {
        let folder = finished();
        let columns = ["p99.9", "calls"].map(str::to_owned).to_vec();
        for min in [Min::Share(0.5), Min::Time(2_000)] {
            let options = Options { min: Some(min), columns: columns.clone(), ..Options::default() };
            let text = report(folder.path(), &options);
            let (rows, notes) = text.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
            assert_eq!(rows, "p99.9 us  calls  library    function\n    5.00      1  libone.so  a");
            assert!(notes.starts_with("1 more row\n"), "{notes}");
        }
        let options = Options { by: By::Tree, min: Some(Min::Time(101)), format: Format::Csv, ..Options::default() };
        assert_eq!(report(folder.path(), &options).lines().count(), 3);
    }

    #[test]
    fn histograms_are_of_the_first_rows() {
        let folder = finished();
        let options = Options {
            histogram: Some(Histogram::Durations),
            limit: Some(1),
            format: Format::Csv,
            ..Options::default()
        };
        assert_eq!(
            report(folder.path(), &options),
            "\
from_ns,below_ns,calls,share,region,file_offset,library,function
5000,10000,1,1.000000,0,64,libone.so,a
"
        );
    }

    #[test]
    fn what_a_tree_lacks_is_said() {
        let folder = finished();
        let error = |options: Options| run(folder.path(), &options, &mut Vec::new()).unwrap_err().to_string();
        let tree = || Options { by: By::Tree, ..Options::default() };
        let p50 = vec!["p50".to_owned()];
        assert_eq!(
            error(Options { columns: p50, ..tree() }),
            "failed to find column `p50`: this report has calls, timed, share, inclusive, exclusive"
        );
        assert_eq!(
            error(Options { histogram: Some(Histogram::Durations), ..tree() }),
            "failed to show histograms of a call tree: choose --by callpath"
        );
    }

    #[test]
    fn csv_has_all_columns_in_nanoseconds() {
        let folder = finished();
        assert_eq!(
            report(folder.path(), &Options { format: Format::Csv, sort: Sort::Calls, ..Options::default() }),
            "\
calls,timed,share,inclusive_ns,exclusive_ns,min_ns,mean_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,lost,counted,estimated,estimated_margin,returned,unwound,open,unseen,\
exclusive_share,working_ns,waiting_ns,waits_for,region,file_offset,library,function
2,2,0.311765,1590,1590,100,795,100,1490,1490,1490,1490,0,0,0,0,2,0,0,0,0.311765,1590,0,,1,64,libone.so,b
1,1,0.980392,5000,3510,5000,5000,5000,5000,5000,5000,5000,0,0,0,0,1,0,0,0,0.688235,3510,0,,0,64,libone.so,a
"
        );
        assert_eq!(
            report(folder.path(), &Options { format: Format::Csv, by: By::Tree, ..Options::default() }),
            "\
node,parent,depth,region,calls,timed,share,inclusive_ns,exclusive_ns,library,function
1,,0,0,1,1,0.980392,5000,3510,libone.so,a
2,1,1,1,1,1,0.292157,1490,1490,libone.so,b
3,,0,1,1,1,0.019608,100,100,libone.so,b
"
        );
    }

    #[test]
    fn json_has_fields_rows_and_notes() {
        let folder = finished();
        let options = Options { format: Format::Json, by: By::Thread, sort: Sort::Name, ..Options::default() };
        let value: serde_json::Value = serde_json::from_str(&report(folder.path(), &options)).unwrap();
        let expected = serde_json::json!({
            "command": [], "programs": ["prog"], "host": "box", "kernel": "6.18", "begin_realtime_ns": 0,
            "duration_ns": 2_000_000, "complete": false, "calls": 3, "functions": 6, "threads": 2, "lost": 2,
        });
        assert_eq!(value["trace"], expected);
        assert_eq!(value["rows_left_out"], 0);
        assert_eq!(value["rows"].as_array().unwrap().len(), 2);
        assert_eq!(value["rows"][0]["thread"], "main\\x1b");
        assert_eq!(value["rows"][1]["thread"], "worker");
        assert_eq!(value["rows"][1]["inclusive_ns"], 100);
        assert_eq!(value["rows"][1]["lost"], 2);
        let notes: Vec<&str> = value["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("3 calls to 6 functions on 2 threads. Incomplete: "), "{notes:?}");
    }

    #[test]
    fn what_tracing_took_much_of_is_marked_and_corrected_where_that_is_certain() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let exit = ExitPolicy::ReturnSite;
        let cost = CallCost { single_stepped: false, written: false, exit, inner: 31, whole: 40, spread: 1 };
        writer.begin(&Header { calibration: vec![cost], ..Header::default() }).unwrap();
        writer.calls(&script("thread 1\n a 0 1000\n b 2000 2100\n d 3000 3060").into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let table = report(folder.path(), &Options::default());
        let rows: Vec<&str> = table.split("\n\n").nth(1).unwrap().lines().collect();
        assert_eq!(
            rows.iter().map(|row| row.split_whitespace().take(9).collect::<Vec<_>>()).collect::<Vec<_>>()[1..],
            [
                ["1", "90.8", "1000", "969", "1000", "1000", "1000", "1000", "1000"],
                ["1", "6.5", "100!", "69", "100!", "100", "100", "100", "100"],
                ["1", "2.7", "60!", "-", "60!", "60", "60", "60", "60"],
            ]
        );
        assert!(table.contains("\n! more than 30 % of this time is the cost of tracing (2 rows); "), "{table}");
        let one = report(folder.path(), &Options { limit: Some(1), ..Options::default() });
        assert!(!one.contains('!') && !one.contains("corrected"), "no row that is shown is marked:\n{one}");
        let json = report(folder.path(), &Options { format: Format::Json, ..Options::default() });
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let figures =
            |row: usize| ["exclusive_tracing", "exclusive_corrected_ns"].map(|key| value["rows"][row][key].clone());
        assert_eq!(figures(0), [serde_json::json!(0.031), serde_json::json!(969)]);
        assert_eq!(figures(1), [serde_json::json!(0.31), serde_json::json!(69)]);
        assert_eq!(figures(2)[1], serde_json::Value::Null);
        for by in [By::Tree, By::Thread, By::Library, By::Caller] {
            let csv = report(folder.path(), &Options { by: by.clone(), format: Format::Csv, ..Options::default() });
            assert!(csv.lines().next().unwrap().contains("inclusive_corrected_ns"), "{by:?}");
        }
    }

    #[test]
    fn an_unfinished_recording_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let loss = Loss { reason: LossReason::TooDeep, region: None, count: 4 };
        let since = Timestamp(1_000);
        let overwritten = EventKind::Overwritten { library: "/l".into(), region: Some("f".into()), sites: 1 };
        for kind in [EventKind::Loss(loss), EventKind::BlindWindow { library: "/l".into(), since }, overwritten] {
            writer.event(&Event { time: Timestamp(3_000), pid: None, tid: None, kind }).unwrap();
        }
        writer.calls(&script("thread 1\n a 0 5").into()).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        writer.tick().unwrap();
        drop(writer);
        let text = report(folder.path(), &Options { by: By::Library, ..Options::default() });
        let (_, notes) = text.rsplit_once("\n\n").unwrap();
        assert_eq!(
            notes,
            "\
the recording did not end cleanly, or still runs: its last second may be missing
calls lost: 4 (too deep)
libraries that ran before their probes were placed: 1, for up to 2.000 us; calls may be missing
probes that the program wrote over: 1; calls may be missing, or their returns
"
        );
    }

    #[test]
    fn a_tree_has_no_percentiles_to_sort_by() {
        let folder = finished();
        let options = Options { by: By::Tree, sort: Sort::P99, ..Options::default() };
        let error = run(folder.path(), &options, &mut Vec::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to sort the call tree by p99: choose calls, inclusive, exclusive or name"
        );
    }
}
