//! What tracing cost the programs while they were recorded, as the recorder measured it once a second.

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::Overhead;

/// The metric that says it, in percent.
const METRIC: &str = "rtrace/overhead";

/// The mean of all that was measured; none where nothing was, as in recordings of less than a second.
pub(super) fn overhead(trace: &TraceSet) -> Result<Option<Overhead>, Error> {
    let Some(metric) = trace.metrics().iter().find(|metric| metric.name == METRIC) else { return Ok(None) };
    let (mut sum, mut count) = (0.0, 0_u64);
    for samples in trace.samples() {
        for sample in samples?.iter().filter(|sample| sample.metric == metric.id && sample.value.is_finite()) {
            sum += sample.value;
            count += 1;
        }
    }
    Ok((count > 0).then(|| Overhead::percent(sum / count as f64)))
}

/// As a sentence.
pub(super) fn sentence(overhead: Overhead) -> String {
    format!("tracing cost the programs about {overhead}")
}
