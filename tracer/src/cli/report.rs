//! `rtrace report`: a stored trace summed up on standard output.

use super::args::Report;
use super::{Outcome, screen};

/// Prints the report.
pub fn report(options: &Report) -> anyhow::Result<Outcome> {
    let mut text = Vec::new();
    let look = screen::look(options.display, options.full_names);
    rtrace_report::run(&options.directory, &options.options(look), &mut text)?;
    screen::show(&text, options.display)?;
    Ok(Outcome::Complete)
}
