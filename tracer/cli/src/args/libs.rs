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

    /// Sample for TIME in which libraries CPU time is spent
    ///
    /// A clock interrupts the CPUs 1,000 times a second. No probe is placed: the processes lose a few percent meanwhile.
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

    # Sample for a second: in which of them is CPU time spent?
    rtrace libs redis-server --sample

    # Write the list for a script
    rtrace libs -p 4711 --json";
