//! Samples of CPU time, counted by process and place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use foldhash::HashMap;
use rtrace_bpf::{Error, Programs};
use rtrace_model::{CallSiteId, ContextId, CpuSamples, Definition, Timestamp};

use super::call_sites::CallSites;
use crate::record::cpu_clock::TakenSamples;

/// Process and place of samples, and what led there, as in [`CpuSamples`].
type ProcessPlace = (Option<u32>, Option<CallSiteId>, Option<ContextId>);

/// The samples of a recording.
#[derive(Default)]
pub struct CpuTimes {
    samples: BTreeMap<ProcessPlace, u64>,
    /// Those that are not announced in their newest state.
    changed: BTreeSet<ProcessPlace>,
    /// Code that is in no file, by process and address.
    outside_files: HashMap<(u32, u64), CallSiteId>,
    /// Those that came last: what became of their processes until then may be told only now.
    latest: TakenSamples,
    /// Processes that may not be looked at, from when until when.
    withheld: Vec<(u32, Range<Timestamp>)>,
}

impl CpuTimes {
    /// Takes samples, and places those before them.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn take(&mut self, samples: TakenSamples, sites: &mut CallSites, programs: &Programs) -> Result<(), Error> {
        let samples = std::mem::replace(&mut self.latest, samples);
        for (place, count, context) in samples.places {
            let (pid, address, time) = (place.process, place.address, Timestamp(place.time));
            if self.withheld.iter().any(|(of, times)| *of == pid && times.contains(&time)) {
                continue;
            }
            if place.in_kernel != 0 {
                self.add((Some(pid), None, context), count);
                continue;
            }
            let found = sites.sampled(pid, programs.space(pid)?, address, time);
            let define = || sites.in_no_file(pid, address);
            let site = found.unwrap_or_else(|| *self.outside_files.entry((pid, address)).or_insert_with(define));
            self.add((Some(pid), Some(site), context), count);
        }
        // Those are counted since the beginning.
        let lost = self.samples.get(&(None, None, None)).copied().unwrap_or_default();
        if samples.lost > lost {
            self.add((None, None, None), samples.lost - lost);
        }
        Ok(())
    }

    /// Nothing of a process is known from then on, until it executes a program that may be looked at.
    pub fn withhold(&mut self, pid: u32, time: Timestamp) {
        self.withheld.push((pid, time..Timestamp(u64::MAX)));
    }

    /// A process has executed a program that may be looked at.
    pub fn resume(&mut self, pid: u32, time: Timestamp) {
        let open = self.withheld.iter_mut().filter(|(of, times)| *of == pid && times.contains(&time));
        open.for_each(|(_, times)| times.end = time);
    }

    fn add(&mut self, place: ProcessPlace, samples: u64) {
        *self.samples.entry(place).or_default() += samples;
        self.changed.insert(place);
    }

    /// What has changed since the last call.
    pub fn announce(&mut self) -> Vec<Definition> {
        let row = |place: ProcessPlace| {
            let samples = self.samples.get(&place).copied().unwrap_or_default();
            Definition::CpuSamples(CpuSamples { pid: place.0, call_site: place.1, context: place.2, samples })
        };
        std::mem::take(&mut self.changed).into_iter().map(row).collect()
    }
}
