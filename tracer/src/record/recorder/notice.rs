//! Says how much slower tracing makes the programs, and once, where no budget was given, that it is more than most would want.

use std::time::Duration;

use rtrace_bpf::Ticks;
use rtrace_model::{LEAST_CPU, Overhead, Timestamp};

use crate::host;

/// CPU time between two ticks of a clock, in step with no other timer.
pub const TICK: Duration = Duration::from_nanos(1_017_071);

/// Percent by which the program's time is longer.
const WORTH_SAYING: f64 = 50.0;

/// Nanoseconds of tracing between two looks, at least: whoever runs something short does not wait for it, and a budget
/// would change nothing.
const LEAST_TRACING: f64 = 100e6;

/// Nanoseconds by which the program's own code is slower for each call: what follows a probe finds less in the caches. It
/// was 220 to 560 in five programs, and 700 to 1,000 in two while others used the same caches: what is said has to
/// allow for none and for twice as much.
const SLOWER_BEHIND: f64 = 500.0;

/// What ticks of the clocks tell of the cost since a time.
pub struct Notice {
    before: Ticks,
    calls: u64,
    looked: Timestamp,
    is_said: bool,
}

/// What tracing costs, and from how many samples of CPU time that follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledOverhead {
    pub overhead: Overhead,
    pub samples: f64,
    /// Of those of the program's code, as many as may be only because of tracing.
    pub doubtful: f64,
}

impl Notice {
    /// Recording is switched on now.
    pub fn new() -> Notice {
        Notice { before: Ticks::default(), calls: 0, looked: host::now(), is_said: false }
    }

    /// What tracing has cost since the last look. `calls`: those recorded so far; `period`: nanoseconds of CPU time of a tick.
    pub fn look(&mut self, ticks: Ticks, calls: u64, period: f64) -> SampledOverhead {
        let now = host::now();
        let time = now.since(std::mem::replace(&mut self.looked, now)) as f64 / period;
        let before = std::mem::replace(&mut self.before, ticks);
        let more = calls.saturating_sub(std::mem::replace(&mut self.calls, calls));
        let samples = ticks.all.saturating_sub(before.all) as f64;
        let tracing = ticks.at_breakpoints.saturating_sub(before.at_breakpoints) as f64;
        let doubtful = more as f64 * SLOWER_BEHIND / period;
        let others = (samples - tracing).max(LEAST_CPU * time - tracing);
        SampledOverhead { overhead: Overhead::sampled(tracing, others, doubtful), samples, doubtful }
    }

    /// In percent, the first time that it is worth saying.
    pub fn worth_saying(&mut self, sampled: SampledOverhead) -> Option<u32> {
        let SampledOverhead { overhead, samples, .. } = sampled;
        let percent = overhead.in_percent();
        let tracing = (samples - overhead.own_of(samples)) * TICK.as_nanos() as f64;
        let is_new = percent > WORTH_SAYING && tracing > LEAST_TRACING && !self.is_said;
        self.is_said |= is_new;
        is_new.then_some(percent.round() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_ticks_since_the_last_look() {
        let mut notice = Notice::new();
        let mut look = |all, at_breakpoints, calls| {
            let sampled = notice.look(Ticks { all, at_breakpoints }, calls, 1e6);
            (sampled.overhead.in_percent().round(), sampled.samples, sampled.doubtful)
        };
        assert_eq!(look(1_000, 200, 0), (25.0, 1_000.0, 0.0));
        assert_eq!(look(1_000, 200, 0), (0.0, 0.0, 0.0));
        assert_eq!(look(2_000, 1_000, 400_000), (600.0, 1_000.0, 200.0));
    }

    #[test]
    fn what_is_worth_saying_is_said_once() {
        let mut notice = Notice::new();
        let mut said = |percent, samples| {
            notice.worth_saying(SampledOverhead { overhead: Overhead::percent(percent), samples, doubtful: 0.0 })
        };
        assert_eq!(said(49.0, 1_000.0), None);
        assert_eq!(said(400.0, 50.0), None, "the program is too short");
        assert_eq!(said(80.4, 1_000.0), Some(80));
        assert_eq!(said(10.0, 1_000.0), None);
        assert_eq!(said(90.0, 1_000.0), None);
    }
}
