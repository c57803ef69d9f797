//! What calls counted, summed up beside the figures of a report: a visitor around another one.
//!
//! As with times, a row's *inclusive* count is that of its outermost calls, and *exclusive* counts
//! add up over rows. Derived figures are computed from exclusive counts.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Base, Batch, Call, Ending, LocationId, Metric, PathProfile, Reading, Scope};

use super::By;
use super::table::{Column, Shown, Table, Value};
use super::walk::{Caller, Visitor};
use crate::counters::derived::{DERIVED, Derived, Input};

/// Sums the readings of calls by the mark that the visitor inside gives them.
pub(super) struct Counting<V> {
    pub(super) inside: V,
    metrics: Vec<Metric>,
    /// Readings of calls that are not visited yet.
    waiting: HashMap<(LocationId, u64), Box<[Reading]>>,
    sums: HashMap<u32, Sums>,
}

#[derive(Clone, Default)]
struct Sums {
    calls: u64,
    /// Time without traced callees.
    duration: u64,
    /// Of each metric.
    inclusive: Vec<u64>,
    exclusive: Vec<u64>,
}

impl<V: Visitor<Mark = u32>> Visitor for Counting<V> {
    type Mark = u32;

    fn readings(&mut self, batch: &Batch) {
        if batch.metrics() > 0 {
            let readings =
                batch.iter().enumerate().map(|(index, call)| ((call.location, call.id), batch.readings(index)));
            self.waiting.extend(readings.map(|(call, readings)| (call, readings.into())));
        }
    }

    fn visit(&mut self, call: &Call, caller: Caller<'_, u32>) -> u32 {
        let enclosing = caller.enclosing();
        let mark = self.inside.visit(call, caller);
        let Some(readings) = self.waiting.remove(&(call.location, call.id)) else { return mark };
        if call.ending == Ending::Unseen {
            return mark;
        }
        let is_outermost = !enclosing.iter().any(|open| open.mark == mark);
        self.sums.entry(mark).or_default().add(call, &readings, is_outermost);
        mark
    }

    /// Folded calls are not counted.
    fn visit_path(&mut self, path: &PathProfile, caller: Caller<'_, u32>) -> u32 {
        self.inside.visit_path(path, caller)
    }
}

impl Sums {
    fn add(&mut self, call: &Call, readings: &[Reading], is_outermost: bool) {
        self.calls += 1;
        self.duration = self.duration.saturating_add(call.exclusive());
        self.inclusive.resize(readings.len(), 0);
        self.exclusive.resize(readings.len(), 0);
        for (index, reading) in readings.iter().enumerate() {
            if is_outermost {
                self.inclusive[index] = self.inclusive[index].saturating_add(reading.inclusive);
            }
            self.exclusive[index] = self.exclusive[index].saturating_add(reading.exclusive());
        }
    }

    fn input(&self, input: Input) -> u64 {
        match input {
            Input::Duration => self.duration,
            Input::Counter(index) => self.exclusive.get(index).copied().unwrap_or(0),
        }
    }
}

impl<V> Counting<V> {
    pub(super) fn around(inside: V, trace: &TraceSet) -> Counting<V> {
        let metrics = trace.metrics().iter().filter(|metric| metric.scope == Scope::Call).cloned().collect();
        Counting { inside, metrics, waiting: HashMap::new(), sums: HashMap::new() }
    }

    /// Puts the counts into a table of the rows, in front of their names.
    pub(super) fn add_to(&self, table: &mut Table, by: By) {
        let key = match by {
            By::Function => "region",
            By::Tree => "node",
            By::Thread => "location",
            By::Library | By::Process | By::Caller | By::Callpath => return,
        };
        let Some(key) = table.columns.iter().position(|column| column.key == key) else { return };
        if self.metrics.is_empty() {
            return;
        }
        let names = table.columns.iter().position(|column| column.key == "library");
        let place = names.unwrap_or(table.columns.len() - 1);
        let derived = self.derived();
        for row in &mut table.rows {
            let sums = match row[key] {
                Value::Count(key) => u32::try_from(key).ok().and_then(|key| self.sums.get(&key)),
                _ => None,
            };
            row.splice(place..place, self.values(sums.unwrap_or(&Sums::default()), &derived));
        }
        table.columns.splice(place..place, self.columns(&derived));
    }

    fn derived(&self) -> Vec<(Derived, [Input; 2])> {
        let names: Vec<&str> = self.metrics.iter().map(|metric| metric.name.as_str()).collect();
        DERIVED.into_iter().filter_map(|derived| Some((derived, derived.inputs(&names)?))).collect()
    }

    fn columns(&self, derived: &[(Derived, [Input; 2])]) -> Vec<Column> {
        let mut columns = Vec::new();
        for Metric { name, .. } in &self.metrics {
            columns.push(Column::named(format!("{name}_inclusive"), name.clone()));
            columns.push(Column::named(format!("{name}_exclusive"), format!("{name} excl")));
            columns.push(Column::named(format!("{name}_per_call"), String::new()).shown(Shown::Never));
        }
        columns.extend(derived.iter().map(|(derived, _)| Column::new(derived.key, derived.title)));
        columns
    }

    fn values(&self, sums: &Sums, derived: &[(Derived, [Input; 2])]) -> Vec<Value> {
        let mut values = Vec::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            let [inclusive, exclusive] =
                [&sums.inclusive, &sums.exclusive].map(|counts| counts.get(index).copied().unwrap_or(0));
            values.extend([value(metric, inclusive), value(metric, exclusive)]);
            let per_call = (sums.calls > 0).then(|| exclusive as f64 / sums.calls as f64);
            values.push(per_call.map_or(Value::Absent, Value::Ratio));
        }
        values.extend(derived.iter().map(|(derived, inputs)| {
            let figure = derived.value(inputs.map(|input| sums.input(input)));
            figure.map_or(Value::Absent, Value::Ratio)
        }));
        values
    }
}

/// A sum in its metric's unit.
fn value(metric: &Metric, sum: u64) -> Value {
    let is_nanoseconds = (metric.unit.as_str(), metric.base, metric.exponent) == ("s", Base::Decimal, -9);
    if is_nanoseconds { Value::Time(sum) } else { Value::Count(sum) }
}
