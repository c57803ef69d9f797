//! `rtrace report`: a stored trace summed up on standard output.

use std::io::{BufWriter, Write, stdout};

use anyhow::Context;

use super::args::Report;
use super::{Outcome, terminal_columns};

/// Prints the report.
pub fn report(options: &Report) -> anyhow::Result<Outcome> {
    let mut output = BufWriter::new(stdout().lock());
    rtrace_report::run(&options.directory, &options.options(terminal_columns()), &mut output)?;
    output.flush().context("failed to write to standard output")?;
    Ok(Outcome::Complete)
}
