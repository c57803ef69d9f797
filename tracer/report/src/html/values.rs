//! What arguments and results the calls on a page had: of each function what they were, and of its slowest calls each.
//!
//! The values of a call are found by its id, for which all ids of its function are read. So pages of long recordings do
//! without, and say so.

use std::cmp::Reverse;

use foldhash::HashMap;
use rtrace_exporters::{Trace, TraceSet};
use rtrace_model::{Call, CallValues, RegionId, Value, ValueColumn};
use serde_json::{Value as Json, json};

use super::names::{PageNames, cut};
use crate::Error;

/// Calls up to which values are read: that takes a second.
const MOST_CALLS: u64 = 5_000_000;

/// Calls of each function whose values are told one by one: those of its slowest.
const SLOWEST: usize = 12;

/// Values of each column that are told, those of most calls.
const MOST_VALUES: usize = 8;

/// Columns of a function.
const MOST_COLUMNS: usize = 12;

/// Longest text in characters.
const LONGEST: usize = 80;

/// What is known of a column of the calls on the page.
#[derive(Default)]
struct Summed {
    known: u64,
    numbers: Option<(f64, f64, f64)>,
    values: HashMap<String, u64>,
}

/// Of each function its columns, and of its slowest calls the values, by the calls' places on the page; why there are
/// none, where values were recorded.
pub(super) fn values(trace: &TraceSet, calls: &[Call], names: &mut PageNames<'_>) -> Result<Json, Error> {
    if trace.value_columns().is_empty() {
        return Ok(Json::Null);
    }
    if trace.traces().map(Trace::recorded_calls).sum::<u64>() > MOST_CALLS {
        return Ok(json!({ "most": MOST_CALLS }));
    }
    let values = trace.value_reader().of(calls)?;
    let mut of_functions: HashMap<RegionId, Vec<usize>> = HashMap::default();
    for (place, call) in calls.iter().enumerate().filter(|&(place, _)| values[place].is_some()) {
        of_functions.entry(call.region).or_default().push(place);
    }
    let mut of_functions: Vec<(RegionId, Vec<usize>)> = of_functions.into_iter().collect();
    of_functions.sort_unstable_by_key(|&(region, _)| region);
    let (mut functions, mut single) = (Vec::new(), Vec::new());
    for (region, mut places) in of_functions {
        let own = || places.iter().filter_map(|&place| values[place].as_ref());
        functions.push(json!([names.of(region), places.len(), columns(own())]));
        places.sort_by_key(|&place| (Reverse(calls[place].duration), place));
        for &place in places.iter().take(SLOWEST) {
            let shown = values[place].iter().flat_map(CallValues::iter).take(MOST_COLUMNS);
            single.push(json!([
                place,
                shown.map(|(column, value)| value.map(|value| text(column, value))).collect::<Vec<_>>()
            ]));
        }
    }
    Ok(json!({ "functions": functions, "calls": single }))
}

/// Name, unit, whether it is read at the return, calls with a value, least, greatest and sum of numbers, different
/// values, and those of most calls with how many.
fn columns<'a>(calls: impl Iterator<Item = &'a CallValues>) -> Vec<Json> {
    let mut sums: Vec<(&ValueColumn, Summed)> = Vec::new();
    for call in calls {
        for (place, (column, value)) in call.iter().take(MOST_COLUMNS).enumerate() {
            if sums.len() <= place {
                sums.push((column, Summed::default()));
            }
            if let Some(value) = value {
                sums[place].1.add(column, value);
            }
        }
    }
    sums.into_iter().map(|(column, summed)| summed.told(column)).collect()
}

impl Summed {
    fn add(&mut self, column: &ValueColumn, value: &Value) {
        self.known += 1;
        *self.values.entry(text(column, value)).or_default() += 1;
        let number = match value {
            Value::Integer(number) if !column.is_address() => *number as f64,
            Value::Float(number) if number.is_finite() => *number,
            Value::Integer(_) | Value::Float(_) | Value::Text(_) => return,
        };
        let (least, greatest, sum) = self.numbers.unwrap_or((number, number, 0.0));
        self.numbers = Some((least.min(number), greatest.max(number), sum + number));
    }

    fn told(self, column: &ValueColumn) -> Json {
        let different = self.values.len();
        let mut values: Vec<(String, u64)> = self.values.into_iter().collect();
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        values.truncate(MOST_VALUES);
        let numbers = self.numbers.map(|(least, greatest, sum)| [least, greatest, sum]);
        json!([cut(&column.name), column.unit, column.at_exit, self.known, numbers, different, values])
    }
}

/// A value as people read it.
fn text(column: &ValueColumn, value: &Value) -> String {
    match value {
        Value::Integer(address) if column.is_address() => format!("{address:#x}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(text) => match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("\"{}…\"", &text[..end]),
            None => format!("\"{text}\""),
        },
    }
}
