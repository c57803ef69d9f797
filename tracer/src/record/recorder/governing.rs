//! The recorder's end of the governor: what it hands to it, and what becomes of what it tells.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use rtrace_bpf::Error;
use rtrace_model::{Base, Event, EventKind, Item, LocationId, Metric, MetricId, Sample, Scope, Span};

use crate::host;
use crate::record::attach::Governable;
use crate::record::governor::{Living, Report};
use crate::record::pipeline::Pipeline;
use crate::record::source::Source;

/// What tracing takes of the programs' CPU time, and how many samples of that time tell so; the ids begin with this one.
pub fn overhead_metrics(id: MetricId) -> [Metric; 2] {
    let metric = |id, name: &str, exponent, span| Metric {
        id,
        name: name.to_owned(),
        unit: "#".to_owned(),
        base: Base::Decimal,
        exponent,
        scope: Scope::Node,
        span,
    };
    let overhead = metric(id, "rtrace/overhead", -2, Span::Point);
    [overhead, metric(samples_of(id), "rtrace/overhead_samples", 0, Span::Point)]
}

fn samples_of(overhead: MetricId) -> MetricId {
    MetricId(overhead.0 + 1)
}

/// Hands on what it takes now, in percent, and how many samples tell so, where it comes from these.
pub fn tell_overhead(pipeline: &Pipeline, metric: MetricId, value: f64, samples: Option<u64>) {
    let (time, instance) = (host::now(), 0);
    let of_samples = |samples| Sample { metric: samples_of(metric), time, instance, value: samples as f64 };
    let told = [Sample { metric, time, instance, value }].into_iter().chain(samples.map(of_samples));
    pipeline.send(Item::Samples(told.collect()));
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
                Report::Overhead(share) => tell_overhead(pipeline, self.metric, share * 100.0, None),
            }
        }
        Ok(())
    }
}
