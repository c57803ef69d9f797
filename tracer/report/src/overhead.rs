//! How much slower tracing made the programs while they were recorded, as the recorder measured it once a second.

use std::fmt;

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::{MetricId, Overhead};

/// The metrics that say it: in percent, how many samples of the programs' CPU time each value is from, and how many of
/// these may be either tracing or the programs' own.
const METRIC: &str = "rtrace/overhead";
const SAMPLES: &str = "rtrace/overhead_samples";
const DOUBTFUL: &str = "rtrace/overhead_doubtful";

/// What it was in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowdown {
    pub(super) overhead: Overhead,
    /// How many samples it is from, and how many of these are doubtful; none where these were not counted.
    samples: Option<[f64; 2]>,
}

impl Slowdown {
    /// None where nothing was measured.
    pub(super) fn of(trace: &TraceSet) -> Result<Option<Slowdown>, Error> {
        let id = |name| trace.metrics().iter().find(|metric| metric.name == name).map(|metric| metric.id);
        let Some(metric) = id(METRIC) else { return Ok(None) };
        let values = |metric: Option<MetricId>| -> Result<Vec<f64>, Error> {
            let mut values = Vec::new();
            for samples in trace.samples() {
                let of_it = |sample: &&rtrace_model::Sample| Some(sample.metric) == metric && sample.value.is_finite();
                values.extend(samples?.iter().filter(of_it).map(|sample| sample.value));
            }
            Ok(values)
        };
        let overheads: Vec<Overhead> = values(Some(metric))?.into_iter().map(Overhead::percent).collect();
        let [samples, doubtful] = [values(id(SAMPLES))?, values(id(DOUBTFUL))?];
        // A budget's values are of spans of the same length.
        let is_sampled = samples.len() == overheads.len();
        let weights = if is_sampled { samples } else { vec![1.0; overheads.len()] };
        let all: f64 = weights.iter().sum();
        let own: f64 = overheads.iter().zip(&weights).map(|(overhead, &weight)| overhead.own_of(weight)).sum();
        let overhead = Overhead::of(all - own, own, 0.0);
        let samples = is_sampled.then(|| [all, doubtful.iter().sum()]);
        Ok((all > 0.0).then_some(Slowdown { overhead, samples }))
    }

    /// Between which it is, in percent.
    pub(super) fn range(self) -> Option<[f64; 2]> {
        self.samples.map(|[samples, doubtful]| self.overhead.range(samples, doubtful).map(Overhead::in_percent))
    }

    /// As a sentence.
    pub(super) fn sentence(self) -> String {
        format!("tracing made the programs {self}")
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.samples {
            Some([samples, doubtful]) => f.write_str(&self.overhead.with_range(samples, doubtful)),
            None => write!(f, "about {}", self.overhead),
        }
    }
}
