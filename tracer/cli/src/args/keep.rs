//! What is kept of a recording until something happens.

use std::time::Duration;

use clap::{Args, value_parser};
use rtrace::flight::Trigger;

use super::quantity::{parse_buffer_size, parse_duration};

/// The options of the flight recorder.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flight recorder")]
pub struct Keep {
    /// Keep the last calls in memory, and write them only on a trigger
    ///
    /// Each time, rtrace writes the calls of this time before the trigger, and those of --keep-after, into a trace of its
    /// own: DIR/window-0001, DIR/window-0002, … No call is in two of them, so `rtrace report DIR` reads all as one.
    /// SIGUSR1 is always a trigger.
    #[arg(
        long, value_name = "TIME", value_parser = parse_duration,
        conflicts_with_all = ["mode", "min_duration", "budget"],
    )]
    pub keep: Option<Duration>,

    /// Write the kept calls when a call takes longer: 'FUNC > TIME', or 'FUNC' for any call; may be repeated
    ///
    /// FUNC is a name, a glob or a /regex/. A call that still runs meets the trigger within 0.3 s of its TIME.
    #[arg(long = "trigger", value_name = "TRIGGER", value_parser = parse_trigger, requires = "keep")]
    pub triggers: Vec<Trigger>,

    /// Also keep this much after a trigger
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s", requires = "keep")]
    pub keep_after: Duration,

    /// Memory for kept calls; older ones are dropped, and the window says so
    ///
    /// A call takes 72 bytes, and 16 more per counter. While a window is written, the next one is kept in as much again.
    #[arg(long, value_name = "SIZE", value_parser = parse_buffer_size, default_value = "256M", requires = "keep")]
    pub keep_memory: u32,

    /// Stop recording after this many windows
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=9_999), default_value_t = 10, requires = "keep")]
    pub windows: u32,
}

fn parse_trigger(text: &str) -> Result<Trigger, String> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Trigger::parse(text, |time| parse_duration(time).map(nanoseconds)).map_err(|error| error.to_string())
}
