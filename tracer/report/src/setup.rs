//! When the processes of a parallel job belong to it: from the end of its initialization, such as `MPI_Init`, to the start
//! of its finalization. Before and after that, launchers and recorders are at work, which start the processes at
//! different times.

use std::collections::HashMap;

use rtrace_exporters::{TraceSet, in_order};
use rtrace_model::{Batch, Call, Location, RegionId, Timestamp};

use super::Error;

/// Batches of calls at each end of a trace that are looked through.
const BATCHES: usize = 2;

/// The start and the end of each process in its job, where they are on record.
#[derive(Default)]
pub(super) struct JobTimes(HashMap<(u32, Timestamp), [Option<Timestamp>; 2]>);

impl JobTimes {
    /// By what functions do: those that set a job `up`, and those that take it `down`.
    ///
    /// # Errors
    /// The calls cannot be read.
    pub(super) fn new(trace: &TraceSet, setup: &HashMap<RegionId, &'static str>) -> Result<JobTimes, Error> {
        let mut times = JobTimes::default();
        if setup.is_empty() {
            return Ok(times);
        }
        let of_setup = |batch: Batch| -> Vec<Call> {
            batch.iter().filter(|call| setup.contains_key(&call.region)).copied().collect()
        };
        let calls_of = |place| -> Result<Vec<Call>, Error> {
            let mut batches = trace.calls_of(place);
            let mut calls = Vec::new();
            for batch in batches.by_ref().take(BATCHES) {
                calls.extend(of_setup(batch?));
            }
            for batch in batches.rev().take(BATCHES) {
                calls.extend(of_setup(batch?));
            }
            Ok(calls)
        };
        in_order(trace.traces().len(), calls_of, |calls| {
            calls?.iter().for_each(|call| times.add(trace, call, setup[&call.region]));
            Ok::<_, Error>(())
        })?;
        Ok(times)
    }

    fn add(&mut self, trace: &TraceSet, call: &Call, what: &str) {
        let Some(process) = trace.location(call.location).and_then(|location| trace.process_of(location)) else {
            return;
        };
        let [start, end] = self.0.entry((process.pid, process.start)).or_default();
        match what {
            "up" => *start = (*start).max(Some(call.known_until())),
            _ => *end = Some(end.map_or(call.start, |end| end.min(call.start))),
        }
    }

    /// The time in which a thread belongs to the job, of that from `start` to `end`; in nanoseconds.
    pub(super) fn life(&self, trace: &TraceSet, location: &Location, [start, end]: [Timestamp; 2]) -> u64 {
        let process = trace.process_of(location);
        let of_job = process.and_then(|process| self.0.get(&(process.pid, process.start)));
        let [up, down] = of_job.copied().unwrap_or_default();
        down.map_or(end, |down| down.min(end)).since(up.map_or(start, |up| up.max(start)))
    }
}
