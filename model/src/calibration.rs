//! What tracing costs the traced program.

use serde::{Deserialize, Serialize};

use crate::{ExitPolicy, Region};

/// The part of a time from which on it is marked that tracing took so much of it, in percent.
pub const MOSTLY_TRACING: u64 = 30;

/// Whether tracing took so much of a recorded time that this says little of the program.
pub fn is_mostly_tracing(recorded: u64, tracing: u64) -> bool {
    u128::from(tracing) * 100 > u128::from(recorded) * u128::from(MOSTLY_TRACING)
}

/// What tracing one call costs, measured on functions of rtrace itself before the recording. Times
/// in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Whether the kernel executes the instruction at the entry in a single step.
    pub single_stepped: bool,
    /// Whether the programs of rtrace do it in the kernel's place.
    pub written: bool,
    /// How the exit is seen.
    pub exit: ExitPolicy,
    /// The part between the time stamps of enter and exit: the call itself seems longer by it.
    #[serde(rename = "inner_ns")]
    pub inner: u64,
    /// All of it: every caller of the call seems longer by it.
    #[serde(rename = "whole_ns")]
    pub whole: u64,
    /// How uncertain `whole` is: half of what it differs by where the caller is not traced.
    #[serde(rename = "spread_ns")]
    pub spread: u64,
}

impl CallCost {
    /// The cost of a call of `region` among `costs`; `is_timed`: its exit was observed, apart from
    /// its enter. Of a region with a stub it is the cost of a call by the stub, and of return sites that of
    /// emulated ones: the least.
    pub fn of(costs: &[CallCost], region: &Region, is_timed: bool) -> Option<CallCost> {
        let exit = if is_timed { region.exit } else { ExitPolicy::EntryOnly };
        let entry = (region.single_stepped && !region.stub, region.written);
        let is_alike = |cost: &&CallCost| (cost.single_stepped, cost.written) == entry && cost.exit == exit;
        costs.iter().filter(is_alike).min_by_key(|cost| cost.whole).copied()
    }

    /// Nanoseconds by which a hit costs more that the kernel single-steps than one that it emulates, among `costs`.
    pub fn of_step(costs: &[CallCost]) -> Option<u64> {
        let of = |single_stepped| {
            let is_meant = |cost: &&CallCost| {
                (cost.single_stepped, cost.written, cost.exit) == (single_stepped, false, ExitPolicy::EntryOnly)
            };
            costs.iter().find(is_meant).map(|cost| cost.whole)
        };
        Some(of(true)?.saturating_sub(of(false)?))
    }

    /// Nanoseconds that the hit of a return site costs which the kernel emulates, among `costs`.
    pub fn of_return(costs: &[CallCost]) -> Option<u64> {
        let of = |exit| {
            let is_meant = |cost: &&CallCost| (cost.single_stepped, cost.written, cost.exit) == (false, false, exit);
            costs.iter().find(is_meant).map(|cost| cost.whole)
        };
        Some(of(ExitPolicy::ReturnSite)?.saturating_sub(of(ExitPolicy::EntryOnly)?))
    }
}
