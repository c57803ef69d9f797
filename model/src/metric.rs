//! What is measured beside time: counters on calls, and values sampled beside them.

use serde::{Deserialize, Serialize};

use crate::{MetricId, Timestamp, words};

words! {
    /// What a metric's values belong to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Scope {
        /// Each call: its values are the [`Reading`](crate::Reading)s of batches.
        Call = "call",
        /// A thread.
        Thread = "thread",
        /// A process.
        Process = "process",
        /// A CPU socket.
        Socket = "socket",
        /// The machine.
        Node = "node",
    }
}

words! {
    /// The span of time that a value speaks of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Span {
        /// From the begin of what it belongs to until the sample: the value only grows.
        SinceStart = "since_start",
        /// From the sample before until this one.
        SinceLast = "since_last",
        /// The instant of the sample.
        Point = "point",
        /// From the sample until the next one.
        UntilNext = "until_next",
    }
}

/// The base that a unit's exponent is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// 2
    Binary,
    /// 10
    Decimal,
}

/// Something measured, in the terms of Score-P's and OTF2's metric model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its id.
    pub id: MetricId,
    /// The name that the user gave or knows, such as `page-faults` or `msr/tsc/`.
    pub name: String,
    /// The unit without a prefix: `s`, `B`, `#`.
    pub unit: String,
    /// What `exponent` is a power of.
    pub base: Base,
    /// A value times `base` to this power is in the unit.
    pub exponent: i32,
    /// What its values belong to.
    pub scope: Scope,
    /// The span of time that a value speaks of.
    pub span: Span,
}

impl Metric {
    /// Whether it counts nanoseconds.
    pub fn is_nanoseconds(&self) -> bool {
        (self.unit.as_str(), self.base, self.exponent) == ("s", Base::Decimal, -9)
    }
}

words! {
    /// What is said of some calls by a metric that is counted on every call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Tally {
        /// What they counted, each count once where calls are nested in each other.
        Inclusive = "inclusive",
        /// What they counted without their traced callees.
        Exclusive = "exclusive",
        /// [`Tally::Exclusive`] by the number of calls.
        PerCall = "per_call",
    }
}

impl Tally {
    /// The name of its column in CSV and JSON.
    pub fn key(self, metric: &Metric) -> String {
        format!("{}_{self}", metric.name)
    }

    /// Its heading for people.
    pub fn title(self, metric: &Metric) -> String {
        let suffix = match self {
            Tally::Inclusive => "",
            Tally::Exclusive => " excl",
            Tally::PerCall => "/call",
        };
        format!("{}{suffix}", metric.name)
    }
}

/// One value of a metric whose scope is not the call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What was measured.
    pub metric: MetricId,
    /// When.
    pub time: Timestamp,
    /// Which thread, process or socket, by its number; 0 for the machine.
    pub instance: u32,
    /// The value, in the metric's unit with its base and exponent.
    pub value: f64,
}
