//! `rtrace report`: a stored trace summed up on standard output.

use std::path::Path;

use anyhow::Context as _;
use rtrace::target::privilege;
use rtrace_exporters::{Destination, ExportError};
use rtrace_model::{Peaks, Region, SymbolName};
use rtrace_plan::{Filter, SelectedFunction};
use rtrace_report::Look;
use rtrace_symbolizer::Symbol;

use super::args::{ReportArgs, read_filter};
use super::message::{Hint as _, tell};
use super::{Outcome, print, screen, spinner};

/// Prints the report.
pub fn report(options: &ReportArgs) -> anyhow::Result<Outcome> {
    if let Some(destination) = options.suggestion(privilege::invoker()) {
        return suggest(options, &destination);
    }
    if let Some(path) = &options.filter {
        let filter = read_filter(path)?;
        let is_left_out = |region: &Region| !admits(&filter, region);
        let said = spinner::reading(&[&options.directory], || rtrace_report::savings(&options.directory, is_left_out))?;
        print(format!("{said}\n").as_bytes())?;
        return Ok(Outcome::Complete);
    }
    if let Some(destination) = options.page(privilege::invoker()) {
        let peaks = options.peaks.as_deref().map(read_peaks).transpose()?;
        let write = || rtrace_report::html(&options.directory, options.part.chosen(), peaks.as_ref(), &destination);
        wrote(spinner::reading(&[&options.directory], write), &destination)?;
        return Ok(Outcome::Complete);
    }
    let mut text = Vec::new();
    let look = Look { full_names: options.full_names, notes: options.notes, ..screen::look(options.display) };
    let (directory, how) = (&options.directory, options.options(look));
    spinner::reading(&[directory], || rtrace_report::run(directory, &how, &mut text))?;
    screen::show(&text, options.display)?;
    Ok(Outcome::Complete)
}

/// Whether a filter leaves a function of a trace in.
fn admits(filter: &Filter, region: &Region) -> bool {
    let symbol =
        |name: &SymbolName| Symbol { name: name.symbol.clone(), version: name.version.clone(), is_default: false };
    let symbols: Vec<Symbol> = region.symbols.iter().map(symbol).collect();
    let source = region.source_file.as_deref();
    filter.admits(&SelectedFunction { symbols: &symbols, source, ..SelectedFunction::named(&region.name) })
}

/// What a machine can do at most, from a file.
fn read_peaks(file: &Path) -> anyhow::Result<Peaks> {
    let text = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("failed to read peaks from {}", file.display()))
        .hint("`rtrace doctor --peaks --json` writes such a file")
}

/// Says where a page is.
fn wrote(written: Result<(), rtrace_report::Error>, destination: &Destination) -> anyhow::Result<()> {
    hinted(written)?;
    if let Destination::Path { path, .. } = destination {
        tell!("wrote {}; opens in any browser", path.display());
    }
    Ok(())
}

/// Writes a filter file; none where nothing is worth leaving out.
fn suggest(options: &ReportArgs, destination: &Destination) -> anyhow::Result<Outcome> {
    let suggestion = spinner::reading(&[&options.directory], || rtrace_report::suggest(&options.directory))?;
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
