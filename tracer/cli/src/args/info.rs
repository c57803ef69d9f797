//! Which trace to describe.

use std::path::PathBuf;

use clap::Args;

use super::choice::TextOrJson;
use super::display::Display;

/// Options of `rtrace info`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct InfoArgs {
    /// Trace directory, or directory of a parallel job
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Output format
    #[command(flatten)]
    pub format: TextOrJson,

    /// Print SQL views that join the files of the trace, for DuckDB
    ///
    /// The views, such as `calls` and `functions`, are the same for a trace and for a parallel job. They name the
    /// directory, so print them again after it has moved. docs/recipes.md
    #[arg(long, conflicts_with_all = ["format", "json"])]
    pub sql: bool,

    /// How it is shown.
    #[command(flatten)]
    pub display: Display,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # What was recorded; is it complete; is it still recording?
    rtrace info out.rtrace

    # Query the trace in DuckDB
    rtrace info out.rtrace --sql >out.sql
    duckdb -init out.sql

    # Print the bytes per call, for a script
    rtrace info out.rtrace --format json | jq .bytes_per_call";
