//! Watched variables: how often a call, or the calls that it made, accessed a global variable.
//!
//! It uses hardware breakpoints: `name` is what the user asks for, `place` finds the variable in
//! files and processes, `breakpoint` is one event of the kernel, [`Watching`] has all of a recording,
//! and `hold` keeps a command from running ahead of them.

mod breakpoint;
mod error;
mod hold;
mod name;
mod place;
mod watching;

use rtrace_bpf::Counter;
use rtrace_model::{Base, Metric, MetricId, Scope, Span};

pub use error::Error;
pub use hold::HeldProcess;
pub use name::{Access, Name, Number};
pub use place::{of_command, of_processes};
pub use watching::Watching;

/// A variable to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// What the user asked for.
    pub name: Name,
    /// The variable's size in bytes: 1, 2, 4 or 8.
    pub size: u8,
}

impl Watch {
    /// How the kernel side counts it.
    pub fn counter(&self) -> Counter {
        Counter::Accesses { size: self.size, values: self.name.values.is_some() }
    }

    /// What its accesses are called.
    pub fn metric(&self, id: MetricId) -> Metric {
        metric(id, self.name.to_string(), Scope::Call, Span::SinceStart)
    }
}

/// The watched variables of a recording, in the order of their counters.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    /// What is watched.
    pub watches: Vec<Watch>,
    /// Where variables are looked for whose library is not named.
    pub libraries: Vec<String>,
    /// What the values are called of those whose values are recorded; ids count up from `first`.
    values: Vec<Option<Metric>>,
}

impl Watches {
    /// `first`: the id of the first metric of values.
    pub fn new(watches: Vec<Watch>, libraries: Vec<String>, first: MetricId) -> Watches {
        let mut ids = (first.0..).map(MetricId);
        let value_of = |watch: &Watch| {
            let name = format!("value/{}", watch.name.variable());
            watch.name.values.and_then(|_| Some(metric(ids.next()?, name, Scope::Thread, Span::Point)))
        };
        let values = watches.iter().map(value_of).collect();
        Watches { watches, libraries, values }
    }

    /// The metrics of values.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.values.iter().flatten()
    }

    /// Of the watch at this place, the metric of its values, and these bytes as a number.
    pub fn value(&self, watch: usize, bytes: u64) -> Option<(MetricId, f64)> {
        let Watch { name, size } = self.watches.get(watch)?;
        Some((self.values[watch].as_ref()?.id, name.values?.of(bytes, *size)))
    }
}

fn metric(id: MetricId, name: String, scope: Scope, span: Span) -> Metric {
    Metric { id, name, unit: "#".to_owned(), base: Base::Decimal, exponent: 0, scope, span }
}
