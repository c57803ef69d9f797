//! `rtrace diff`: two traces compared on standard output.

use rtrace_report::Look;

use super::args::Diff;
use super::message::tell;
use super::{Outcome, screen, spinner};

/// Prints the comparison.
pub fn diff(options: &Diff) -> anyhow::Result<Outcome> {
    let traces = [options.first.as_path(), &options.second];
    let mut text = Vec::new();
    let look = Look { full_names: options.full_names, notes: options.notes, ..screen::look(options.display) };
    let compare = || rtrace_report::diff(traces[0], traces[1], &options.options(look), &mut text);
    let grown = spinner::reading(&traces, compare)?;
    screen::show(&text, options.display)?;
    if grown.is_empty() {
        return Ok(Outcome::Complete);
    }
    tell!("slower: {}", grown.join("; "));
    Ok(Outcome::Unable)
}
