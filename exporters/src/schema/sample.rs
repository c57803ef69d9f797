//! `samples/`: a row per value of a metric that is measured beside the calls.

use rtrace_model::{MetricId, Sample, Timestamp};

use super::Stream;
use super::cell::row;

row!(Sample, "samples", {
    "metric": metric,
    "instance": instance,
    "time_ns": time,
    "value": value,
});

impl Stream for Sample {
    type Key = (MetricId, u32, Timestamp);

    fn key(&self) -> Self::Key {
        (self.metric, self.instance, self.time)
    }
}
