//! `rtrace plan`: what would be probed, without probing.

use super::args::Plan;
use std::io::{BufWriter, Write as _, stdout};

use anyhow::Context as _;
use rtrace::target;

use super::plan_table::{self, View};
use super::{Outcome, record, terminal_columns};

/// Prints the plan.
pub fn plan(options: &Plan, verbose: bool) -> anyhow::Result<Outcome> {
    let patterns = &options.selection.libraries;
    let target = match options.target.pids.as_slice() {
        [] => target::of_command(&options.target.command, patterns)?,
        pids => target::of_processes(pids, patterns)?,
    };
    let children = options.target.pids.is_empty();
    let plan = record::plan(target, &record::plan_options(&options.selection, record::mechanism().ok(), children));
    let mut output = BufWriter::new(stdout().lock());
    plan_table::render(&plan, View { format: options.format, verbose, width: terminal_columns() }, &mut output)
        .and_then(|()| output.flush())
        .context("failed to write to standard output")?;
    Ok(Outcome::Complete)
}
