//! Metrics beside the calls, as asynchronous metrics: each series is an instance of its metric's
//! class and has a location of its own, of type `METRIC`, that records it.

use std::path::Path;

use super::super::super::samples;
use super::super::super::{Excerpt, ExportError};
use super::TYPE_DOUBLE;
use super::encoding::{self, Chunks, METRIC, OtfRecord};
use super::gathered::{Gathered, METRICS};

/// Series written at once: each has a file and a chunk in memory.
const AT_ONCE: usize = 64;

/// The class of a metric, by its place among the sampled ones: behind that of the counters, if there is one.
pub(super) fn class(source: &Excerpt<'_>, metric: usize) -> u32 {
    let first = if super::metrics(source).is_empty() { METRICS } else { METRICS + 1 };
    first + metric as u32
}

/// The instance of a series, by its place: classes and instances share their numbers.
pub(super) fn instance(source: &Excerpt<'_>, series: usize) -> u32 {
    class(source, source.sampled_metrics().len()) + series as u32
}

/// The location that records a series, by its place: above those of threads.
pub(super) fn recorder(series: usize) -> u64 {
    1 << 32 | series as u64
}

/// Writes the event files of all series.
pub(super) fn write(source: &Excerpt<'_>, streams: &Path, gathered: &mut Gathered) -> Result<(), ExportError> {
    let series = samples::series(source)?;
    for (some, first) in series.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)) {
        let mut files = Vec::new();
        for place in first..first + some.len() {
            let (path, size) = (streams.join(format!("{}.evt", recorder(place))), encoding::EVENT_CHUNK);
            files.push(Chunks::create(&path, size)?);
            super::local_definitions(streams, recorder(place))?;
        }
        let mut record = OtfRecord::default();
        samples::visit(source, some, |place, sample| {
            record.clear();
            record.int(instance(source, first + place)).byte(1).byte(TYPE_DOUBLE).long(sample.value.to_bits());
            gathered.at(sample.time);
            Ok(files[place].event(sample.time, METRIC, &record, None)?)
        })?;
        for (&series, file) in some.iter().zip(files) {
            gathered.series.push((series, file.finish()?));
        }
    }
    Ok(())
}
