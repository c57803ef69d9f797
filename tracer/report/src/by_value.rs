//! Rows that tell calls of a function apart by an argument or result.
//!
//! A program may have any number of values, and each row keeps a distribution of durations. Above [`MOST_ROWS`] new
//! ones are not told apart any more: they are one row.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{CallValues, RegionId, Value as Known, ValueColumn, counted, escape, grouped};

use super::Error;
use super::key::{FUNCTION, HIDDEN, RowId, function};
use super::people::Note;
use super::table::{Column, Datum, RecordedValue};

/// Rows that are told apart; with a histogram of 50 kB each they would take 800 MB.
const MOST_ROWS: usize = 1 << 14;

/// Names in a message.
const MOST_NAMES: usize = 40;

/// The row of all calls whose values are not told apart.
const MORE: RowId = HIDDEN - 1;

/// The functions and their values, as they appear.
pub(super) struct ByValue<'a> {
    trace: &'a TraceSet,
    asked: NameSums,
    /// By their key: the function, and the value where it is known.
    rows: Vec<(RegionId, Option<RecordedValue>)>,
    keys: HashMap<(RegionId, Option<RecordedValue>), RowId>,
    columns: &'static [Column],
}

/// The values of one name.
#[derive(Clone, Debug)]
pub(super) struct NameSums {
    name: String,
    /// Whether the recording has ended: before, values are written later than calls.
    is_finished: bool,
    columns: HashMap<RegionId, ValueColumn>,
}

impl NameSums {
    /// The values called `name` of all functions that have such; `accept` those of some types only.
    ///
    /// # Errors
    /// No function has one, or values do not belong to single calls.
    pub(super) fn new(name: &str, trace: &TraceSet, accept: impl Fn(&ValueColumn) -> bool) -> Result<NameSums, Error> {
        let all = trace.value_columns();
        if all.is_empty() {
            return Err(Error::NoValues);
        }
        if !trace.profile().is_empty() {
            return Err(Error::Aggregated);
        }
        let named = || all.iter().filter(|column| column.name == name);
        let columns: HashMap<RegionId, ValueColumn> =
            named().filter(|column| accept(column)).map(|column| (column.region, column.clone())).collect();
        if columns.is_empty() {
            let name = name.to_owned();
            if named().next().is_some() {
                return Err(Error::NoInteger(name));
            }
            let mut known: Vec<String> = all.iter().map(|column| format!("`{}`", escape(&column.name))).collect();
            known.sort_unstable();
            known.dedup();
            let others = known.split_off(known.len().min(MOST_NAMES)).len();
            if others > 0 {
                known.push(format!("and {} more", grouped(others as u64)));
            }
            return Err(Error::NoSuchValue { name, known: known.join(", ") });
        }
        Ok(NameSums { name: name.to_owned(), is_finished: trace.summary().is_some(), columns })
    }

    /// Whether calls of the region have the value.
    pub(super) fn is_of(&self, region: RegionId) -> bool {
        self.columns.contains_key(&region)
    }

    /// The value of a call, where it is known.
    pub(super) fn value<'v>(&self, region: RegionId, values: Option<&'v CallValues>) -> Option<&'v Known> {
        values.filter(|_| self.is_of(region))?.named(&self.name)?
    }

    /// Says of how many calls the value is not known, if there are such.
    pub(super) fn unknown(&self, calls: u64) -> Option<Note> {
        let name = escape(&self.name);
        let why = if self.is_finished { " or was not there" } else { ", was not there, or is not written yet" };
        let text = || format!("`-`: {} of which {name} could not be read{why}", counted(calls, "call"));
        (calls > 0).then(|| Note::plain(text()))
    }

    /// The name with the unit, if it is that of all functions.
    pub(super) fn heading(&self) -> String {
        let mut units = self.columns.values().map(|column| column.unit.as_deref());
        let first = units.next().flatten();
        match first.filter(|_| units.all(|unit| unit == first)) {
            Some(unit) => format!("{} {unit}", self.name),
            None => self.name.clone(),
        }
    }

    fn cell(&self, region: RegionId, value: &Known) -> RecordedValue {
        match value {
            Known::Integer(value) if self.columns.get(&region).is_some_and(ValueColumn::is_address) => {
                RecordedValue::Address(*value)
            }
            Known::Integer(value) => RecordedValue::Integer((*value).into()),
            Known::Float(value) => RecordedValue::Float(value.to_bits()),
            Known::Text(text) => RecordedValue::Text(text.clone()),
        }
    }
}

impl<'a> ByValue<'a> {
    pub(super) fn new(asked: NameSums, trace: &'a TraceSet) -> ByValue<'a> {
        let value = Column { key: "value", ..Column::name("value", asked.heading().leak()) };
        let columns = [FUNCTION.as_slice(), &[value]].concat();
        ByValue { trace, asked, rows: Vec::new(), keys: HashMap::new(), columns: columns.leak() }
    }

    /// The row of a call with these values, or of calls of which they are not known.
    pub(super) fn key(&mut self, region: RegionId, values: Option<&CallValues>) -> RowId {
        if !self.asked.is_of(region) {
            return HIDDEN;
        }
        let value = self.asked.value(region, values);
        self.row(region, value.map(|value| self.asked.cell(region, value)))
    }

    fn row(&mut self, region: RegionId, cell: Option<RecordedValue>) -> RowId {
        let row = (region, cell);
        if let Some(&key) = self.keys.get(&row) {
            return key;
        }
        // What is not known is no value among others.
        if self.rows.len() >= MOST_ROWS && row.1.is_some() {
            return MORE;
        }
        let key = self.rows.len() as RowId;
        self.rows.push(row.clone());
        self.keys.insert(row, key);
        key
    }

    /// Whether the calls of a row have no known value.
    pub(super) fn is_unknown(&self, key: RowId) -> bool {
        self.rows.get(key as usize).is_some_and(|(_, cell)| cell.is_none())
    }

    pub(super) fn asked(&self) -> &NameSums {
        &self.asked
    }

    pub(super) fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// The values of [`columns`](ByValue::columns).
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        let Some((region, cell)) = self.rows.get(key as usize) else {
            return vec![
                Datum::Absent,
                Datum::Absent,
                Datum::Absent,
                Datum::Name("[more]".to_owned()),
                Datum::Name("[more]".to_owned()),
            ];
        };
        let value = cell.clone().map_or(Datum::Absent, Datum::Recorded);
        function(self.trace, *region).into_iter().chain([value]).collect()
    }
}

#[cfg(test)]
mod tests;
