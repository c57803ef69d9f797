//! What is said around a report's rows: of which recording it is, and what is missing from it.

use std::collections::BTreeSet;

use rtrace_exporters::TraceSet;
use rtrace_model::{EventKind, Loss, LossReason, Process, escape, format_ns};

use super::Error;

/// Programs that the title names.
const NAMED: usize = 3;

/// One line: programs, host, length.
pub(super) fn title(trace: &TraceSet) -> String {
    let mut programs: Vec<&str> = trace.processes().iter().map(program).collect();
    programs.sort_unstable();
    programs.dedup();
    let header = trace.header();
    let mut title = escape(&programs[..programs.len().min(NAMED)].join(", ")).into_owned();
    if programs.len() > NAMED {
        title.push_str(&format!(" and {} more programs", programs.len() - NAMED));
    }
    title.push_str(&format!(" on {} (Linux {})", escape(&header.host), escape(&header.kernel)));
    if let Some(summary) = trace.summary() {
        let length = summary.end.monotonic.since(header.begin.monotonic);
        title.push_str(&format!(", recorded for {}", format_ns(length)));
    }
    title
}

fn program(process: &Process) -> &str {
    process.executable.rsplit('/').next().unwrap_or(&process.executable)
}

/// Lines below the rows.
pub(super) fn notes(
    trace: &TraceSet,
    losses: &[Loss],
    lost_callers: u64,
    left_out: usize,
) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    if left_out > 0 {
        notes.push(format!("rows left out: {left_out}"));
    }
    match trace.summary() {
        Some(summary) => notes.push(summary.to_string()),
        None => {
            notes.push("the recording did not end cleanly, or still runs: its last second may be missing".to_owned());
            notes.extend(lost(losses));
        }
    }
    if !trace.profile().is_empty() {
        notes.push("calls were folded by call path: percentiles are upper bounds, all else is exact".to_owned());
    }
    notes.extend(without_record(trace));
    if lost_callers > 0 {
        notes.push(format!("calls whose caller is not on record: {lost_callers}"));
    }
    notes.extend(gaps(trace)?);
    notes.extend(trace.warnings().iter().map(ToString::to_string));
    Ok(notes)
}

/// Which counts are exact and which are not, where a budget left calls without a record.
fn without_record(trace: &TraceSet) -> Option<String> {
    let regions: BTreeSet<_> = trace.estimates().map(|estimate| estimate.region).collect();
    (!regions.is_empty()).then(|| {
        format!(
            "functions that the budget left without probes or times for a while: {}; calls and counted are exact, \
             estimated is not, and their time is in that of their callers",
            regions.len()
        )
    })
}

/// How well the rows share the time: the largest over the mean, which 1 says is even.
pub(super) fn imbalance(ratio: f64) -> String {
    format!("balance: the busiest has {ratio:.2} times the mean time")
}

fn lost(losses: &[Loss]) -> impl Iterator<Item = String> {
    LossReason::ALL.into_iter().filter_map(|reason| {
        let of_reason = losses.iter().filter(|loss| loss.reason == reason);
        let count = of_reason.fold(0_u64, |sum, loss| sum.saturating_add(loss.count));
        (count > 0).then(|| format!("calls lost: {count} ({})", reason.name()))
    })
}

/// What was used before it was probed or watched, or never watched, and what was counted in part.
fn gaps(trace: &TraceSet) -> Result<Vec<String>, Error> {
    let (mut libraries, mut variables) = (Gaps::default(), Gaps::default());
    let (mut of_counters, mut overwritten) = (BTreeSet::new(), 0);
    for events in trace.events() {
        for event in events? {
            match event.kind {
                EventKind::BlindWindow { since, .. } => libraries.add(event.time.since(since)),
                EventKind::Overwritten { sites, .. } => overwritten += sites,
                EventKind::Watched { since, .. } => variables.add(event.time.since(since)),
                EventKind::Unwatched { variable, reason } => {
                    of_counters.insert(format!("{} was not watched: {}", escape(&variable), escape(&reason)));
                }
                EventKind::Estimated { metric } => {
                    of_counters.insert(format!(
                        "{} is estimated: at times its hardware counted something else, or a switch of threads was missed",
                        escape(&metric)
                    ));
                }
                _ => {}
            }
        }
    }
    let libraries = libraries.note("libraries that ran before their probes were placed", "calls");
    let overwritten = (overwritten > 0)
        .then(|| format!("probes that the program wrote over: {overwritten}; calls may be missing, or their returns"));
    let variables = variables.note("variables that were there before they were watched", "accesses");
    Ok(libraries.into_iter().chain(overwritten).chain(variables).chain(of_counters).collect())
}

/// Times without observation.
#[derive(Default)]
struct Gaps {
    count: u64,
    longest: u64,
}

impl Gaps {
    fn add(&mut self, length: u64) {
        self.count += 1;
        self.longest = self.longest.max(length);
    }

    fn note(&self, what: &str, missing: &str) -> Option<String> {
        let longest = format_ns(self.longest);
        (self.count > 0).then(|| format!("{what}: {}, for up to {longest}; {missing} may be missing", self.count))
    }
}
