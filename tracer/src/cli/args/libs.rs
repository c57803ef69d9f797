//! Options of `rtrace libs`.

use std::time::Duration;

use clap::Args;

use super::Processes;
use super::choice::TextOrJson;
use super::quantity::parse_duration;

/// Options of `rtrace libs`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Libs {
    /// Which processes.
    #[command(flatten)]
    pub processes: Processes,

    /// Count calls for TIME, and show call rates and overhead
    ///
    /// Meanwhile each call to any of the functions costs the program 1 us or more. Nothing else is recorded.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "1s",
        require_equals = true)]
    pub sample: Option<Duration>,

    /// Output format
    #[command(flatten)]
    pub format: TextOrJson,
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # List the libraries of a process, with the number of functions that can be traced
    rtrace libs redis-server

    # Count calls for a second: which of them are used, and what would tracing them cost?
    rtrace libs redis-server --sample

    # Write the list for a script
    rtrace libs -p 4711 --json";
