//! `rtrace export`: a stored trace in the format of another tool.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rtrace::target::privilege;
use rtrace_exporters::{Destination, ExportError, Exported, Selection, TraceSet};
use rtrace_model::{Location, Process, Region, Timestamp};
use rtrace_plan::Pattern;

use super::Outcome;
use super::args::Export;
use super::message::{Hint, tell};
use super::spinner::PATIENCE;

/// Steps of the bar.
const STEPS: u64 = 1000;

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
    let progress = ExportProgress::new();
    let result = rtrace_exporters::export(&trace, options.format, &selection, &destination, &|part| progress.at(part));
    drop(progress);
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
        selection.regions = Some(regions.map(|region| region.id).collect());
        ensure_some(&selection.regions, "functions", "--func")?;
    }
    if !options.threads.is_empty() || !options.processes.is_empty() {
        let chosen = |location: &&Location| {
            let thread = [location.tid.to_string(), location.name.clone()];
            let program = trace.process_of(location);
            let path = program.map(|process| process.executable.as_str()).unwrap_or_default();
            let names = [path, path.rsplit('/').next().unwrap_or(path), program.map(Process::name).unwrap_or(path)];
            let process: Vec<String> = [location.pid.to_string()].into_iter().chain(names.map(str::to_owned)).collect();
            (options.threads.is_empty() || is_one_of(&options.threads, &thread))
                && (options.processes.is_empty() || is_one_of(&options.processes, &process))
        };
        selection.locations = Some(trace.locations().iter().filter(chosen).map(|location| location.id).collect());
        ensure_some(&selection.locations, "threads", "--thread and --process")?;
    }
    Ok(selection)
}

fn ensure_some<T>(chosen: &Option<HashSet<T>>, what: &str, options: &str) -> anyhow::Result<()> {
    let none = chosen.as_ref().is_some_and(HashSet::is_empty);
    anyhow::ensure!(!none, "failed to select {what}: none in the trace matches {options}");
    Ok(())
}

fn is_one_of(patterns: &[Pattern], names: &[String]) -> bool {
    patterns.iter().any(|pattern| names.iter().any(|name| pattern.matches(name)))
}

/// All names of a function.
fn names(region: &Region) -> Vec<String> {
    let symbols = region.symbols.iter().map(|name| name.symbol.clone());
    symbols.chain([region.name.clone()]).collect()
}

/// A bar on standard error, once the work takes longer than expected; none where that is no terminal.
struct ExportProgress {
    begun: Instant,
    bar: OnceCell<ProgressBar>,
}

impl ExportProgress {
    fn new() -> ExportProgress {
        ExportProgress { begun: Instant::now(), bar: OnceCell::new() }
    }

    /// Shows which part of the work is done, from 0 to 1.
    fn at(&self, part: f64) {
        if self.bar.get().is_none() && self.begun.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{wide_bar} {percent} % {eta}").expect("the template is valid");
            ProgressBar::new(STEPS).with_style(style).with_elapsed(self.begun.elapsed())
        });
        bar.set_position((part * STEPS as f64) as u64);
    }
}

impl Drop for ExportProgress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
