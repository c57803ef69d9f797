//! `samples/`: a row per value of a metric that is measured beside the calls.

use std::sync::Arc;

use arrow_array::{Float64Array, RecordBatch};
use rtrace_model::{MetricId, Sample, Timestamp};

use super::column::{self, ColumnError, Columns};
use super::{Row, Stream};

impl Row for Sample {
    const PLACE: &'static str = "samples";

    fn encode<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> RecordBatch {
        let samples = || samples.clone();
        let values = Float64Array::from_iter_values(samples().map(|sample| sample.value));
        column::batch([
            ("metric", column::int32(samples().map(|sample| sample.metric.0)), false),
            ("instance", column::int32(samples().map(|sample| sample.instance)), false),
            ("time_ns", column::int64(samples().map(|sample| sample.time.0)), false),
            ("value", Arc::new(values), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Sample>, ColumnError> {
        let metric = columns.int32("metric")?;
        let instance = columns.int32("instance")?;
        let time = columns.int64("time_ns")?;
        let value = columns.float64("value")?;
        let sample = |row| Sample {
            metric: MetricId(metric[row]),
            time: Timestamp(time[row]),
            instance: instance[row],
            value: value[row],
        };
        Ok((0..columns.rows()).map(sample).collect())
    }
}

impl Stream for Sample {
    type Key = (MetricId, u32, Timestamp);

    fn key(&self) -> Self::Key {
        (self.metric, self.instance, self.time)
    }
}
