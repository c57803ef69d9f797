//! What is reported of a trace, and how.

use std::path::PathBuf;

use clap::Args;
use rtrace_report::{By, Format, Min, Options, Sort};

use super::choice::{Choice, FORMAT, one_of};
use super::quantity::parse_min;

/// Options of `rtrace report`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Report {
    /// Directory of the trace, or of the traces of a parallel job
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// What a row is
    #[arg(long, value_name = "ROWS", default_value = "function", value_parser = one_of(BY))]
    by: By,

    /// Also show the times of functions without what tracing itself took
    ///
    /// What it costs is measured on this machine when recording begins, for each kind of probe.
    /// Counted CPU time is corrected alike; other counters are shown as recorded.
    #[arg(long, conflicts_with_all = ["by", "columns", "histogram", "min"])]
    corrected: bool,

    /// What comes first: the largest figure, or the first name [default: exclusive, in a tree inclusive]
    #[arg(long, value_name = "FIGURE", value_parser = one_of(SORT))]
    sort: Option<Sort>,

    /// Show at most so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

    /// Leave out rows with less time, such as 10us, 1ms or 0.5%, callees included
    #[arg(long, value_name = "TIME|SHARE", value_parser = parse_min)]
    min: Option<Min>,

    /// Figures to show instead of the usual ones, in this order
    #[arg(long, value_name = "FIGURES", value_delimiter = ',', value_parser = COLUMNS)]
    columns: Vec<String>,

    /// Show how durations are distributed, in steps of a power of two
    #[arg(long, conflicts_with = "columns")]
    histogram: bool,

    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = one_of(FORMAT))]
    format: Format,
}

impl Report {
    /// The options of the report itself, for a terminal of so many columns, if it is one.
    pub fn options(&self, width: Option<u16>) -> Options {
        let usual = if self.by == By::Tree { Sort::Inclusive } else { Sort::default() };
        Options {
            by: self.by,
            sort: self.sort.unwrap_or(usual),
            min: self.min,
            columns: self.columns.clone(),
            histogram: self.histogram,
            corrected: self.corrected,
            limit: self.limit,
            format: self.format,
            width,
        }
    }
}

const BY: [Choice<By>; 7] = [
    ("function", "A function", By::Function),
    ("tree", "A call path: who called whom", By::Tree),
    ("thread", "A thread", By::Thread),
    ("library", "A library", By::Library),
    ("process", "A process", By::Process),
    ("caller", "A function and who called it", By::Caller),
    ("callpath", "A function and the whole chain of its callers", By::Callpath),
];

const SORT: [Choice<Sort>; 11] = [
    (Sort::Calls.name(), "Number of calls", Sort::Calls),
    (Sort::Inclusive.name(), "Time with callees", Sort::Inclusive),
    (Sort::Exclusive.name(), "Time without traced callees", Sort::Exclusive),
    (Sort::Mean.name(), "Mean duration", Sort::Mean),
    (Sort::P50.name(), "Median duration", Sort::P50),
    (Sort::P90.name(), "Duration that one call in ten exceeds", Sort::P90),
    (Sort::P99.name(), "Duration that one call in a hundred exceeds", Sort::P99),
    (Sort::P999.name(), "Duration that one call in a thousand exceeds", Sort::P999),
    (Sort::Max.name(), "Longest duration", Sort::Max),
    (Sort::Lost.name(), "Calls known to be missing", Sort::Lost),
    (Sort::Name.name(), "Name, from A to Z", Sort::Name),
];

/// The headings of figures.
const COLUMNS: [&str; 21] = [
    "calls",
    "timed",
    "share",
    "inclusive",
    "exclusive",
    "min",
    "mean",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "lost",
    "counted",
    "estimated",
    "at least",
    "at most",
    "returned",
    "unwound",
    "open",
    "unseen",
];

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # The functions that took most time
    rtrace report out.rtrace --limit 20

    # Who called whom
    rtrace report out.rtrace --by tree

    # Who calls what takes at least a hundredth of the time
    rtrace report out.rtrace --by caller --min 1%

    # Is it slow always or sometimes
    rtrace report out.rtrace --columns calls,p50,p99,p99.9,max
    rtrace report out.rtrace --histogram --limit 3

    # All functions for a script
    rtrace report out.rtrace --format csv >functions.csv";
