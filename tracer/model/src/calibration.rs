//! What tracing costs the traced program.

use serde::{Deserialize, Serialize};

use crate::{ExitCost, ExitPolicy, Region};

/// What tracing one call costs, measured on functions of rtrace itself before the recording. Times
/// in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Whether the kernel executes the instruction at the entry in a single step.
    pub single_stepped: bool,
    /// Whether the programs of rtrace do it in the kernel's place.
    #[serde(default)]
    pub written: bool,
    /// How the exit is seen.
    pub exit: ExitPolicy,
    /// Whether the kernel executes the instruction at an exit site in a single step.
    #[serde(default = "in_older_traces")]
    pub exit_single_stepped: bool,
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

/// Exits were seen at returns alone.
fn in_older_traces() -> bool {
    true
}

impl CallCost {
    /// The cost of a call of `region` among `costs`; `is_timed`: its exit was observed, apart from
    /// its enter. Of a region with a stub it is the cost of a call by the stub, the least; of one that has
    /// exits of different cost the middle of both, with the distance to them as part of its spread.
    pub fn of(costs: &[CallCost], region: &Region, is_timed: bool) -> Option<CallCost> {
        let has_exit = is_timed && region.exit != ExitPolicy::Instant;
        let exit = if has_exit { region.exit } else { ExitPolicy::EntryOnly };
        let entry = (region.single_stepped && !region.stub, region.written);
        let is_alike = |cost: &&CallCost| (cost.single_stepped, cost.written) == entry && cost.exit == exit;
        let alike: Vec<CallCost> = costs.iter().filter(is_alike).copied().collect();
        let by_exit = |steps| alike.iter().find(|cost| cost.exit_single_stepped == steps).copied();
        match region.exit_cost {
            _ if exit != ExitPolicy::RetSite => alike.first().copied(),
            ExitCost::Emulated => by_exit(false),
            ExitCost::SingleStepped => by_exit(true),
            ExitCost::Either => Some(by_exit(false)?.between(by_exit(true)?)),
        }
    }

    /// That of a call of which it is not known which one it costs.
    fn between(self, other: CallCost) -> CallCost {
        CallCost {
            inner: self.inner.midpoint(other.inner),
            whole: self.whole.midpoint(other.whole),
            spread: self.spread.max(other.spread) + self.whole.abs_diff(other.whole).div_ceil(2),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LibraryId, RegionId};

    #[test]
    fn a_call_that_may_end_in_two_ways_costs_something_between() {
        let cost = |exit_single_stepped, inner, whole, spread| CallCost {
            single_stepped: false,
            written: false,
            exit: ExitPolicy::RetSite,
            exit_single_stepped,
            inner,
            whole,
            spread,
        };
        let costs = [cost(true, 600, 4500, 40), cost(false, 500, 1300, 30)];
        let region = |exit_cost| Region {
            id: RegionId(0),
            library: LibraryId(0),
            name: "f".to_owned(),
            symbols: Vec::new(),
            file_offset: 0,
            size: 0,
            exit: ExitPolicy::RetSite,
            exit_cost,
            single_stepped: false,
            written: false,
            stub: false,
        };
        let of = |exit_cost| CallCost::of(&costs, &region(exit_cost), true);
        assert_eq!(of(ExitCost::SingleStepped), Some(costs[0]));
        assert_eq!(of(ExitCost::Emulated), Some(costs[1]));
        assert_eq!(of(ExitCost::Either), Some(cost(false, 550, 2900, 1640)));
        assert_eq!(CallCost::of(&costs, &region(ExitCost::Either), false), None);
    }
}
