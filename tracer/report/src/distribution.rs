//! The distribution of an argument or result, or of a metric of calls, as rows: the calls by steps of powers of two, on
//! both sides of 0.

use std::collections::{BTreeMap, HashMap};

use rtrace_exporters::TraceSet;
use rtrace_model::{Measured, Scope, Value as Known, ValueType, value_bounds, value_step};
use rtrace_profile::Visited;

use super::by_value::NameSums;
use super::groups::Groups;
use super::key::RowId;
use super::people::Note;
use super::table::{Column, Datum, RecordedValue, Table};
use super::{Error, Min, Sort};

/// Counts the values of the calls of each row.
pub(super) struct Distribution {
    asked: DistributionSource,
    rows: HashMap<RowId, ValueCounts>,
}

/// What is distributed.
enum DistributionSource {
    /// Values of calls.
    Values(NameSums),
    /// What calls counted without their callees: the metric at this place, by its name with the unit. Of a call that
    /// counted nothing it is not known whether it could.
    Metric(usize, String),
}

impl DistributionSource {
    fn heading(&self) -> String {
        match self {
            DistributionSource::Values(values) => values.heading(),
            DistributionSource::Metric(_, heading) => heading.clone(),
        }
    }
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
        let of_calls = || trace.metrics().iter().filter(|metric| metric.scope == Scope::Call);
        let metric = of_calls().position(|metric| metric.name == name);
        let asked = match (NameSums::new(name, trace, |column| column.value_type == ValueType::Integer), metric) {
            (Ok(values), _) => DistributionSource::Values(values),
            (Err(Error::NoSuchValue { .. } | Error::NoValues), Some(place)) => {
                let unit = of_calls().nth(place).map_or("", |metric| metric.unit.as_str());
                DistributionSource::Metric(place, format!("{name} {unit}"))
            }
            (Err(error), _) => return Err(error),
        };
        Ok(Distribution { asked, rows: HashMap::new() })
    }

    pub(super) fn add(&mut self, row: RowId, calls: Visited<'_>) {
        let Some(Measured { call, readings, values }) = calls.single() else { return };
        let value = match &self.asked {
            DistributionSource::Values(asked) if asked.is_of(call.region) => {
                let integer = |value: &Known| if let Known::Integer(value) = value { Some(*value) } else { None };
                asked.value(call.region, values.as_ref()).and_then(integer)
            }
            DistributionSource::Metric(place, _) if call.is_timed() => {
                let counted = readings.get(*place).and_then(|reading| i64::try_from(reading.exclusive()).ok());
                let Some(counted) = counted.filter(|&counted| counted > 0) else { return };
                Some(counted)
            }
            DistributionSource::Values(_) | DistributionSource::Metric(..) => return,
        };
        self.rows.entry(row).or_default().add(value);
    }

    /// Says of how many calls the value is not known, if there are such.
    pub(super) fn unknown(&self) -> Option<Note> {
        let DistributionSource::Values(asked) = &self.asked else { return None };
        asked.unknown(self.rows.values().map(|counts| counts.unknown).sum())
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
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Base, Batch, Definition, Metric, MetricId, Reading, Sink as _, Span, Summary};

    use super::*;
    use crate::testing::{script, writer};
    use crate::{Format, Histogram, Options, run};

    #[test]
    fn what_calls_counted_has_a_distribution() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let (unit, base) = ("B".to_owned(), Base::Decimal);
        let (scope, span) = (Scope::Call, Span::SinceStart);
        let metric = Metric { id: MetricId(0), name: "io_bytes".to_owned(), unit, base, exponent: 0, scope, span };
        writer.define(&Definition::Metric(metric)).unwrap();
        let calls = script("thread 1\n a 0 10\n a 20 30\n a 40 50\n b 60 ?\n c 70 90\n  a 75 80");
        let reading = |inclusive, child| Reading { inclusive, child };
        // By the ends of calls: what `c` counted is its callee's.
        let readings = [(3, 0), (5, 0), (4, 0), (9, 0), (2, 0), (2, 2)].map(|(all, child)| reading(all, child));
        writer.calls(&Batch::measured(calls, 1, readings.to_vec())).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let report = |name: &str| {
            let histogram = Some(Histogram::Value(name.to_owned()));
            let mut out = Vec::new();
            run(folder.path(), &Options { histogram, format: Format::Csv, ..Options::default() }, &mut out)?;
            Ok::<String, Error>(String::from_utf8(out).unwrap())
        };
        let csv = report("io_bytes").unwrap();
        let rows: Vec<_> = csv.lines().skip(1).map(|row| row.split(',').take(3).collect::<Vec<_>>()).collect();
        assert_eq!(rows, [["2", "4", "2"], ["4", "8", "2"]], "{csv}");
        assert!(report("mass").unwrap_err().to_string().starts_with("failed to find values"));
    }

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
