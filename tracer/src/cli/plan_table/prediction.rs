//! What tracing would add, from how often functions are called now.
//!
//! The program was slowed down by the counting of its calls, so what that took is left out of the
//! CPU time that is its own.

use rtrace::sampling::Sampled;
use rtrace_plan::{Plan, PlannedRegion};

use super::Costs;

/// Share of the CPU time that is taken to be the program's own at least: the cost of counting is an
/// estimate, and may come to more than there was.
const LEAST_OWN: f64 = 0.1;

/// What the calls of a sample would cost.
pub struct Prediction<'a> {
    sampled: &'a Sampled,
    costs: &'a Costs,
    /// CPU time of the programs without the counting, in nanoseconds.
    own: f64,
    /// It may be less: the counting took nearly all of the time.
    is_less: bool,
}

impl Prediction<'_> {
    /// For a plan and what was counted of it.
    pub fn of<'a>(plan: &Plan, sampled: &'a Sampled, costs: &'a Costs) -> Prediction<'a> {
        let cpu = sampled.cpu.as_nanos() as f64;
        let mut prediction = Prediction { sampled, costs, own: cpu, is_less: false };
        let regions = plan.libraries.iter().flat_map(|library| &library.regions);
        let counting: f64 = regions.map(|planned| prediction.calls(planned) * costs.enter(planned) as f64).sum();
        prediction.is_less = cpu - counting < cpu * LEAST_OWN;
        prediction.own = (cpu - counting).max(cpu * LEAST_OWN).max(1.0);
        prediction
    }

    fn calls(&self, planned: &PlannedRegion) -> f64 {
        self.sampled.calls.get(&planned.region.id).copied().unwrap_or(0) as f64
    }

    /// Calls per second of a function.
    pub fn rate(&self, planned: &PlannedRegion) -> f64 {
        self.calls(planned) / self.sampled.time.as_secs_f64().max(1e-9)
    }

    /// What tracing a function adds to the programs' CPU time, as a share of it.
    pub fn slowdown(&self, planned: &PlannedRegion) -> f64 {
        self.calls(planned) * self.costs.call(planned) as f64 / self.own
    }

    /// All of it in a sentence.
    pub fn summary(&self, plan: &Plan) -> String {
        let regions = || plan.libraries.iter().flat_map(|library| &library.regions);
        format!(
            "sampled {:.1} s: {:.0} calls per second, {:.2} s of CPU time; tracing would add {} {:.0} % CPU time",
            self.sampled.time.as_secs_f64(),
            regions().map(|planned| self.rate(planned)).sum::<f64>(),
            self.own / 1e9,
            if self.is_less { "at least" } else { "about" },
            regions().map(|planned| self.slowdown(planned)).sum::<f64>() * 100.0
        )
    }
}
