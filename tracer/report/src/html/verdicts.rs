//! What a recording says, in sentences: first whether it can be trusted, then where the time went.

use rtrace_exporters::TraceSet;
use rtrace_model::{Loss, Untimed, escape, format_ns};
use serde_json::{Value as Json, json};

use super::rows;
use super::tables::Tables;
use crate::efficiency::Balance;
use crate::info::Info;
use crate::part::Part;
use crate::table::{Datum, Table};

/// How a sentence is meant.
#[derive(Clone, Copy)]
enum SentenceTone {
    Good,
    Plain,
    Warning,
}

impl SentenceTone {
    const fn name(self) -> &'static str {
        match self {
            SentenceTone::Good => "good",
            SentenceTone::Plain => "plain",
            SentenceTone::Warning => "warning",
        }
    }
}

/// Smallest share of the total time for which a function gets a sentence.
const MIN_SHARE: f64 = 0.01;

/// p99/median ratio above which a function is reported as uneven.
const UNEVEN: u64 = 20;

/// max/mean ratio above which work is reported as unbalanced.
const UNBALANCED: f64 = 1.25;

/// The sentences, each with how it is meant.
pub(super) fn verdicts(
    trace: &TraceSet,
    info: &Info,
    tables: &Tables<'_>,
    (has_untimed, part): (bool, Option<Part>),
) -> Vec<Json> {
    let mut said: Vec<_> = part.map(|part| (SentenceTone::Plain, sentence(&part.note().text))).into_iter().collect();
    let (tone, text) = completeness(trace, info);
    said.push((tone, if part.is_some() { format!("All of the recording: {text}") } else { text }));
    if info.calls == 0 {
        let text = "No call was recorded: the functions below had probes, and none of them was called.";
        said.push((SentenceTone::Warning, text.to_owned()));
    }
    if let Some(missed) = info.missed {
        let unseen = missed.to_string();
        let text = format!("A budget left calls without a record: {} counted exactly, {unseen}.", info.counted);
        said.push((SentenceTone::Warning, text));
    }
    let high = info.slowdown.filter(|slowdown| slowdown.overhead.is_high());
    said.extend(high.map(|slowdown| (SentenceTone::Warning, sentence(&slowdown.sentence()))));
    said.extend(has_untimed.then(|| (SentenceTone::Warning, not_timed(&tables.functions, info, part))));
    said.extend(mostly_tracing(tables));
    said.extend(first_functions(&tables.functions).map(|text| (SentenceTone::Plain, text)));
    said.extend(uneven(&tables.functions).map(|text| (SentenceTone::Plain, text)));
    said.extend(balance(tables).map(|text| (SentenceTone::Plain, text)));
    said.into_iter().map(|(tone, text)| json!([tone.name(), text])).collect()
}

fn completeness(trace: &TraceSet, info: &Info) -> (SentenceTone, String) {
    let Some(summary) = trace.summary() else {
        let text = "The recording did not end cleanly, or still runs: its last second may be missing.".to_owned();
        let explained = trace.traces().filter(|part| part.has_failed()).flat_map(|part| part.warnings().first());
        return (SentenceTone::Warning, explained.map(ToString::to_string).next().unwrap_or(text));
    };
    if summary.is_complete() {
        return (SentenceTone::Good, "Complete: no call of a probed function is missing.".to_owned());
    }
    let lost: u64 = info.losses.iter().map(|loss: &Loss| loss.count).sum();
    let some = |count: u64, text: String| (count > 0).then_some(text);
    let longest = info.blind_windows.iter().map(|window| window.duration_ns).max().unwrap_or(0);
    let reasons = [
        some(lost, format!("{lost} calls or events were lost")),
        some(
            info.blind_windows.len() as u64,
            format!("{} libraries ran without probes for up to {}", info.blind_windows.len(), format_ns(longest)),
        ),
        some(info.overwritten, format!("programs wrote over {} probes", info.overwritten)),
        some(info.withheld.len() as u64, format!("{} programs have other rights", info.withheld.len())),
    ];
    let budget = summary.is_throttled().then(|| "a budget left calls out".to_owned());
    let reasons: Vec<String> = reasons.into_iter().flatten().chain(budget).collect();
    (SentenceTone::Warning, format!("Calls may be missing: {}.", reasons.join("; ")))
}

