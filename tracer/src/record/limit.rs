//! What a budget leaves for what is placed before a recording begins.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use rtrace_model::{CallCost, Percent, RegionId};

use crate::record::governor::controller;
use crate::record::pauses::Pauses;

/// What is known of the cost of calls, and what they may cost.
#[derive(Clone, Copy)]
pub struct Limit<'a> {
    /// What calls cost here.
    pub costs: &'a [CallCost],
    /// The budget.
    pub budget: Percent,
    /// Processes that have links now.
    pub processes: usize,
    /// Whether their children get some, too.
    pub follow: bool,
    /// Set once nobody waits for the recording any more.
    pub stop: &'a AtomicBool,
}

impl Limit<'_> {
    /// The part of the processes' time that recording what is placed at first may take.
    pub fn most(self) -> f64 {
        self.budget.share() * controller::LOWER_TO
    }

    /// Whether nobody waits for the recording any more.
    pub fn is_stopped(self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Pauses between probes that are placed or taken out.
    pub fn pauses(self) -> Pauses {
        Pauses::within(self.budget)
    }
}

/// Those that cost most, so that the others take this part of the time at most. Costs are parts of the time that the processes use without.
pub fn too_costly(costs: &HashMap<RegionId, f64>, most: f64) -> HashSet<RegionId> {
    let mut cheapest: Vec<(RegionId, f64)> = costs.iter().map(|(&region, &cost)| (region, cost)).collect();
    cheapest.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut sum = 0.0;
    let fits = |&&(_, cost): &&(RegionId, f64)| {
        sum += cost;
        // Tracing is a part of the time that it makes longer.
        sum / (1.0 + sum) <= most
    };
    let number = cheapest.iter().take_while(fits).count();
    cheapest.into_iter().skip(number).map(|(region, _)| region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_most_is_left_out_until_the_rest_fits() {
        let costs = HashMap::from([(RegionId(1), 5.0), (RegionId(2), 0.01), (RegionId(3), 0.001), (RegionId(4), 0.02)]);
        assert_eq!(too_costly(&costs, 0.02), HashSet::from([RegionId(1), RegionId(4)]));
        assert_eq!(too_costly(&costs, 0.11), HashSet::from([RegionId(1)]));
        assert_eq!(too_costly(&HashMap::new(), 0.02), HashSet::new());
    }
}
