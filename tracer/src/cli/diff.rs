//! `rtrace diff`: two traces compared on standard output.

use std::io::{BufWriter, Write, stdout};

use anyhow::Context;

use super::args::Diff;
use super::{Outcome, terminal_columns};

/// Prints the comparison.
pub fn diff(options: &Diff) -> anyhow::Result<Outcome> {
    let mut output = BufWriter::new(stdout().lock());
    let compared = options.options(terminal_columns());
    let regression = rtrace_report::diff(&options.first, &options.second, &compared, &mut output)?;
    output.flush().context("failed to write to standard output")?;
    Ok(if regression { Outcome::Unable } else { Outcome::Complete })
}
