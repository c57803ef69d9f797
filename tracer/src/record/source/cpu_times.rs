//! Samples of CPU time, counted by process and place.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use rtrace_bpf::Samples;
use rtrace_model::{CallSiteId, CpuSamples, Definition, Timestamp};

/// Process and place of samples, as in [`CpuSamples`].
type ProcessPlace = (Option<u32>, Option<CallSiteId>);

/// The samples of a recording.
#[derive(Default)]
pub struct CpuTimes {
    samples: BTreeMap<ProcessPlace, u64>,
    /// Those that are not announced in their newest state.
    changed: BTreeSet<ProcessPlace>,
    /// Code that is in no file, by process and address.
    outside_files: HashMap<(u32, u64), CallSiteId>,
    /// Those that came last: what became of their processes until then may be told only now.
    latest: Samples,
    /// Processes that may not be looked at, since when.
    withheld: HashMap<u32, Timestamp>,
}

impl CpuTimes {
    /// Takes samples, and gives those before them.
    pub fn wait(&mut self, samples: Samples) -> Samples {
        std::mem::replace(&mut self.latest, samples)
    }

    /// Nothing of a process is known from then on, until it executes a program that may be looked at.
    pub fn withhold(&mut self, pid: u32, time: Timestamp) {
        self.withheld.insert(pid, time);
    }

    /// A process has executed a program that may be looked at.
    pub fn resume(&mut self, pid: u32) {
        self.withheld.remove(&pid);
    }

    /// Whether a process was one that may not be looked at.
    pub fn is_withheld(&self, pid: u32, time: Timestamp) -> bool {
        self.withheld.get(&pid).is_some_and(|since| time >= *since)
    }

    /// Adds samples of a process; without a place, they are of the kernel.
    pub fn add(&mut self, pid: u32, site: Option<CallSiteId>, samples: u64) {
        *self.samples.entry((Some(pid), site)).or_default() += samples;
        self.changed.insert((Some(pid), site));
    }

    /// So many samples could not be noted, since the beginning.
    pub fn lose(&mut self, samples: u64) {
        if samples > 0 && self.samples.insert((None, None), samples) != Some(samples) {
            self.changed.insert((None, None));
        }
    }

    /// The site of code in no file, as `define` makes it where it is the first sample there.
    pub fn outside_files(&mut self, place: (u32, u64), define: impl FnOnce() -> CallSiteId) -> CallSiteId {
        *self.outside_files.entry(place).or_insert_with(define)
    }

    /// What has changed since the last call.
    pub fn announce(&mut self) -> Vec<Definition> {
        let row = |place: ProcessPlace| {
            let samples = self.samples.get(&place).copied().unwrap_or_default();
            Definition::CpuSamples(CpuSamples { pid: place.0, call_site: place.1, samples })
        };
        std::mem::take(&mut self.changed).into_iter().map(row).collect()
    }
}
