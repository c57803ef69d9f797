//! `rtrace report`: a stored trace summed up on standard output.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Context as _;
use rtrace::target::privilege;
use rtrace_exporters::{Destination, ExportError, TraceSet};
use rtrace_model::{CallSite, CallSiteId, Inlined, Peaks, Region, SymbolName};
use rtrace_plan::{Filter, SelectedFunction, Selector};
use rtrace_report::Look;
use rtrace_symbolizer::{Symbol, normal_path};

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
    let trace = TraceSet::open(&options.directory)?;
    let callers = callers(&options.callers, &trace)?;
    let options_of_report = rtrace_report::Options { callers, ..options.options(look) };
    spinner::reading(&[&options.directory], || rtrace_report::run_on(&trace, &options_of_report, &mut text))?;
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

/// The call sites whose callers these select; `None` where all are asked for.
fn callers(selectors: &[Selector], trace: &TraceSet) -> anyhow::Result<Option<HashSet<CallSiteId>>> {
    if selectors.is_empty() {
        return Ok(None);
    }
    if trace.call_sites().is_empty() && trace.profile().is_empty() {
        return Err(anyhow::anyhow!("failed to select callers: the trace has no call sites"))
            .hint("they are stored when the recording ends");
    }
    let is_meant = |site: &&CallSite| selectors.iter().any(|selector| selects(selector, site));
    let sites: HashSet<CallSiteId> = trace.call_sites().iter().filter(is_meant).map(|site| site.id).collect();
    anyhow::ensure!(
        !sites.is_empty() || !trace.profile().is_empty(),
        "failed to select callers: none in the trace matches --caller"
    );
    Ok(Some(sites))
}

/// Whether a call site is in such a function, or on a line of such a file.
fn selects(selector: &Selector, site: &CallSite) -> bool {
    match selector {
        Selector::Name(pattern) => {
            let inlined = site.inlined.iter().map(|Inlined { function, .. }| function);
            site.function.iter().chain(inlined).any(|name| pattern.matches(name))
        }
        Selector::Source(pattern) => {
            site.source.as_ref().is_some_and(|source| pattern.matches(&normal_path(&source.file)))
        }
        Selector::Library(library, selector) => {
            let name = site.file.as_ref().and_then(|file| file.rsplit('/').next());
            name.is_some_and(|name| library.is_match(name)) && selects(selector, site)
        }
    }
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
