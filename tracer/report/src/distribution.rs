//! The distribution of an argument or result as rows: the calls by steps of powers of two, on both sides of 0.

use std::collections::{BTreeMap, HashMap};

use rtrace_exporters::TraceSet;
use rtrace_model::{Measured, Value as Known, ValueType, value_bounds, value_step};
use rtrace_profile::Visited;

use super::by_value::NameSums;
use super::groups::Groups;
use super::key::{LEFT_OUT, RowId};
use super::people::Note;
use super::table::{Column, Datum, RecordedValue, Table};
use super::{Error, Min, Sort};

/// Counts the values of the calls of each row.
pub(super) struct Distribution {
    asked: NameSums,
    rows: HashMap<RowId, ValueCounts>,
}

/// The values of the calls of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ValueCounts {
    unknown: u64,
    /// By [`value_step`].
    known: BTreeMap<i32, u64>,
}

impl Distribution {
    /// # Errors
    /// No function has integers of that name.
    pub(super) fn new(name: &str, trace: &TraceSet) -> Result<Distribution, Error> {
        let asked = NameSums::new(name, trace, |column| column.value_type == ValueType::Integer)?;
        Ok(Distribution { asked, rows: HashMap::new() })
    }

    pub(super) fn add(&mut self, row: RowId, calls: Visited<'_>) {
        if let Some(Measured { call, values, .. }) = calls.single().filter(|of| self.asked.is_of(of.call.region)) {
            let integer = |value: &Known| if let Known::Integer(value) = value { Some(*value) } else { None };
            let value = self.asked.value(call.region, values.as_ref()).and_then(integer);
            self.rows.entry(row).or_default().add(value);
        }
    }

    /// Says of how many calls the value is not known, if there are such.
    pub(super) fn unknown(&self) -> Option<Note> {
        let shown = self.rows.iter().filter(|(mark, _)| **mark & LEFT_OUT == 0);
        self.asked.unknown(shown.map(|(_, counts)| counts.unknown).sum())
    }

    /// The distributions of the first of these rows that have one.
    pub(super) fn table(&self, groups: &Groups<'_>, sort: Sort, min: Option<Min>, limit: Option<usize>) -> Table {
        let heading = |bound: &str| Column::named(bound.to_owned(), bound.to_owned());
        let labels = groups.columns();
        let mut columns = vec![heading("from"), heading("below")];
        columns.extend([Column::new("calls", "calls"), Column::new("share", "share").rank(1)]);
        columns.push(Column::new("bar", "").only_for_people());
        columns.extend(labels);
        columns.push(Column::name("value", self.asked.heading().leak()));
        let mut table = Table { columns, has_sections: true, ..Table::default() };
        let mut shown = 0;
        for (key, labels) in groups.shown(sort, min) {
            let Some(counts) = self.rows.get(&key) else { continue };
            shown += 1;
            if shown > limit.unwrap_or(usize::MAX) {
                table.left_out += 1;
                continue;
            }
            let name = Datum::Name(self.asked.heading());
            let rows = counts.rows().into_iter();
            table.rows.extend(rows.map(|row| row.into_iter().chain(labels.clone()).chain([name.clone()]).collect()));
        }
        table
    }
}

impl ValueCounts {
    fn add(&mut self, value: Option<i64>) {
        match value {
            Some(value) => *self.known.entry(value_step(value)).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// From, below, calls, share and bar of each step from the first with a call to the last, behind the calls whose
    /// value is not known.
    fn rows(&self) -> Vec<Vec<Datum>> {
        let known = self.known.first_key_value().zip(self.known.last_key_value());
        let steps = known.map(|((&first, _), (&last, _))| first..=last).into_iter().flatten();
        let total = self.unknown + self.known.values().sum::<u64>();
        let most = self.known.values().copied().chain([self.unknown]).max().unwrap_or(0);
        let row = |bounds: [Datum; 2], calls: u64| {
            let share = Datum::Share(calls as f64 / total as f64);
            let figures = [Datum::Count(calls), share, Datum::Bar(calls as f64 / most as f64)];
            bounds.into_iter().chain(figures).collect()
        };
        let unknown = (self.unknown > 0).then(|| row([Datum::Absent, Datum::Absent], self.unknown));
        let known = steps.map(|step| {
            let (from, below) = value_bounds(step);
            let bounds = [from, below].map(|bound| Datum::Recorded(RecordedValue::Integer(bound)));
            row(bounds, self.known.get(&step).copied().unwrap_or(0))
        });
        unknown.into_iter().chain(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_number() {
        let mut counts = ValueCounts::default();
        [Some(5), None, Some(-1), Some(7)].into_iter().for_each(|value| counts.add(value));
        let bounds = counts.rows().iter().map(|row| format!("{:?} {:?}", row[0], row[2])).collect::<Vec<_>>();
        let integer = |number: i32| format!("Recorded(Integer({number}))");
        let expected = [
            "Absent Count(1)".to_owned(),
            format!("{} Count(1)", integer(-1)),
            format!("{} Count(0)", integer(0)),
            format!("{} Count(0)", integer(1)),
            format!("{} Count(0)", integer(2)),
            format!("{} Count(2)", integer(4)),
        ];
        assert_eq!(bounds, expected);
        assert_eq!(ValueCounts { unknown: 3, ..ValueCounts::default() }.rows().len(), 1);
    }
}
