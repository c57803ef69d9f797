//! What is counted on every call, and the figures that follow from it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rtrace_model::{Base, Count, Metric, MetricId, Scope, format_ns};

use crate::text::count;

/// Computes a derived figure from a time in nanoseconds and what was counted in it, both without
/// traced callees, by counter; `None` where there is no such figure.
type Formula = Arc<dyn Fn(u64, &[u64]) -> Option<f64> + Send + Sync>;

/// A figure that follows from counters.
#[derive(Clone)]
pub struct Derived {
    title: &'static str,
    formula: Formula,
}

impl Derived {
    /// A figure of that title. The formula is given a time in nanoseconds and what was counted in
    /// it, both without traced callees, by counter.
    pub fn new(title: &'static str, formula: impl Fn(u64, &[u64]) -> Option<f64> + Send + Sync + 'static) -> Derived {
        Derived { title, formula: Arc::new(formula) }
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").field("title", &self.title).finish_non_exhaustive()
    }
}

/// Gives the derived figures that counters of these names have.
pub type Derive = fn(&[&str]) -> Vec<Derived>;

/// The counters of a recording.
#[derive(Clone, Debug)]
pub struct Counters {
    derive: Derive,
    metrics: BTreeMap<MetricId, Metric>,
    figures: Vec<Figure>,
}

/// Something to be said of what calls counted.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its heading, that of `rtrace report`.
    pub title: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Sums of the counter at this place; whether it counts nanoseconds.
    Inclusive(usize, bool),
    Exclusive(usize, bool),
    Derived(Derived),
}

/// A figure of some calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// Nanoseconds.
    Time(u64),
    /// Some other number; absent where there is none.
    Ratio(Option<f64>),
}

impl Counters {
    /// No counters yet.
    pub fn new(derive: Derive) -> Counters {
        Counters { derive, metrics: BTreeMap::new(), figures: Vec::new() }
    }

    /// Takes in a metric, if it is counted on every call.
    pub fn define(&mut self, metric: &Metric) {
        if metric.scope != Scope::Call {
            return;
        }
        self.metrics.insert(metric.id, metric.clone());
        let names: Vec<&str> = self.metrics.values().map(|metric| metric.name.as_str()).collect();
        let derived = (self.derive)(&names);
        let sums = |suffix: &'static str, what: fn(usize, bool) -> What| {
            self.metrics.values().enumerate().map(move |(place, metric)| Figure {
                title: format!("{}{suffix}", metric.name),
                what: what(place, is_nanoseconds(metric)),
            })
        };
        let derived =
            derived.into_iter().map(|derived| Figure { title: derived.title.to_owned(), what: What::Derived(derived) });
        self.figures = sums("", What::Inclusive).chain(derived).chain(sums(" excl", What::Exclusive)).collect();
    }

    /// The figures there are, those that are worth most room first.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }
}

fn is_nanoseconds(metric: &Metric) -> bool {
    (metric.unit.as_str(), metric.base, metric.exponent) == ("s", Base::Decimal, -9)
}

impl Figure {
    /// The figure of calls with that time without traced callees, in nanoseconds, and these counts.
    pub fn of(&self, exclusive: u64, counts: &[Count]) -> Value {
        let sum = |sum: u64, is_time| if is_time { Value::Time(sum) } else { Value::Count(sum) };
        let at = |place: usize| counts.get(place).copied().unwrap_or_default();
        match &self.what {
            What::Inclusive(place, is_time) => sum(at(*place).inclusive, *is_time),
            What::Exclusive(place, is_time) => sum(at(*place).exclusive, *is_time),
            What::Derived(_) if counts.is_empty() => Value::Ratio(None),
            What::Derived(derived) => {
                let own: Vec<u64> = counts.iter().map(|count| count.exclusive).collect();
                Value::Ratio((derived.formula)(exclusive, &own))
            }
        }
    }
}

impl Value {
    /// What it is sorted by.
    pub fn rank(self) -> f64 {
        match self {
            Value::Count(sum) | Value::Time(sum) => sum as f64,
            Value::Ratio(ratio) => ratio.unwrap_or(f64::NEG_INFINITY),
        }
    }
}

/// At most ten cells.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Count(sum) => f.write_str(&count(sum)),
            Value::Time(ns) => f.write_str(&format_ns(ns)),
            Value::Ratio(None) => f.write_str("-"),
            Value::Ratio(Some(ratio)) if ratio < 1e5 => write!(f, "{ratio:.3}"),
            Value::Ratio(Some(ratio)) => f.write_str(&count(ratio.round() as u64)),
        }
    }
}

/// Adds inclusive counts, by counter.
pub fn add_inclusive(sums: &mut Vec<Count>, counts: &[Count]) {
    add(sums, counts, |sum, count| sum.inclusive = sum.inclusive.saturating_add(count.inclusive));
}

/// Adds exclusive counts, by counter.
pub fn add_exclusive(sums: &mut Vec<Count>, counts: &[Count]) {
    add(sums, counts, |sum, count| sum.exclusive = sum.exclusive.saturating_add(count.exclusive));
}

fn add(sums: &mut Vec<Count>, counts: &[Count], one: impl Fn(&mut Count, &Count)) {
    if sums.len() < counts.len() {
        sums.resize(counts.len(), Count::default());
    }
    sums.iter_mut().zip(counts).for_each(|(sum, count)| one(sum, count));
}
