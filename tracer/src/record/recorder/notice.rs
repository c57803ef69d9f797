//! Says how much slower tracing makes the programs, and once, where no budget was given, that it is more than most would want.

use rtrace_bpf::Ticks;
use rtrace_model::{LEAST_CPU, Overhead, SAMPLE_PERIOD, Timestamp};

use crate::host;

/// Percent by which the program's time is longer.
const WORTH_SAYING: f64 = 50.0;

/// Nanoseconds of tracing between two looks, at least: whoever runs something short does not wait for it, and a budget
/// would change nothing.
const LEAST_TRACING: f64 = 100e6;

/// Nanoseconds by which the program's own code is slower at most behind a call whose tracing takes [`UNIT`]. What follows a probe
/// finds less in the caches, and the less, the longer the kernel was at work: in ten programs whose calls took 4 to 20 us,
/// it was by 600 to 2,000 ns, about as the root of that.
const SLOWER_BEHIND: f64 = 400.0;
const UNIT: f64 = 1_000.0;

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
    /// Those that found tracing, or the program's own code as it is without.
    pub samples: f64,
    /// About as many at most found the program's code besides, because it is slower behind probes.
    pub slower: f64,
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
        let tracing = ticks.of_tracing.saturating_sub(before.of_tracing) as f64;
        // Of each call: the root of what its tracing takes.
        let slower = (tracing * period / UNIT * more as f64).sqrt() * SLOWER_BEHIND / period;
        let others = (samples - tracing).max(LEAST_CPU * time - tracing);
        let (overhead, samples) = Overhead::sampled(tracing, others, slower);
        SampledOverhead { overhead, samples, slower }
    }

    /// In percent, the first time that it is worth saying.
    pub fn worth_saying(&mut self, sampled: SampledOverhead) -> Option<u32> {
        let SampledOverhead { overhead, samples, .. } = sampled;
        let percent = overhead.in_percent();
        let tracing = (samples - overhead.own_of(samples)) * SAMPLE_PERIOD.as_nanos() as f64;
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
        let mut look = |all, of_tracing, calls| {
            let sampled = notice.look(Ticks { all, of_tracing }, calls, 1e6);
            (sampled.overhead.in_percent().round(), sampled.samples.round(), sampled.slower)
        };
        assert_eq!(look(1_000, 200, 0), (25.0, 1_000.0, 0.0));
        assert_eq!(look(1_000, 200, 0), (0.0, 0.0, 0.0));
        // Own code is slower by 400 ns a call, times the root of its 2 us, if there is enough of it.
        let (percent, samples, slower) = look(2_000, 1_000, 400_000);
        assert_eq!((percent, samples, slower.round()), (1_867.0, 843.0, 226.0));
    }

    #[test]
    fn what_is_worth_saying_is_said_once() {
        let mut notice = Notice::new();
        let mut said = |percent, samples| {
            notice.worth_saying(SampledOverhead { overhead: Overhead::percent(percent), samples, slower: 0.0 })
        };
        assert_eq!(said(49.0, 1_000.0), None);
        assert_eq!(said(400.0, 50.0), None, "the program is too short");
        assert_eq!(said(80.4, 1_000.0), Some(80));
        assert_eq!(said(10.0, 1_000.0), None);
        assert_eq!(said(90.0, 1_000.0), None);
    }
}
