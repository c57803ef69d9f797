//! What is counted on every call, and the figures that follow from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rtrace_model::{Count, Metric, MetricId, Scope, Tally};

use crate::text::{count, time};

/// Computes a derived figure from a time in nanoseconds and what was counted in it, both without
/// traced callees, by counter; `None` where there is no such figure.
type Formula = Arc<dyn Fn(u64, &[u64]) -> Option<f64> + Send + Sync>;

/// A figure that follows from counters.
#[derive(Clone)]
pub struct Derived {
    title: Cow<'static, str>,
    formula: Formula,
}

impl Derived {
    /// A figure of that title. The formula is given a time in nanoseconds and
    /// what was counted in it, both without traced callees, by counter.
    pub fn new(
        title: impl Into<Cow<'static, str>>,
        formula: impl Fn(u64, &[u64]) -> Option<f64> + Send + Sync + 'static,
    ) -> Derived {
        Derived { title: title.into(), formula: Arc::new(formula) }
    }

    /// The figure of calls with that time without traced callees, in nanoseconds, and these counts.
    fn of(&self, exclusive: u64, counts: &[Count]) -> Option<f64> {
        let own: Vec<u64> = counts.iter().map(|count| count.exclusive).collect();
        if own.is_empty() { None } else { (self.formula)(exclusive, &own) }
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
    derived: Vec<Derived>,
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

impl Default for Counters {
    fn default() -> Counters {
        Counters::new(|_| Vec::new())
    }
}

impl Counters {
    /// No counters yet.
    pub fn new(derive: Derive) -> Counters {
        Counters { derive, metrics: BTreeMap::new(), derived: Vec::new(), figures: Vec::new() }
    }

    /// Takes in a metric, if it is counted on every call.
    pub fn define(&mut self, metric: &Metric) {
        if metric.scope != Scope::Call {
            return;
        }
        self.metrics.insert(metric.id, metric.clone());
        let names: Vec<&str> = self.metrics.values().map(|metric| metric.name.as_str()).collect();
        self.derived = (self.derive)(&names);
        let sums = |tally: Tally, what: fn(usize, bool) -> What| {
            let figure = move |(place, metric): (usize, &Metric)| Figure {
                title: tally.title(metric),
                what: what(place, metric.is_nanoseconds()),
            };
            self.metrics.values().enumerate().map(figure)
        };
        let derived = self.derived.iter().cloned();
        let derived =
            derived.map(|derived| Figure { title: derived.title.clone().into_owned(), what: What::Derived(derived) });
        self.figures = sums(Tally::Inclusive, What::Inclusive)
            .chain(derived)
            .chain(sums(Tally::Exclusive, What::Exclusive))
            .collect();
    }

    /// Nanoseconds on a CPU, where that is counted.
    pub fn on_cpu(&self, counts: &[Count]) -> Option<Count> {
        let place = self.metrics.values().position(|metric| metric.name == "task-clock" && metric.is_nanoseconds())?;
        counts.get(place).copied()
    }

    /// The figures there are, those that are worth most room first.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }
}

impl Figure {
    /// Whether its values are times.
    pub fn is_time(&self) -> bool {
        matches!(self.what, What::Inclusive(_, true) | What::Exclusive(_, true))
    }

    /// The figure of calls with that time without traced callees, in nanoseconds, and these counts;
    /// absent where none of the calls was timed, so that there are no counts.
    pub fn of(&self, exclusive: u64, counts: &[Count]) -> Value {
        let sum = |place: usize, is_time, of: fn(&Count) -> u64| match counts.get(place).map(of) {
            Some(sum) if is_time => Value::Time(sum),
            Some(sum) => Value::Count(sum),
            None => Value::Ratio(None),
        };
        match &self.what {
            What::Inclusive(place, is_time) => sum(*place, *is_time, |count| count.inclusive),
            What::Exclusive(place, is_time) => sum(*place, *is_time, |count| count.exclusive),
            What::Derived(derived) => Value::Ratio(derived.of(exclusive, counts)),
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
            Value::Time(ns) => f.write_str(&time(ns)),
            Value::Ratio(None) => f.write_str("-"),
            Value::Ratio(Some(ratio)) if ratio < 1e5 => write!(f, "{ratio:.3}"),
            Value::Ratio(Some(ratio)) => f.write_str(&count(ratio.round() as u64)),
        }
    }
}
