//! `rtrace report`: a stored trace summed up on standard output.

use rtrace::privilege;
use rtrace_exporters::{Destination, ExportError};

use super::args::Report;
use super::message::{Hint as _, tell};
use super::{Outcome, screen};

/// Prints the report.
pub fn report(options: &Report) -> anyhow::Result<Outcome> {
    if let Some(destination) = options.page(privilege::invoker()) {
        let written = rtrace_report::html(&options.directory, &destination);
        written.map_err(anyhow::Error::from).map_err(|error| match error.downcast_ref() {
            Some(rtrace_report::Error::Page(ExportError::Exists { .. })) => {
                Err::<(), _>(error).hint("choose another file, or remove that one").expect_err("it is an error")
            }
            _ => error,
        })?;
        if let Destination::Path { path, .. } = destination {
            tell!("wrote {}; opens in any browser", path.display());
        }
        return Ok(Outcome::Complete);
    }
    let mut text = Vec::new();
    let look = screen::look(options.display, options.full_names);
    rtrace_report::run(&options.directory, &options.options(look), &mut text)?;
    screen::show(&text, options.display)?;
    Ok(Outcome::Complete)
}
