//! `rtrace report`: a stored trace summed up on standard output.

use rtrace::privilege;
use rtrace_exporters::{Destination, ExportError};

use super::args::Report;
use super::message::{Hint as _, tell};
use super::{Outcome, screen};

/// Prints the report.
pub fn report(options: &Report) -> anyhow::Result<Outcome> {
    if let Some(destination) = options.suggestion(privilege::invoker()) {
        return suggest(options, &destination);
    }
    if let Some(destination) = options.page(privilege::invoker()) {
        hinted(rtrace_report::html(&options.directory, &destination))?;
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

/// Writes a filter file; none where nothing is worth leaving out.
fn suggest(options: &Report, destination: &Destination) -> anyhow::Result<Outcome> {
    let suggestion = rtrace_report::suggest(&options.directory)?;
    if !suggestion.is_empty() {
        hinted(destination.file(|out| Ok(suggestion.write(out)?)).map_err(rtrace_report::Error::Page))?;
    }
    tell!("{}", suggestion.summary());
    Ok(Outcome::Complete)
}

/// Says what to do about a file that is there already.
fn hinted(written: Result<(), rtrace_report::Error>) -> anyhow::Result<()> {
    match written {
        Err(error @ rtrace_report::Error::Page(ExportError::Exists { .. })) => {
            Err(error).hint("choose another file, or remove that one")
        }
        written => Ok(written?),
    }
}
