//! `rtrace info`: what a trace holds, on standard output.

use std::io::Write as _;

use super::args::Info;
use super::{Outcome, print};

/// Prints what there is to know.
pub fn info(options: &Info) -> anyhow::Result<Outcome> {
    let info = rtrace_report::info::Info::of(&options.directory)?;
    let mut text = Vec::new();
    if options.json {
        serde_json::to_writer_pretty(&mut text, &info)?;
        text.push(b'\n');
    } else {
        write!(text, "{info}")?;
    }
    print(&text)?;
    Ok(Outcome::Complete)
}
