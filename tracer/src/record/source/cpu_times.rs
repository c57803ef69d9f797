//! Samples of CPU time, counted by process and place.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use rtrace_model::{CallSiteId, CpuSamples, Definition};

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
}

impl CpuTimes {
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
