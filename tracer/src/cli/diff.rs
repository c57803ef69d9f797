//! `rtrace diff`: two traces compared on standard output.

use rtrace::privilege;

use super::args::Diff;
use super::report::wrote;
use super::{Outcome, screen};

/// Prints the comparison.
pub fn diff(options: &Diff) -> anyhow::Result<Outcome> {
    if let Some(destination) = options.page(privilege::invoker()) {
        wrote(rtrace_report::html_since(&options.first, &options.second, &destination), &destination)?;
        return Ok(Outcome::Complete);
    }
    let mut text = Vec::new();
    let look = screen::look(options.display, options.full_names);
    let regression = rtrace_report::diff(&options.first, &options.second, &options.options(look), &mut text)?;
    screen::show(&text, options.display)?;
    Ok(if regression { Outcome::Unable } else { Outcome::Complete })
}
