//! Calls per second, measured over the last whole second.

use std::time::Duration;

use rtrace_model::RegionId;

use crate::snapshot::Snapshot;

const WINDOW: Duration = Duration::from_secs(1);

/// The rates of a recording and of each of its regions.
#[derive(Debug, Default)]
pub struct Rates {
    since: Duration,
    calls: u64,
    total: f64,
    /// Calls at `since` and calls per second, indexed by region.
    regions: Vec<(u64, f64)>,
}

impl Rates {
    /// Takes a new snapshot into account, once a window has passed since the last one taken.
    pub fn update(&mut self, snapshot: &Snapshot, elapsed: Duration) {
        let span = elapsed.saturating_sub(self.since);
        if span < WINDOW {
            return;
        }
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / span.as_secs_f64();
        self.total = rate(self.calls, snapshot.calls);
        self.calls = snapshot.calls;
        self.since = elapsed;
        let regions = snapshot.functions.last().map_or(0, |function| function.region.index() + 1);
        self.regions.resize(regions.max(self.regions.len()), (0, 0.0));
        for function in &snapshot.functions {
            let entry = &mut self.regions[function.region.index()];
            *entry = (function.totals.calls, rate(entry.0, function.totals.calls));
        }
    }

    /// Calls per second of the recording.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Calls per second of one region.
    pub fn of(&self, region: RegionId) -> f64 {
        self.regions.get(region.index()).map_or(0.0, |&(_, rate)| rate)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::{Function, Totals};

    fn snapshot(calls: u64) -> Snapshot {
        let totals = Totals { calls, ..Totals::default() };
        let function = Function { region: RegionId(3), name: Arc::from("f"), library: Arc::from("l"), totals };
        Snapshot { calls, functions: vec![function], ..Snapshot::default() }
    }

    #[test]
    fn a_rate_is_taken_over_at_least_a_second() {
        let mut rates = Rates::default();
        rates.update(&snapshot(1000), Duration::from_secs(2));
        assert_eq!((rates.total(), rates.of(RegionId(3)), rates.of(RegionId(9))), (500.0, 500.0, 0.0));
        rates.update(&snapshot(9000), Duration::from_millis(2900));
        assert_eq!(rates.total(), 500.0);
        rates.update(&snapshot(2000), Duration::from_secs(4));
        assert_eq!((rates.total(), rates.of(RegionId(3))), (500.0, 500.0));
        rates.update(&snapshot(2000), Duration::from_secs(5));
        assert_eq!((rates.total(), rates.of(RegionId(3))), (0.0, 0.0));
    }
}
