//! What is said below a report's rows: whether the recording is complete, and what is missing from it.

use std::collections::{BTreeMap, BTreeSet};

use rtrace_exporters::{Trace, TraceSet};
use rtrace_model::{EventKind, Loss, LossReason, Window, counted, escape, format_ns, grouped};

use super::Error;
use super::cpu;
use super::overhead::Slowdown;
use super::part::Part;
use super::people::Note;
use super::people::paint::Tone;

/// Lines below the rows, which may be of a part of the time only.
pub(super) fn notes(
    trace: &TraceSet,
    part: Option<Part>,
    losses: &[Loss],
    (lost_callers, left_out): (u64, usize),
) -> Result<Vec<Note>, Error> {
    let mut notes = Vec::new();
    if left_out > 0 {
        notes.push(more_rows(left_out));
    }
    notes.extend(part.map(|part| part.note().kept()));
    let of_all = if part.is_some() { "all of the recording: " } else { "" };
    match trace.summary() {
        Some(summary) => {
            let tone = if summary.is_complete() { Tone::Good } else { Tone::Warning };
            notes.push(Note { text: format!("{of_all}{summary}"), tone, is_kept: true });
        }
        None => {
            let unfinished = "the recording did not end cleanly, or still runs: its last second may be missing";
            // Else a warning says why it ended, and what is missing.
            let is_unexplained = !trace.traces().any(Trace::has_failed);
            notes.extend(is_unexplained.then(|| Note::warning(unfinished).kept()));
            notes.extend(lost(losses).map(|text| Note::warning(text).kept()));
        }
    }
    if let Some(slowdown) = Slowdown::of(trace)? {
        let text = slowdown.sentence();
        notes.push(if slowdown.overhead.is_high() { Note::warning(text) } else { Note::plain(text) }.kept());
    }
    notes.extend(cpu::note(trace));
    notes.extend(window(trace).map(Note::plain));
    if !trace.profile().is_empty() {
        notes.push(Note::plain("aggregated profile: percentiles are upper bounds, everything else is exact"));
    }
    notes.extend(without_record(trace, part.is_some()).map(Note::plain));
    if lost_callers > 0 {
        notes.push(Note::plain(format!("calls whose caller is not on record: {}", grouped(lost_callers))));
    }
    notes.extend(gaps(trace)?.into_iter().map(Note::warning));
    notes.extend(trace.warnings().iter().map(|warning| Note::warning(warning.to_string())));
    Ok(notes)
}

/// Rows that there are beside those that are shown.
pub(super) fn more_rows(count: usize) -> Note {
    Note::plain(counted(count as u64, "more row")).kept()
}

/// That there is a longer recording of which other calls were not kept.
fn window(trace: &TraceSet) -> Option<String> {
    let windows: Vec<&Window> = trace.traces().filter_map(|part| part.header().window.as_ref()).collect();
    let what = match windows.as_slice() {
        [] => return None,
        [only] => format!("a window of a longer recording, around `{}`", escape(&only.trigger)),
        _ => format!("{} windows of a longer recording", windows.len()),
    };
    let cut = windows.iter().filter(|window| window.is_cut).count();
    let cut = if cut > 0 { "; some of the time before did not fit into memory (--keep-memory)" } else { "" };
    Some(format!("{what}: calls before and after were not kept{cut}"))
}

/// Which counts are exact and which are not, where a budget left calls without a record.
fn without_record(trace: &TraceSet, is_part: bool) -> Option<String> {
    let regions: BTreeSet<_> = trace.estimates().iter().map(|estimate| estimate.region).collect();
    let said = match is_part {
        true => "calls without a record are not here, as they have no time",
        false => "calls and counted are exact, further calls are estimated",
    };
    (!regions.is_empty()).then(|| {
        format!(
            "{} throttled to stay within the budget: {said}, and their time is part of their callers' time",
            counted(regions.len() as u64, "function")
        )
    })
}

fn lost(losses: &[Loss]) -> impl Iterator<Item = String> {
    LossReason::ALL.into_iter().filter_map(|reason| {
        let of_reason = losses.iter().filter(|loss| loss.reason == reason);
        let count = of_reason.fold(0_u64, |sum, loss| sum.saturating_add(loss.count));
        let what = if reason.is_value() { "values missing" } else { "calls lost" };
        (count > 0).then(|| format!("{what}: {} ({})", grouped(count), reason.name()))
    })
}

/// What was used before it was probed or watched, or never watched, and what was counted in part.
fn gaps(trace: &TraceSet) -> Result<Vec<String>, Error> {
    let (mut libraries, mut variables) = (Gaps::default(), Gaps::default());
    let (mut of_counters, mut overwritten, mut without_values) = (BTreeSet::new(), 0, BTreeMap::new());
    let mut without_lines = BTreeSet::new();
    for events in trace.events() {
        for event in events? {
            match event.kind {
                EventKind::BlindWindow { since, .. } => libraries.add(event.time.since(since)),
                EventKind::Overwritten { sites, .. } => overwritten += sites,
                EventKind::Watched { since, .. } => variables.add(event.time.since(since)),
                EventKind::NoValues { reason, .. } => *without_values.entry(reason).or_insert(0_u64) += 1,
                EventKind::NoLines { file } => {
                    let problem = "source lines are missing: its debug information cannot be read";
                    without_lines.insert(format!("{}: {problem}", escape(&file)));
                }
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
    let without_values = without_values
        .into_iter()
        .map(|(reason, count)| format!("functions without values: {} ({})", grouped(count), escape(&reason)));
    let notes = libraries.into_iter().chain(overwritten).chain(variables).chain(without_values);
    let notes = notes.chain(without_lines).chain(of_counters);
    Ok(notes.collect())
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
