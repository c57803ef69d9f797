//! Of which trace is told what it holds.

use std::path::PathBuf;

use clap::Args;

/// Options of `rtrace info`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Info {
    /// Directory of the trace, or of the traces of a parallel job
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # What was recorded, when, how, and is it whole
    rtrace info out.rtrace

    # Bytes per call, for a script
    rtrace info out.rtrace --json | jq .bytes_per_call";
