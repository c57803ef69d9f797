//! Which traces are compared, and how.

use std::path::PathBuf;

use clap::Args;
use rtrace_report::{By, DiffOptions, Format, Min};

use super::choice::{Choice, FORMAT, one_of};
use super::quantity::parse_min;

/// Options of `rtrace diff`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Diff {
    /// Directory of the trace to compare with
    #[arg(value_name = "A")]
    pub first: PathBuf,

    /// Directory of the trace that is compared
    #[arg(value_name = "B")]
    pub second: PathBuf,

    /// What a row is
    #[arg(long, value_name = "ROWS", default_value = "function", value_parser = one_of(BY))]
    by: By,

    /// Leave out rows with less time in both, such as 10us, 1ms or 0.5%, callees included
    #[arg(long, value_name = "TIME|SHARE", value_parser = parse_min)]
    min: Option<Min>,

    /// Show at most so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

    /// End with status 1 if a row takes more time by PERCENT, its calls being slower or more
    #[arg(long, value_name = "PERCENT")]
    fail_on_regression: Option<f64>,

    /// How the comparison is written
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = one_of(FORMAT))]
    format: Format,
}

impl Diff {
    /// The options of the comparison itself, for a terminal of so many columns, if it is one.
    pub fn options(&self, width: Option<u16>) -> DiffOptions {
        DiffOptions {
            by: self.by,
            min: self.min,
            limit: self.limit,
            format: self.format,
            width,
            regression: self.fail_on_regression.map(|percent| percent / 100.0),
        }
    }
}

const BY: [Choice<By>; 2] = [
    ("function", "A function", By::Function),
    ("callpath", "A function and the whole chain of its callers", By::Callpath),
];

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # What changed most
    rtrace diff before.rtrace after.rtrace --limit 20

    # Which call paths are new, gone, slower
    rtrace diff before.rtrace after.rtrace --by callpath --format csv >changes.csv

    # In a test: status 1 if a function of weight takes a tenth more time
    rtrace diff before.rtrace after.rtrace --min 1% --fail-on-regression 10

EXIT STATUS:
    0, also when the traces differ; 1 on failure, and with --fail-on-regression for a regression.";
