//! How much slower tracing made the programs while they were recorded, as the recorder measured it once a second.

use std::fmt;

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::{MetricId, Overhead, SAMPLE_PERIOD};

use super::part::duration;

/// How many samples of the programs' CPU time each value is from, and about how many more at most found code that is slower behind a
/// probe.
const SAMPLES: &str = "rtrace/overhead_samples";
const SLOWER: &str = "rtrace/overhead_slower";

/// What it was in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowdown {
    pub(super) overhead: Overhead,
    /// How many samples it is from, and about how many more found slower code; none where these were not counted.
    samples: Option<[f64; 2]>,
    /// Which part of a CPU the programs used with tracing, and without; none where that is not known.
    used: Option<[f64; 2]>,
}

/// Who uses less of a CPU waits for something else, so that a factor of CPU time is none of run time.
const MOSTLY_WAITS: f64 = 0.5;

impl Slowdown {
    /// None where nothing was measured.
    pub(super) fn of(trace: &TraceSet) -> Result<Option<Slowdown>, Error> {
        let id = |name| trace.metrics().iter().find(|metric| metric.name == name).map(|metric| metric.id);
        let Some(metric) = id(Overhead::METRIC) else { return Ok(None) };
        let values = |metric: Option<MetricId>| -> Result<Vec<f64>, Error> {
            let mut values = Vec::new();
            for samples in trace.samples() {
                let of_it = |sample: &&rtrace_model::Sample| Some(sample.metric) == metric && sample.value.is_finite();
                values.extend(samples?.iter().filter(of_it).map(|sample| sample.value));
            }
            Ok(values)
        };
        let overheads: Vec<Overhead> = values(Some(metric))?.into_iter().map(Overhead::percent).collect();
        let [samples, slower] = [values(id(SAMPLES))?, values(id(SLOWER))?];
        // A budget's values are of spans of the same length.
        let is_sampled = samples.len() == overheads.len();
        let weights = if is_sampled { samples } else { vec![1.0; overheads.len()] };
        let all: f64 = weights.iter().sum();
        let own: f64 = overheads.iter().zip(&weights).map(|(overhead, &weight)| overhead.own_of(weight)).sum();
        let overhead = Overhead::of(all - own, own, 0.0);
        let samples = is_sampled.then(|| [all, slower.iter().sum()]);
        let of_cpu = |time| [all, own].map(|samples| samples * SAMPLE_PERIOD.as_nanos() as f64 / time as f64);
        let used = samples.and(duration(trace)).filter(|&time| time > 0).map(of_cpu);
        Ok((all > 0.0).then_some(Slowdown { overhead, samples, used }))
    }

    /// Between which it is, in percent.
    pub(super) fn range(self) -> Option<[f64; 2]> {
        self.samples.map(|[samples, slower]| self.overhead.range(samples, slower).map(Overhead::in_percent))
    }

    /// As a sentence.
    pub(super) fn sentence(self) -> String {
        let used = self.used.filter(|[with, _]| *with < MOSTLY_WAITS).map(|used| {
            let [with, without] = used.map(|part| format!("{:.1} %", part * 100.0));
            format!(" by CPU time: they used {with} of a CPU, {without} without tracing")
        });
        format!("tracing made the programs {self}{}", used.unwrap_or_default())
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.samples {
            Some([samples, slower]) => f.write_str(&self.overhead.with_range(samples, slower)),
            None => write!(f, "about {}", self.overhead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_mostly_waits_is_told_how_much_cpu_time_that_is() {
        let said = |used| Slowdown { overhead: Overhead::percent(470.0), samples: None, used }.sentence();
        let slower = "tracing made the programs about 5.7 times slower";
        assert_eq!([None, Some([0.9, 0.16])].map(said), [slower; 2]);
        let used = format!("{slower} by CPU time: they used 2.8 % of a CPU, 0.5 % without tracing");
        assert_eq!(said(Some([0.028, 0.005])), used);
    }
}
