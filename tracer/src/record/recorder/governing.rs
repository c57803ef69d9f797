//! The recorder's end of the governor: what it hands to it, and what becomes of what it tells.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use rtrace_bpf::Error;
use rtrace_model::{Base, Event, EventKind, Item, LocationId, Metric, MetricId, Overhead, Sample, Scope, Span};

use crate::host;
use crate::record::attach::Governable;
use crate::record::governor::{Living, Report};
use crate::record::pipeline::Pipeline;
use crate::record::source::Source;

/// What tracing takes of the programs' CPU time, how many samples of that time tell so, and about how many more found code that
/// is slower behind a probe; the ids begin with this one.
pub fn overhead_metrics(id: MetricId) -> [Metric; 3] {
    let metric = |id, name: &str, exponent| Metric {
        id,
        name: name.to_owned(),
        unit: "#".to_owned(),
        base: Base::Decimal,
        exponent,
        scope: Scope::Node,
        span: Span::Point,
    };
    let [samples, slower] = [1, 2].map(|place| MetricId(id.0 + place));
    [
        metric(id, Overhead::METRIC, -2),
        metric(samples, "rtrace/overhead_samples", 0),
        metric(slower, "rtrace/overhead_slower", 0),
    ]
}

/// Hands on the values of the first of these metrics.
pub fn tell_overhead(pipeline: &Pipeline, first: MetricId, values: &[f64]) {
    let time = host::now();
    let sample = |(place, &value)| Sample { metric: MetricId(first.0 + place), time, instance: 0, value };
    pipeline.send(Item::Samples((0..).zip(values).map(sample).collect()));
}

/// The ends that the recorder holds.
pub struct Governing {
    adopt: Sender<Governable>,
    reports: Receiver<Report>,
    metric: MetricId,
    /// What runs now.
    pub living: Mutex<Living>,
}

impl Governing {
    /// Both pairs of ends; the id of its metric follows those of the others.
    pub fn new(metric: MetricId, pids: &[u32]) -> (Governing, Receiver<Governable>, Sender<Report>) {
        let (adopt, inbox) = channel();
        let (outbox, reports) = channel();
        let living = Living { pids: pids.to_vec(), ended: Vec::new() };
        (Governing { adopt, reports, metric, living: Mutex::new(living) }, inbox, outbox)
    }

    /// Puts regions under the governor's control.
    pub fn adopt(&self, placed: Governable) {
        // Its end is there as long as the recording goes on.
        let _ = self.adopt.send(placed);
    }

    /// Lets the governor know what runs.
    pub fn tell(&self, pids: Vec<u32>, mut ended: Vec<LocationId>) {
        let mut living = self.living.lock().unwrap_or_else(PoisonError::into_inner);
        living.pids = pids;
        living.ended.append(&mut ended);
    }

    /// Hands on what the governor tells.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn hear(&self, pipeline: &Pipeline, source: &mut Source<'_>) -> Result<(), Error> {
        for report in self.reports.try_iter() {
            match report {
                Report::Level { time, region, name, from, to } => {
                    let kind = EventKind::Level { region, name, from, to };
                    pipeline.send(Item::Event(Event { time, pid: None, tid: None, kind }));
                }
                Report::Estimates(estimates) => source.estimated(estimates)?,
                Report::Overhead(share) => tell_overhead(pipeline, self.metric, &[share * 100.0]),
            }
        }
        Ok(())
    }
}
