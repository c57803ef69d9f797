//! CPU time that was sampled: in which traced functions, and beside their calls.

use std::collections::HashMap;

use rtrace_model::{CallSite, Region};

use crate::{ChainId, Led, TraceSet, Untraced};

/// The code of traced functions.
pub struct TracedCode<'a> {
    /// By path of the library, in the order of their places.
    regions: HashMap<&'a str, Vec<&'a Region>>,
}

impl<'a> TracedCode<'a> {
    /// That of a trace.
    pub fn of(trace: &'a TraceSet) -> TracedCode<'a> {
        let mut regions: HashMap<&str, Vec<&Region>> = HashMap::new();
        for region in trace.regions() {
            let Some(library) = trace.library(region.library) else { continue };
            regions.entry(&library.path).or_default().push(region);
        }
        regions.values_mut().for_each(|regions| regions.sort_by_key(|region| region.file_offset));
        TracedCode { regions }
    }

    /// The traced function that a sample or a call is in: the site is the byte behind it.
    pub fn region(&self, site: &CallSite) -> Option<&'a Region> {
        let regions = self.regions.get(site.file.as_deref()?)?;
        let place = site.offset.checked_sub(1)?;
        let after = regions.partition_point(|region| region.file_offset <= place);
        regions[..after].last().copied().filter(|region| place - region.file_offset < region.size)
    }
}

/// CPU time beside traced calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledTime {
    /// The process.
    pub pid: u32,
    /// The functions that led there, and that in which it was.
    pub chain: ChainId,
    /// Nanoseconds: the samples times the time between two.
    pub time: u64,
}

/// The CPU time beside traced calls, by samples whose stacks are known: those on whose stacks is no traced function. None
/// where stacks were not sampled.
pub fn sampled_beside_calls(trace: &TraceSet, untraced: &mut Untraced) -> Vec<SampledTime> {
    let Some(hertz) = trace.traces().find_map(|trace| trace.header().sampling) else { return Vec::new() };
    let code = TracedCode::of(trace);
    let mut times: HashMap<(u32, ChainId), u64> = HashMap::new();
    for samples in trace.cpu_samples() {
        let (Some(pid), Some(context)) = (samples.pid, samples.context.and_then(|id| trace.context(id))) else {
            continue;
        };
        let mut sites = samples.call_site.iter().chain(&context.sites).filter_map(|&site| trace.call_site(site));
        if sites.any(|site| code.region(site).is_some()) {
            continue;
        }
        let led = Led { site: samples.call_site, context: samples.context, is_root: true };
        if let Some(chain) = untraced.of(trace, led) {
            *times.entry((pid, chain)).or_default() += samples.samples;
        }
    }
    let time = |samples: u64| samples.saturating_mul(1_000_000_000) / u64::from(hertz.max(1));
    let mut times: Vec<SampledTime> =
        times.into_iter().map(|((pid, chain), samples)| SampledTime { pid, chain, time: time(samples) }).collect();
    times.sort_by_key(|sampled| (sampled.pid, sampled.chain));
    times
}
