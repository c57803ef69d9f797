//! What tracing takes of the programs' time, estimated: the number of calls of each kind of site, by
//! what one was measured to cost here before the recording.

use std::collections::HashMap;

use rtrace_bpf::wire::HitTimes;
use rtrace_model::{CallCost, ExitPolicy, Region};

/// Nanoseconds of a call of kinds that were not measured: as on slow machines.
const UNKNOWN: f64 = 1_500.0;
const UNKNOWN_SINGLE_STEPPED: f64 = 20_000.0;

/// By so much of what a call costs the program is slower afterwards: 0.3 to 0.5 in five programs whose functions were called
/// up to a million times a second.
const SLOWER_AFTER: f64 = 0.4;

/// Hits that have to be timed for a mean.
const FEWEST_TIMED: u64 = 8;

/// Nanoseconds that a call of the region costs, recorded or, where not `is_recorded`, only counted.
pub fn of_call(costs: &[CallCost], region: &Region, is_recorded: bool) -> f64 {
    let unknown = if region.single_stepped { UNKNOWN_SINGLE_STEPPED } else { UNKNOWN };
    let is_timed = is_recorded && region.exit != ExitPolicy::EntryOnly;
    CallCost::of(costs, region, is_timed).map_or(unknown, |cost| cost.whole as f64)
}

/// Nanoseconds that the hit of a return site costs, which the kernel may single-step.
pub fn of_return(costs: &[CallCost], is_stepped: bool) -> f64 {
    let (bare, step) = (CallCost::of_return(costs), CallCost::of_step(costs));
    match is_stepped {
        true => bare.zip(step).map_or(UNKNOWN_SINGLE_STEPPED, |(bare, step)| (bare + step) as f64),
        false => bare.map_or(UNKNOWN, |bare| bare as f64),
    }
}

/// Nanoseconds by which a program is slower after a call.
pub fn after(costs: &[CallCost]) -> f64 {
    let is_timed = |of: &&CallCost| (of.single_stepped, of.written, of.exit) == (false, false, ExitPolicy::ReturnSite);
    let call = costs.iter().find(is_timed).map(|cost| cost.whole as f64);
    call.unwrap_or(UNKNOWN) * SLOWER_AFTER
}

/// What calls cost beyond what was measured: their stacks are deeper, and what hits look at is in no cache; and returns
/// may be single-stepped. And the program itself is slower after a hit, which leaves less of its own in the caches.
#[derive(Debug, Default)]
pub struct Surcharge {
    /// Nanoseconds of a hit where the cost was measured, at an enter and at a return.
    calm: Option<[f64; 2]>,
    /// Nanoseconds by which the program is slower after a call.
    after: f64,
    /// Nanoseconds of a single step.
    step: f64,
    times: HitTimes,
    stepped: u64,
    /// Nanoseconds that a call took longer of late.
    longer: f64,
}

impl Surcharge {
    /// None so far. `calm`: what hits took while `costs` were measured.
    pub fn new(costs: &[CallCost], calm: Option<HitTimes>) -> Surcharge {
        let calm = calm.and_then(|calm| mean_times(&calm, &HitTimes::default()));
        let step = (of_return(costs, true) - of_return(costs, false)).max(0.0);
        let after = after(costs);
        Surcharge { calm, after, step, ..Surcharge::default() }
    }

    /// Nanoseconds that a call cost more since the last time. `times` and `stepped` are what hits took and returns that
    /// were single-stepped so far, `calls` those since the last time.
    pub fn since_last(&mut self, times: HitTimes, stepped: u64, calls: u64) -> f64 {
        let of_late = mean_times(&times, &std::mem::replace(&mut self.times, times));
        let steps = stepped.saturating_sub(std::mem::replace(&mut self.stepped, stepped));
        if let Some((calm, now)) = self.calm.zip(of_late).filter(|_| calls > 0) {
            let longer: f64 = now.into_iter().zip(calm).map(|(now, calm)| now - calm).sum();
            self.longer = longer.max(0.0);
        }
        // Single steps are counted one by one, however few hits were timed.
        let stepped = if calls > 0 { steps as f64 * self.step / calls as f64 } else { 0.0 };
        self.after + self.longer + stepped
    }
}

/// Nanoseconds of a hit at an enter and at a return since `before`; none where too few were timed to tell. A thread that is
/// interrupted while it adds to a sum takes it back to where it was, so that it may be less than before.
fn mean_times(now: &HitTimes, before: &HitTimes) -> Option<[f64; 2]> {
    let mean = |count: Option<u64>, time: Option<u64>| {
        let count = count.filter(|&count| count >= FEWEST_TIMED)?;
        Some(time? as f64 / count as f64)
    };
    let enter = mean(now.enters.checked_sub(before.enters), now.enter_time.checked_sub(before.enter_time))?;
    let ret = mean(now.returns.checked_sub(before.returns), now.return_time.checked_sub(before.return_time))?;
    Some([enter, ret])
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
pub fn cpu_time(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: the pointer is valid for the call, which does not keep it.
    let is_known = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0 };
    is_known.then(|| time_of(clock)).flatten()
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_time() -> u64 {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

fn time_of(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    let is_known = unsafe { libc::clock_gettime(clock, &raw mut time) == 0 };
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
    fn what_hits_take_longer_than_was_measured_and_single_steps_are_a_surcharge() {
        let times = |hits: u64, enter, ret| HitTimes {
            enters: hits,
            enter_time: hits * enter,
            returns: hits,
            return_time: hits * ret,
        };
        let cost =
            |single_stepped, exit, whole| CallCost { single_stepped, written: false, exit, inner: 0, whole, spread: 0 };
        let costs = [
            cost(false, ExitPolicy::EntryOnly, 500),
            cost(false, ExitPolicy::ReturnSite, 1_000),
            cost(true, ExitPolicy::EntryOnly, 10_500),
        ];
        let mut surcharge = Surcharge::new(&costs, Some(times(100, 300, 200)));
        assert_eq!(surcharge.since_last(times(10, 400, 250), 0, 160), 550.0);
        let more = HitTimes { enters: 20, enter_time: 4_000 + 2_000, returns: 20, return_time: 2_500 + 3_000 };
        assert_eq!(surcharge.since_last(more, 16, 160), 1_400.0, "what takes less is no discount");
        assert_eq!(surcharge.since_last(more, 32, 160), 1_400.0, "steps count where nothing was timed");
        assert_eq!(surcharge.since_last(times(10, 400, 250), 32, 160), 400.0, "a sum was taken back");
        assert_eq!(Surcharge::new(&costs, None).since_last(times(10, 400, 250), 0, 160), 400.0);
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
