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
    fn our_own_time_grows_and_that_of_nobody_does_not() {
        let pids = [std::process::id(), u32::MAX >> 1];
        let mut meter = CpuMeter::default();
        assert_eq!(meter.since_last(&pids), 0);
        let mut sum = 0_u64;
        (0..1_000_000).for_each(|number| sum = std::hint::black_box(sum ^ number));
        assert!(meter.since_last(&pids) > 100_000);
    }
}
