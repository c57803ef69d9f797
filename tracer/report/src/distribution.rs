//! The distribution of an argument or result as rows: the calls by steps of powers of two, on both sides of 0.

use std::collections::{BTreeMap, HashMap};

use rtrace_exporters::{CallValues, TraceSet, Value as Known};
use rtrace_model::{Batch, Call, FoldedPath, LocationId, ValueType, value_bounds, value_step};

use super::by_value::NameSums;
use super::groups::Groups;
use super::key::LEFT_OUT;
use super::people::Note;
use super::table::{Column, Datum, RecordedValue, Table};
use super::time::{OfRow, TimeRows};
use super::walk::{Caller, Visitor};
use super::{Error, Min, Sort};

/// Counts the values of the calls of each row.
pub(super) struct Distribution<'a> {
    pub(super) inside: Groups<'a>,
    asked: NameSums,
    /// Values of calls that are not visited yet.
    waiting: HashMap<(LocationId, u64), i64>,
    rows: HashMap<u32, ValueCounts>,
}

/// The values of the calls of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ValueCounts {
    unknown: u64,
    /// By [`value_step`].
    known: BTreeMap<i32, u64>,
}

impl<'a> Distribution<'a> {
    /// # Errors
    /// No function has integers of that name.
    pub(super) fn new(name: &str, inside: Groups<'a>, trace: &TraceSet) -> Result<Distribution<'a>, Error> {
        let asked = NameSums::new(name, trace, |column| column.value_type == ValueType::Integer)?;
        Ok(Distribution { inside, asked, waiting: HashMap::new(), rows: HashMap::new() })
    }

    /// Says of how many calls the value is not known, if there are such.
    pub(super) fn unknown(&self) -> Option<Note> {
        let shown = self.rows.iter().filter(|(mark, _)| **mark & LEFT_OUT == 0);
        self.asked.unknown(shown.map(|(_, counts)| counts.unknown).sum())
    }

    /// The distributions of the first rows that have one.
    pub(super) fn table(&self, sort: Sort, min: Option<Min>, limit: Option<usize>) -> Table {
        let heading = |bound: &str| Column::named(bound.to_owned(), bound.to_owned());
        let labels = self.inside.columns();
        let mut columns = vec![heading("from"), heading("below")];
        columns.extend([Column::new("calls", "calls"), Column::new("share", "share").rank(1)]);
        columns.push(Column::new("bar", "").only_for_people());
        columns.extend(labels);
        columns.push(Column::name("value", self.asked.heading().leak()));
        let mut table = Table { columns, has_sections: true, ..Table::default() };
        let mut shown = 0;
        for (key, labels) in self.inside.shown(sort, min) {
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

impl TimeRows for Distribution<'_> {
    fn take_off(&mut self, tracing: HashMap<u32, OfRow>) {
        self.inside.take_off(tracing);
    }
}

impl Visitor for Distribution<'_> {
    type Mark = u32;

    fn readings(&mut self, batch: &Batch) {
        self.inside.readings(batch);
    }

    fn wants_values(&self) -> bool {
        true
    }

    fn values(&mut self, calls: &[Call], values: &[Option<CallValues>]) {
        self.inside.values(calls, values);
        for (call, values) in calls.iter().zip(values) {
            if let Some(Known::Integer(value)) = self.asked.value(call, values.as_ref()) {
                self.waiting.insert((call.location, call.id), *value);
            }
        }
    }

    fn visit(&mut self, call: &Call, caller: Caller<'_, u32>) -> u32 {
        let mark = self.inside.visit(call, caller);
        if self.asked.is_of(call.region) {
            let value = self.waiting.remove(&(call.location, call.id));
            self.rows.entry(mark).or_default().add(value);
        }
        mark
    }

    fn enclose(&mut self, call: &Call, caller: Caller<'_, u32>) -> u32 {
        self.waiting.remove(&(call.location, call.id));
        self.inside.enclose(call, caller)
    }

    fn visit_path(&mut self, path: &FoldedPath, caller: Caller<'_, u32>) -> u32 {
        self.inside.visit_path(path, caller)
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