/// How many calls were not timed, and why, which is known of all of the time only. Which functions these are of is in
/// the report's remark.
fn not_timed(functions: &Table, info: &Info, part: Option<Part>) -> String {
    let sum = |key| {
        functions
            .rows
            .iter()
            .filter_map(|row| figure(functions, row, key))
            .fold(0, |sum: u64, of| sum.saturating_add(of))
    };
    let (unseen, calls) = (sum("unseen"), sum("calls").max(1));
    let reasons = if part.is_some() { Vec::new() } else { Untimed::by_reason(&info.untimed) };
    let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{}: {count}", reason.name())).collect();
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let share = 100.0 * unseen as f64 / calls as f64;
    format!("{unseen} calls ({share:.1} %) were not timed{why}: their time is not in here.")
}

/// Functions whose times are to a large part what tracing takes.
fn mostly_tracing(tables: &Tables<'_>) -> Option<(SentenceTone, String)> {
    let table = &tables.functions;
    let timed = || table.rows.iter().filter(|row| figure(table, row, "timed").is_some_and(|timed| timed > 0));
    let corrected = ["inclusive_corrected_ns", "exclusive_corrected_ns"];
    super::rows::column(table, corrected[0])?;
    let is_known = |row: &[Datum]| corrected.iter().all(|key| figure(table, row, key).is_some());
    let marked = timed().filter(|row| !is_known(row)).count();
    (marked > 0).then(|| {
        let text = format!(
            "Of the recorded times of {marked} of {} functions, a third or more is tracing's own; they are marked.",
            timed().count()
        );
        (SentenceTone::Warning, text)
    })
}

/// Which functions have most of the time.
fn first_functions(table: &Table) -> Option<String> {
    let mut timed = table.rows.iter().filter_map(|row| Some((row, share(table, row, "exclusive_share")?)));
    let (first, most) = timed.next()?;
    let mut text = format!("{} took {:.0} % of the traced time by itself", function(table, first), 100.0 * most);
    let others: Vec<_> = timed.take(2).collect();
    if !others.is_empty() {
        let sum = others.iter().fold(most, |sum, &(_, share)| sum + share);
        let names: Vec<String> = others.iter().map(|&(row, _)| function(table, row)).collect();
        text.push_str(&format!("; with {}, it is {:.0} %", names.join(" and "), 100.0 * sum));
    }
    Some(text + ".")
}

/// The function of most time whose calls are quick as a rule, and some slow. How long one waits differs by nature.
fn uneven(table: &Table) -> Option<String> {
    let waits = rows::column(table, "waits_for");
    let row = table.rows.iter().find(|row| {
        let figure = |key| figure(table, row, key);
        let is_work = waits.is_none_or(|place| row[place].is_zero());
        let is_worth = is_work && share(table, row, "share").is_some_and(|share| share >= MIN_SHARE);
        let [p50, p99] = ["p50_ns", "p99_ns"].map(|key| figure(key).unwrap_or(0));
        is_worth && p50 > 0 && p99 / p50 >= UNEVEN
    })?;
    let [p50, p99, max] = ["p50_ns", "p99_ns", "max_ns"].map(|key| format_ns(figure(table, row, key).unwrap_or(0)));
    Some(format!(
        "{} is slow only sometimes: half of its calls take {p50} or less, one in a hundred {p99} or more, the slowest {max}.",
        function(table, row)
    ))
}

fn balance(tables: &Tables<'_>) -> Option<String> {
    let Balance { ratio, busiest, row: what, .. } = tables.balance.as_ref()?;
    let (ratio, busiest) = ((*ratio)?, sentence(busiest));
    Some(match ratio {
        UNBALANCED.. => format!("{} does the most work, {ratio:.2} times the mean.", busiest.trim_end_matches('.')),
        _ => format!("The work is spread evenly: no {what} works more than {ratio:.2} times the mean."),
    })
}

/// A part of the time without tracing, if there is one.
fn share(table: &Table, row: &[Datum], key: &str) -> Option<f64> {
    match row[rows::column(table, key)?] {
        Datum::Share(share) if share > 0.0 => Some(share),
        _ => None,
    }
}

fn figure(table: &Table, row: &[Datum], key: &str) -> Option<u64> {
    match row[rows::column(table, key)?] {
        Datum::Count(number) | Datum::Time(number) | Datum::Traced(number) | Datum::AtMost(number) => Some(number),
        _ => None,
    }
}

/// The name of a row's function, not too long for a sentence.
fn function(table: &Table, row: &[Datum]) -> String {
    const LONGEST: usize = 80;
    let Some(Datum::Name(name)) = rows::column(table, "function").map(|place| &row[place]) else {
        return String::new();
    };
    let name = escape(name);
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into_owned(),
    }
}

/// A remark with a capital and a full stop.
fn sentence(remark: &str) -> String {
    let mut letters = remark.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}
