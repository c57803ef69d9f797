//! Which traces to compare, and how.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use rtrace_report::{By, DiffOptions, Look, Min};

use super::choice::{Choice, TableFormat, one_of};
use super::display::Display;
use super::part::PartOfTime;
use super::quantity::parse_min;

/// Options of `rtrace diff`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Diff {
    /// Baseline trace directory
    #[arg(value_name = "A")]
    pub first: PathBuf,

    /// Trace directory to compare with the baseline
    #[arg(value_name = "B")]
    pub second: PathBuf,

    /// What each row stands for
    #[arg(long, value_name = "ROWS", default_value = "function", value_parser = one_of(BY))]
    by: By,

    /// Hide rows with less inclusive time than this in both traces, such as 10us, 1ms or 0.5%
    #[arg(long, value_name = "TIME|SHARE", value_parser = parse_min)]
    min: Option<Min>,

    /// Which part of the time of both is compared.
    #[command(flatten)]
    pub part: PartOfTime,

    /// Show at most this many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

    /// Exit with status 1 if a row takes PERCENT more time, because it has slower or more calls
    #[arg(long, value_name = "PERCENT")]
    fail_on_regression: Option<f64>,

    /// Figures to show instead of the default ones, in this order
    #[arg(long, value_name = "FIGURES", value_delimiter = ',', value_parser = PossibleValuesParser::new(rtrace_report::diff_figures()))]
    columns: Vec<String>,

    /// Output format
    #[command(flatten)]
    format: TableFormat,

    /// Show names with all their arguments
    #[arg(long, help_heading = "Display")]
    pub full_names: bool,

    /// Show all notes below the table, also on a terminal
    #[arg(long, help_heading = "Display")]
    pub notes: bool,

    /// How it is shown.
    #[command(flatten)]
    pub display: Display,
}

impl Diff {
    /// The options of the comparison itself.
    pub fn options(&self, look: Look) -> DiffOptions {
        DiffOptions {
            by: self.by.clone(),
            min: self.min,
            part: self.part.chosen(),
            limit: self.limit,
            format: self.format.chosen(),
            columns: self.columns.clone(),
            look,
            regression: self.fail_on_regression.map(|percent| percent / 100.0),
        }
    }
}

const BY: [Choice<By>; 2] =
    [("function", "Function", By::Function), ("callpath", "Function and the full chain of its callers", By::Callpath)];

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # Show the largest changes
    rtrace diff before.rtrace after.rtrace --limit 20

    # Write all call paths that are new, gone, slower or faster
    rtrace diff before.rtrace after.rtrace --by callpath --format csv >changes.csv

    # In a test: fail if a function with at least 1 % of the time takes 10 % more
    rtrace diff before.rtrace after.rtrace --min 1% --fail-on-regression 10

EXIT STATUS:
    0 on success, also if the traces differ; 1 on failure; with --fail-on-regression, 1 for a
    regression.";
