//! What is reported of a trace, and how.

use std::path::PathBuf;

use clap::Args;
use rtrace::report::{By, Format, Options, Sort};

use super::choice::{Choice, FORMAT, one_of};

/// Options of `rtrace report`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Report {
    /// Directory of the trace
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// What a row is
    #[arg(long, value_name = "ROWS", default_value = "function", value_parser = one_of(BY))]
    by: By,

    /// Also show the times of functions without what tracing itself took
    ///
    /// What it costs is measured on this machine when recording begins, for each kind of probe.
    #[arg(long, conflicts_with = "by")]
    corrected: bool,

    /// What comes first: the largest figure, or the first name [default: exclusive, in a tree inclusive]
    #[arg(long, value_name = "FIGURE", value_parser = one_of(SORT))]
    sort: Option<Sort>,

    /// Show at most so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

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
            limit: self.limit,
            format: self.format,
            width,
            corrected: self.corrected,
        }
    }
}

const BY: [Choice<By>; 5] = [
    ("function", "A function", By::Function),
    ("tree", "A call path: who called whom", By::Tree),
    ("thread", "A thread", By::Thread),
    ("library", "A library", By::Library),
    ("process", "A process", By::Process),
];

const SORT: [Choice<Sort>; 9] = [
    (Sort::Calls.name(), "Number of calls", Sort::Calls),
    (Sort::Inclusive.name(), "Time with callees", Sort::Inclusive),
    (Sort::Exclusive.name(), "Time without traced callees", Sort::Exclusive),
    (Sort::Mean.name(), "Mean duration", Sort::Mean),
    (Sort::P50.name(), "Median duration", Sort::P50),
    (Sort::P99.name(), "Duration that one call in a hundred exceeds", Sort::P99),
    (Sort::Max.name(), "Longest duration", Sort::Max),
    (Sort::Lost.name(), "Calls known to be missing", Sort::Lost),
    (Sort::Name.name(), "Name, from A to Z", Sort::Name),
];

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # The functions that took most time
    rtrace report out.rtrace --limit 20

    # Who called whom
    rtrace report out.rtrace --by tree

    # All functions for a script
    rtrace report out.rtrace --format csv >functions.csv";
