//! Which part of the time of a recording is meant.

use std::time::Duration;

use clap::Args;
use rtrace_report::Part;

use super::quantity::parse_time;

/// A part of the recorded time; all of it by default.
#[derive(Clone, Copy, Debug, Args)]
pub struct PartOfTime {
    /// Show only calls that ended later than this after the start of the recording, such as 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Duration>,

    /// Show only calls that ended within this time of the start of the recording
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Duration>,
}

impl PartOfTime {
    /// The part, if not all is meant.
    pub fn chosen(self) -> Option<Part> {
        let [from, to] = [self.from, self.to].map(|time| Some(u64::try_from(time?.as_nanos()).unwrap_or(u64::MAX)));
        (from.is_some() || to.is_some()).then_some(Part { from, to })
    }
}
