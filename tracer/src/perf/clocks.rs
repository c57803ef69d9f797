//! Clocks on the CPUs, each of which notes where the processes are whenever its CPU has worked for a time.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context as _;
use rtrace_bpf::{SampleDetail, Sampling, SamplingSetup, online_cpus};

use super::clock;

/// Different places for which there is room at most; some 100 bytes each.
const MOST_PLACES: u128 = 1 << 18;
const FEWEST_PLACES: u128 = 1 << 10;

/// Clocks that interrupt each CPU whenever that has worked for so long. They do not run yet.
///
/// # Errors
/// The kernel refuses clocks.
pub fn of_all_cpus(period: Duration) -> anyhow::Result<Vec<OwnedFd>> {
    Ok(online_cpus()?.into_iter().map(|cpu| clock(cpu, period)).collect::<Result<_, _>>()?)
}

/// Lets a clock on each CPU tick whenever that has worked for so long, as long as `meanwhile` takes. There is room for so
/// many processes, which may be with their children, and for the samples of so long.
///
/// # Errors
/// The kernel refuses clocks or a program that they start, and what `meanwhile` says.
pub fn with_clocks<T>(
    period: Duration,
    (processes, with_children): (u32, bool),
    (length, detail): (Duration, SampleDetail),
    meanwhile: impl FnOnce(Sampling<'_>) -> Result<T, rtrace_bpf::Error>,
) -> anyhow::Result<T> {
    let refused = "failed to sample where CPU time is spent: the kernel refuses a clock for it";
    let clocks = of_all_cpus(period).context(refused)?;
    let ticks = (length.as_nanos() / period.as_nanos().max(1)).saturating_mul(clocks.len() as u128);
    let places = u32::try_from(ticks.clamp(FEWEST_PLACES, MOST_PLACES)).expect("it is within these bounds");
    let setup = SamplingSetup { processes, with_children, places, detail };
    rtrace_bpf::sample(setup, clocks, meanwhile).context("failed to sample where CPU time is spent")
}
