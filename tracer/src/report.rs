//! `rtrace report`: a stored trace summed up by function, library, thread, process or call path.
//!
//! The trace is read once, from its end to its begin, in bounded memory whatever its length. What
//! the figures mean:
//!
//! - *calls* counts all, of every ending.
//! - *inclusive* is time with callees, counted once: a call nested in a call of the same row (same
//!   function, or library, thread, process) adds nothing, as its time is in the outer one's. Calls
//!   that were still open at the end count up to then.
//! - *exclusive* is time without traced callees; it adds up over rows.
//! - *min, mean, p50, p99, max* are durations of calls whose exit was seen or noticed: returned
//!   and unwound, not open. Percentiles have three digits.
//! - *unseen* calls have no duration and are in no time.
//! - *lost* are calls known to be missing.
//!
//! Where calls were counted, `counting` adds the sums of what they counted.

mod counting;
mod grouping;
mod groups;
mod latency;
mod notes;
mod render;
mod stats;
mod table;
#[cfg(test)]
mod testing;
mod tree;
mod walk;

use std::io::{self, Write};
use std::path::Path;

use rtrace_exporters::Trace;

use self::counting::Counting;
use self::grouping::Grouping;
use self::groups::Groups;
use self::table::Table;
use self::tree::Tree;
use self::walk::Walk;

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
    /// Call paths do not have that figure.
    #[error("failed to sort the call tree by {}: choose calls, inclusive, exclusive or name", .0.name())]
    Sort(Sort),
}

/// What a row of the report is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// A process.
    Process,
}

/// What comes first: the largest figure, or the first name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Number of calls.
    Calls,
    /// Time with callees.
    Inclusive,
    /// Time without traced callees.
    #[default]
    Exclusive,
    /// Mean duration.
    Mean,
    /// Median duration.
    P50,
    /// Duration that one call in a hundred exceeds.
    P99,
    /// Longest duration.
    Max,
    /// Calls known to be missing.
    Lost,
    /// Name, from A to Z.
    Name,
}

impl Sort {
    /// The word used in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Sort::Calls => "calls",
            Sort::Inclusive => "inclusive",
            Sort::Exclusive => "exclusive",
            Sort::Mean => "mean",
            Sort::P50 => "p50",
            Sort::P99 => "p99",
            Sort::Max => "max",
            Sort::Lost => "lost",
            Sort::Name => "name",
        }
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

/// What is reported and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// Order of rows, in a tree of siblings.
    pub sort: Sort,
    /// Most rows; of a tree those with most inclusive time.
    pub limit: Option<usize>,
    /// How it is written.
    pub format: Format,
    /// Columns of the terminal, if it is one: names are cut to fit.
    pub width: Option<u16>,
}

/// A report before it is given a format.
struct Report {
    title: String,
    table: Table,
    notes: Vec<String>,
}

/// Reports on the trace in `directory`.
///
/// # Errors
/// The trace cannot be read, `out` not be written, or the order does not suit the rows.
pub fn run(directory: &Path, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let trace = Trace::open(directory)?;
    let report = sum_up(&trace, options)?;
    match options.format {
        Format::Table => render::table(&report, options.width, out)?,
        Format::Csv => render::csv(&report.table, out)?,
        Format::Json => render::json(&report, out)?,
    }
    Ok(())
}

fn sum_up(trace: &Trace, options: &Options) -> Result<Report, Error> {
    let losses = trace.losses()?;
    let (mut table, lost_callers) = match Grouping::new(options.by, trace) {
        Some(grouping) => {
            let mut walk = walk(trace, Counting::around(Groups::new(grouping), trace))?;
            let mut table = walk.visitor.inside.table(options.sort, &losses);
            walk.visitor.add_to(&mut table, options.by);
            (table, walk.lost_callers)
        }
        None => {
            let order = tree::Order::new(options.sort)?;
            let walk = walk(trace, Counting::around(Tree::default(), trace))?;
            let mut table = walk.visitor.inside.table(trace, order, options.limit);
            walk.visitor.add_to(&mut table, options.by);
            (table, walk.lost_callers)
        }
    };
    let left_out = table.limit(options.limit);
    let notes = notes::notes(trace, &losses, lost_callers, left_out)?;
    Ok(Report { title: notes::title(trace), table, notes })
}

fn walk<V: walk::Visitor>(trace: &Trace, visitor: V) -> Result<Walk<V>, Error> {
    let mut walk = Walk::new(visitor);
    let mut calls = Vec::new();
    for batch in trace.calls().rev() {
        let batch = batch?;
        walk.visitor.readings(&batch);
        calls.append(&mut batch.into_calls());
        if calls.len() >= CHUNK {
            walk.chunk(&mut calls);
            calls.clear();
        }
    }
    walk.chunk(&mut calls);
    walk.finish();
    Ok(walk)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{ClockAnchor, Event, EventKind, Loss, LossReason, Sink, Summary, Timestamp};

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

calls  inclusive  exclusive      mean       p50       p99       max  library    function
    1   5.000 us   3.510 us  5.000 us  5.000 us  5.000 us  5.000 us  libone.so  a

rows left out: 1
3 calls of 6 regions on 2 threads; 2 lost (ring full: 2), 1 refused, 0 unfinished, 0 unwound, 0 without exit
"
        );
    }

    #[test]
    fn csv_has_all_columns_in_nanoseconds() {
        let folder = finished();
        assert_eq!(
            report(folder.path(), &Options { format: Format::Csv, sort: Sort::Calls, ..Options::default() }),
            "\
calls,inclusive_ns,exclusive_ns,min_ns,mean_ns,p50_ns,p99_ns,max_ns,lost,returned,unwound,open,unseen,\
region,file_offset,library,function
2,1590,1590,100,795,100,1490,1490,0,2,0,0,0,1,64,libone.so,b
1,5000,3510,5000,5000,5000,5000,5000,0,1,0,0,0,0,64,libone.so,a
"
        );
        assert_eq!(
            report(folder.path(), &Options { format: Format::Csv, by: By::Tree, ..Options::default() }),
            "\
node,parent,depth,region,calls,share,inclusive_ns,exclusive_ns,library,function
1,,0,0,1,0.980392,5000,3510,libone.so,a
2,1,1,1,1,0.292157,1490,1490,libone.so,b
3,,0,1,1,0.019608,100,100,libone.so,b
"
        );
    }

    #[test]
    fn json_has_title_rows_and_notes() {
        let folder = finished();
        let options = Options { format: Format::Json, by: By::Thread, sort: Sort::Name, ..Options::default() };
        let value: serde_json::Value = serde_json::from_str(&report(folder.path(), &options)).unwrap();
        assert_eq!(value["title"], "prog on box (Linux 6.18), recorded for 2.000 ms");
        assert_eq!(value["rows"].as_array().unwrap().len(), 2);
        assert_eq!(value["rows"][0]["thread"], "main\\x1b");
        assert_eq!(value["rows"][1]["thread"], "worker");
        assert_eq!(value["rows"][1]["inclusive_ns"], 100);
        assert_eq!(value["rows"][1]["lost"], 2);
        assert_eq!(value["notes"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn an_unfinished_recording_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let loss = Loss { reason: LossReason::TooDeep, region: None, count: 4 };
        let since = Timestamp(1_000);
        for kind in [EventKind::Loss(loss), EventKind::BlindWindow { library: "/l".into(), since }] {
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
