//! What tracing takes of the programs' time, estimated: the number of calls of each kind of site, by
//! what one was measured to cost here before the recording.

use std::collections::HashMap;

use rtrace_model::{CallCost, ExitPolicy, Region};

/// Nanoseconds of a call of kinds that were not measured: as on slow machines.
const UNKNOWN: f64 = 1_500.0;
const UNKNOWN_SINGLE_STEPPED: f64 = 20_000.0;

/// Nanoseconds that a call of the region costs, recorded or, where not `is_recorded`, only counted.
pub fn of_call(costs: &[CallCost], region: &Region, is_recorded: bool) -> f64 {
    let unknown = if region.single_stepped { UNKNOWN_SINGLE_STEPPED } else { UNKNOWN };
    let is_timed = is_recorded && region.exit != ExitPolicy::EntryOnly;
    CallCost::of(costs, region, is_timed).map_or(unknown, |cost| cost.whole as f64)
}

/// Nanoseconds that the hit of a return site costs, which the kernel may single-step.
pub fn of_return(costs: &[CallCost], is_stepped: bool) -> f64 {
    let of = |single_stepped, exit| {
        let is_meant =
            |cost: &&CallCost| (cost.single_stepped, cost.written, cost.exit) == (single_stepped, false, exit);
        costs.iter().find(is_meant).map(|cost| cost.whole as f64)
    };
    let emulated = of(false, ExitPolicy::EntryOnly);
    let step = of(true, ExitPolicy::EntryOnly).zip(emulated).map(|(stepped, emulated)| (stepped - emulated).max(0.0));
    let bare = of(false, ExitPolicy::ReturnSite).zip(emulated).map(|(whole, emulated)| (whole - emulated).max(0.0));
    match is_stepped {
        true => bare.zip(step).map_or(UNKNOWN_SINGLE_STEPPED, |(bare, step)| bare + step),
        false => bare.unwrap_or(UNKNOWN),
    }
}

/// CPU time that processes use.
#[derive(Debug, Default)]
pub struct CpuMeter {
    before: HashMap<u32, u64>,
}

impl CpuMeter {
    /// Nanoseconds of CPU time that these processes used since the last call; of a process that is
    /// new here, nothing.
    pub fn since_last(&mut self, pids: &[u32]) -> u64 {
        let now: HashMap<u32, u64> = pids.iter().filter_map(|&pid| Some((pid, cpu_time(pid)?))).collect();
        let used = now.iter().filter_map(|(pid, time)| Some(time.saturating_sub(*self.before.get(pid)?))).sum();
        self.before = now;
        used
    }
}

/// CPU time of a process in nanoseconds; none if it has ended.
fn cpu_time(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are valid for the calls, which keep neither.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_known.then(|| time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_costs_what_a_timed_call_costs_more_than_a_counted_one() {
        let cost =
            |single_stepped, exit, whole| CallCost { single_stepped, written: false, exit, inner: 0, whole, spread: 0 };
        let costs = [
            cost(false, ExitPolicy::EntryOnly, 700),
            cost(false, ExitPolicy::ReturnSite, 1_500),
            cost(true, ExitPolicy::EntryOnly, 10_700),
        ];
        assert_eq!((of_return(&costs, false), of_return(&costs, true)), (800.0, 10_800.0));
        assert_eq!((of_return(&costs[..1], false), of_return(&costs[..2], true)), (UNKNOWN, UNKNOWN_SINGLE_STEPPED));
    }

    #[test]
    fn our_own_time_grows_and_that_of_nobody_does_not() {
        let pids = [std::process::id(), u32::MAX >> 1];
        let mut meter = CpuMeter::default();
        assert_eq!(meter.since_last(&pids), 0);
        let mut sum = 0_u64;
        (0..1_000_000).for_each(|number| sum = std::hint::black_box(sum ^ number));
        assert!(meter.since_last(&pids) > 100_000);
    }
}
