//! Values of metrics beside the calls, as series: the values of one metric that belong to one
//! thread, process or socket, or to the machine.
//!
//! The values of a series are stored in the order of their times, those of several are not.

use std::collections::BTreeSet;

use rtrace_model::{Base, LocationId, Metric, Sample, Scope};

use super::{Excerpt, ExportError};

/// What tells a series from others: ids and numbers of instances are of each trace of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    trace: usize,
    metric: usize,
    instance: u32,
}

/// What a series belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesOwner {
    Thread(LocationId),
    /// A process, by its place among the programs.
    Program(usize),
    Socket(u32),
    /// The machine, or a thread or process that is not defined.
    Node,
}

/// The values of one metric that belong to one owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    key: SeriesKey,
    pub(super) owner: SeriesOwner,
}

impl Series {
    /// Place of its metric among [`Excerpt::sampled_metrics`].
    pub(super) fn metric(&self) -> usize {
        self.key.metric
    }

    /// The number of its thread, process or socket; 0 for the machine.
    pub(super) fn instance(&self) -> u32 {
        self.key.instance
    }

    /// The name of its metric, with the number of its thread, process or socket.
    pub(super) fn name(&self, source: &Excerpt<'_>) -> String {
        let metric = &source.sampled_metrics()[self.metric()];
        match metric.scope {
            Scope::Node => metric.name.clone(),
            _ => format!("{} ({})", metric.name, self.instance()),
        }
    }
}

/// All series that have values, sorted.
pub(super) fn series(source: &Excerpt<'_>) -> Result<Vec<Series>, ExportError> {
    let mut keys = BTreeSet::new();
    each(source, |key, _| {
        keys.insert(key);
        Ok(())
    })?;
    Ok(keys.into_iter().map(|key| Series { key, owner: owner(source, key) }).collect())
}

/// Visits the values of some series, which are sorted: the place of the series among them, and the
/// value.
pub(super) fn visit(
    source: &Excerpt<'_>,
    some: &[Series],
    mut value: impl FnMut(usize, &Sample) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    each(source, |key, sample| match some.binary_search_by_key(&key, |series| series.key) {
        Ok(place) => value(place, sample),
        Err(_) => Ok(()),
    })
}

fn each(
    source: &Excerpt<'_>,
    mut value: impl FnMut(SeriesKey, &Sample) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    for trace in 0..source.traces().len() {
        for samples in source.samples_of(trace) {
            for sample in samples?.iter().filter(|sample| source.spans(sample.time)) {
                let metric = source.sampled_metrics().iter().position(|metric| metric.id == sample.metric);
                if let Some(metric) = metric {
                    value(SeriesKey { trace, metric, instance: sample.instance }, sample)?;
                }
            }
        }
    }
    Ok(())
}

fn owner(source: &Excerpt<'_>, key: SeriesKey) -> SeriesOwner {
    let header = source.traces().nth(key.trace).map(|trace| std::ptr::from_ref(trace.header()));
    let locations = || {
        let header_of = |location| source.header_of(location).map(std::ptr::from_ref);
        source.locations().iter().filter(move |location| header_of(location.id) == header)
    };
    let owner = match source.sampled_metrics()[key.metric].scope {
        Scope::Thread => {
            locations().find(|location| location.tid == key.instance).map(|location| SeriesOwner::Thread(location.id))
        }
        Scope::Process => locations()
            .find(|location| location.pid == key.instance)
            .map(|location| source.threads.thread(location.id).program)
            .or_else(|| source.threads.programs.iter().position(|program| program.pid == key.instance))
            .map(SeriesOwner::Program),
        Scope::Socket => Some(SeriesOwner::Socket(key.instance)),
        Scope::Call | Scope::Node => None,
    };
    owner.unwrap_or(SeriesOwner::Node)
}

/// The unit with its factor where that is not 1: `10^-9*s`.
pub(super) fn unit(metric: &Metric) -> String {
    let base = match metric.base {
        Base::Binary => 2,
        Base::Decimal => 10,
    };
    match metric.exponent {
        0 => metric.unit.clone(),
        exponent => format!("{base}^{exponent}*{}", metric.unit),
    }
}
