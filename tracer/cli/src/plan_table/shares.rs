//! In which functions of a plan CPU time is spent.

use std::collections::HashMap;

use rtrace::sampling::Sampled;
use rtrace_model::RegionId;
use rtrace_plan::{Plan, PlannedLibrary, PlannedRegion};

use crate::cpu_time;

/// Samples by function.
pub struct SampleShares<'a> {
    sampled: &'a Sampled,
    functions: HashMap<RegionId, u64>,
}

impl SampleShares<'_> {
    /// For a plan.
    pub fn of<'a>(plan: &Plan, sampled: &'a Sampled) -> SampleShares<'a> {
        let functions = plan.libraries.iter().flat_map(|library| sampled.of_functions(library)).collect();
        SampleShares { sampled, functions }
    }

    /// Samples in a function itself, without what it calls.
    pub fn samples(&self, planned: &PlannedRegion) -> u64 {
        self.functions.get(&planned.region.id).copied().unwrap_or(0)
    }

    /// Samples in the code of a library that is in none of the functions.
    pub fn others(&self, library: &PlannedLibrary) -> u64 {
        let all = self.sampled.of_file((library.library.device, library.library.inode));
        all - library.regions.iter().map(|planned| self.samples(planned)).sum::<u64>()
    }

    /// The share that so many samples are, for people.
    pub fn share(&self, samples: u64) -> String {
        cpu_time::share(self.sampled, samples)
    }

    /// The same as a number, from 0 to 1.
    pub fn fraction(&self, samples: u64) -> Option<f64> {
        cpu_time::fraction(self.sampled, samples)
    }

    /// Where CPU time is spent, how right that is, and what it does not tell.
    pub fn summary(&self, plan: &Plan) -> String {
        let functions: u64 = self.functions.values().sum();
        let others: u64 = plan.libraries.iter().map(|library| self.others(library)).sum();
        let elsewhere = self.sampled.samples() - functions - others - self.sampled.in_kernel;
        let parts = [
            (others, "in other code of their libraries"),
            (self.sampled.in_kernel, "in the kernel"),
            (elsewhere, "elsewhere"),
        ];
        let parts = parts.into_iter().filter(|(samples, _)| *samples > 0);
        let parts: String = parts.map(|(samples, place)| format!(", {} {place}", self.share(samples))).collect();
        let basis = cpu_time::basis(self.sampled);
        match self.sampled.samples() {
            0 => format!("{basis}\n"),
            _ => format!(
                "CPU time: {} in these functions{parts}\n{basis}\nwhat tracing would add depends on how often they are \
                 called, which samples do not tell: --budget 5% limits it\n",
                self.share(functions)
            ),
        }
    }
}
