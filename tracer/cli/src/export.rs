//! `rtrace export`: a stored trace in the format of another tool.

use std::collections::HashSet;
use std::time::Duration;

use rtrace::target::privilege;
use rtrace_exporters::{Destination, ExportError, Exported, Selection, TraceSet};
use rtrace_model::{Region, Timestamp};
use rtrace_plan::Pattern;

use super::args::Export;
use super::message::{Hint, tell};
use super::{Outcome, spinner};

/// Writes the export, then says where it is.
pub fn export(options: &Export) -> anyhow::Result<Outcome> {
    let trace = TraceSet::open(&options.directory)?;
    if trace.summary().is_none() {
        tell!("the recording is still running, or was interrupted: the last calls are missing");
    }
    for warning in trace.warnings() {
        tell!("warning: {warning}");
    }
    let selection = selection(options, &trace)?;
    let destination = options.destination(privilege::invoker());
    let write = || rtrace_exporters::export(&trace, options.format, &selection, &destination);
    let result = spinner::reading(&[&options.directory], write);
    let exported = result.map_err(|error| hinted(error, options.format.name))?;
    if let Destination::Path { path, .. } = &destination {
        let (path, format) = (path.display().to_string(), options.format);
        tell!("wrote {} calls to {path}; opens in {}", exported.calls, format.opens_in);
    }
    warn(exported, &selection);
    Ok(Outcome::Complete)
}

fn warn(exported: Exported, selection: &Selection) {
    if exported.lost_callers > 0 && selection.is_all() {
        tell!("the callers of {} calls were lost: these calls appear under the next caller up", exported.lost_callers);
    }
    if exported.moved > 0 {
        tell!("warning: {} timestamps ran backward and were corrected: the trace is damaged", exported.moved);
    }
}

fn hinted(error: ExportError, format: &str) -> anyhow::Error {
    let hint = match &error {
        ExportError::Exists { .. } => "overwrite it with `--force`, or choose another file with `-o PATH`".to_owned(),
        ExportError::NotAStream { .. } => format!("rtrace export DIR --format {format} -o PATH"),
        _ => return error.into(),
    };
    Err::<(), _>(error).hint(hint).expect_err("it is an error")
}

/// Turns names and times relative to the recording into those of the trace.
fn selection(options: &Export, trace: &TraceSet) -> anyhow::Result<Selection> {
    let begin = trace.header().begin.monotonic;
    let after = |time: Duration| Timestamp(begin.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    let mut selection = Selection { from: options.from.map(after), to: options.to.map(after), ..Selection::default() };
    if !options.functions.is_empty() {
        let regions = trace.regions().iter().filter(|region| is_one_of(&options.functions, &names(region)));
        let regions: HashSet<_> = regions.map(|region| region.id).collect();
        anyhow::ensure!(!regions.is_empty(), "failed to select functions: none in the trace matches --func");
        selection.regions = Some(regions);
    }
    Ok(selection)
}

fn is_one_of(patterns: &[Pattern], names: &[String]) -> bool {
    patterns.iter().any(|pattern| names.iter().any(|name| pattern.matches(name)))
}

/// All names of a function.
fn names(region: &Region) -> Vec<String> {
    let symbols = region.symbols.iter().map(|name| name.symbol.clone());
    symbols.chain([region.name.clone()]).collect()
}
