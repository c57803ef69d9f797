//! What a recording says, in sentences: first whether it can be trusted, then where the time went.

use rtrace_model::{escape, format_ns};
use serde_json::{Value as Json, json};

use super::rows;
use super::tables::Tables;
use crate::efficiency::Balance;
use crate::people::Note;
use crate::people::paint::Tone;
use crate::table::{Datum, Table};

/// Smallest share of the total time for which a function gets a sentence.
const MIN_SHARE: f64 = 0.01;

/// p99/median ratio above which a function is reported as uneven.
const UNEVEN: u64 = 20;

/// max/mean ratio above which work is reported as unbalanced.
const UNBALANCED: f64 = 1.25;

/// The sentences, each with how it is meant: what the report never leaves out or warns of, then what its rows say.
pub(super) fn verdicts(notes: &[Note], tables: &Tables<'_>) -> Vec<Json> {
    let said = notes.iter().filter(|note| note.is_kept || note.tone == Tone::Warning);
    let mut said: Vec<(Tone, String)> = said.map(|note| (note.tone, sentence(&note.text))).collect();
    said.extend(mostly_tracing(tables).map(|text| (Tone::Warning, text)));
    let of_rows = [first_functions(&tables.functions), uneven(&tables.functions), balance(tables)];
    said.extend(of_rows.into_iter().flatten().map(|text| (Tone::Plain, text)));
    said.into_iter().map(|(tone, text)| json!([class(tone), text])).collect()
}

/// How the style sheet names it.
fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Warning => "warning",
        _ => "plain",
    }
}

/// Functions whose times are to a large part what tracing takes.
fn mostly_tracing(tables: &Tables<'_>) -> Option<String> {
    let table = &tables.functions;
    let timed = || table.rows.iter().filter(|row| figure(table, row, "timed").is_some_and(|timed| timed > 0));
    let corrected = ["inclusive_corrected_ns", "exclusive_corrected_ns"];
    super::rows::column(table, corrected[0])?;
    let is_known = |row: &[Datum]| corrected.iter().all(|key| figure(table, row, key).is_some());
    let marked = timed().filter(|row| !is_known(row)).count();
    (marked > 0).then(|| {
        format!(
            "Of the recorded times of {marked} of {} functions, a third or more is tracing's own; they are marked.",
            timed().count()
        )
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
        Datum::Count(number) | Datum::AtLeast(number) => Some(number),
        Datum::Time(number) | Datum::Traced(number) | Datum::AtMost(number) => Some(number),
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
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}
