//! What tracing would add, from how often functions are called now.
//!
//! The program was slowed down by the counting of its calls, so what that took is left out of the
//! CPU time that is its own.

use rtrace::sampling::Sampled;
use rtrace_model::{Overhead, grouped};
use rtrace_plan::{Plan, PlannedRegion};

use super::{Costs, exclusion};

/// Share of the CPU time that is taken to be the program's own at least: the cost of counting is an
/// estimate, and may come to more than there was.
const LEAST_OWN: f64 = 0.1;

/// Functions that are suggested to be left out, at the most.
const MOST_EXCLUDED: usize = 5;

/// Percent of overhead below which nobody needs to leave anything out.
const ENOUGH: f64 = 5.0;

/// What the calls of a sample would cost.
pub struct Prediction<'a> {
    sampled: &'a Sampled,
    costs: &'a Costs,
    /// CPU time of the programs without the counting, in nanoseconds.
    own: f64,
}

impl Prediction<'_> {
    /// For a plan and what was counted of it.
    pub fn of<'a>(plan: &Plan, sampled: &'a Sampled, costs: &'a Costs) -> Prediction<'a> {
        let cpu = sampled.cpu.as_nanos() as f64;
        let mut prediction = Prediction { sampled, costs, own: cpu };
        let counting: f64 = regions(plan).map(|planned| prediction.calls(planned) * costs.enter(planned) as f64).sum();
        prediction.own = (cpu - counting).max(cpu * LEAST_OWN);
        prediction
    }

    fn calls(&self, planned: &PlannedRegion) -> f64 {
        self.sampled.calls.get(&planned.region.id).copied().unwrap_or(0) as f64
    }

    /// Nanoseconds that tracing the calls would have taken, as the recorder reckons it.
    fn cost(&self, planned: &PlannedRegion) -> f64 {
        self.calls(planned) * (self.costs.call(planned) as f64 + self.costs.after())
    }

    fn of_cost(&self, cost: f64) -> Overhead {
        Overhead::of(cost, self.own, self.sampled.time.as_nanos() as f64)
    }

    /// Calls per second of a function.
    pub fn rate(&self, planned: &PlannedRegion) -> f64 {
        self.calls(planned) / self.sampled.time.as_secs_f64().max(1e-9)
    }

    /// What tracing a function alone adds.
    pub fn overhead(&self, planned: &PlannedRegion) -> Overhead {
        self.of_cost(self.cost(planned))
    }

    /// What tracing these functions adds.
    pub fn sum<'p>(&self, planned: impl Iterator<Item = &'p PlannedRegion>) -> Overhead {
        self.of_cost(planned.map(|planned| self.cost(planned)).sum())
    }

    /// What it comes to, and what to do about it.
    pub fn summary(&self, plan: &Plan, has_colours: bool) -> String {
        let rate: f64 = regions(plan).map(|planned| self.rate(planned)).sum();
        let total = self.sum(regions(plan));
        let cost = format!("tracing would cost about {total}");
        let cost = if total.is_high() { rtrace_report::warning(&cost, has_colours) } else { cost };
        let mut text = format!(
            "{cost}, at the {} calls per second that were counted for {:.1} s\n",
            grouped(rate.round() as u64),
            self.sampled.time.as_secs_f64(),
        );
        if total.in_percent() <= ENOUGH {
            return text;
        }
        let (excluded, left) = self.excluded(plan);
        let options: Vec<String> = excluded.iter().filter_map(|planned| exclusion(planned)).collect();
        if !options.is_empty() {
            let most = match options.len() {
                1 => "1 function".to_owned(),
                count => format!("{count} functions"),
            };
            text.push_str(&format!("without the {most} that cost most, about {left}:\n    {}\n", options.join(" ")));
        }
        text.push_str("--budget 5% keeps it below that, and records the functions that cost most only in part\n");
        text
    }

    /// The fewest functions, those first that cost most, without which it is cheap; and what is left.
    fn excluded<'p>(&self, plan: &'p Plan) -> (Vec<&'p PlannedRegion>, Overhead) {
        let mut called: Vec<&PlannedRegion> = regions(plan).filter(|planned| self.cost(planned) > 0.0).collect();
        called.sort_by(|a, b| self.cost(b).total_cmp(&self.cost(a)));
        let mut excluded = Vec::new();
        let mut left = self.sum(called.iter().copied());
        for number in 1..=called.len().min(MOST_EXCLUDED) {
            if left.in_percent() <= ENOUGH {
                break;
            }
            excluded.push(called[number - 1]);
            left = self.sum(called[number..].iter().copied());
        }
        (excluded, left)
    }
}

fn regions(plan: &Plan) -> impl Iterator<Item = &PlannedRegion> {
    plan.libraries.iter().flat_map(|library| &library.regions)
}
