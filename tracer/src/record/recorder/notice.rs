//! Says how much slower tracing makes the programs, and once, where no budget was given, that it is more than most would want.

use std::time::Duration;

use rtrace_bpf::Ticks;
use rtrace_model::{Overhead, Timestamp};

use crate::host;

/// CPU time between two ticks of a clock, in step with no other timer.
pub const TICK: Duration = Duration::from_nanos(1_017_071);

/// Percent by which the program's time is longer.
const WORTH_SAYING: f64 = 50.0;

/// What ticks of the clocks tell of the cost since a time.
pub struct Notice {
    before: Ticks,
    looked: Timestamp,
    is_said: bool,
}

impl Notice {
    /// Recording is switched on now.
    pub fn new() -> Notice {
        Notice { before: Ticks::default(), looked: host::now(), is_said: false }
    }

    /// What tracing has cost since the last look, and how many ticks tell so. `period`: nanoseconds of CPU time for each.
    pub fn look(&mut self, ticks: Ticks, period: f64) -> (Overhead, u64) {
        let now = host::now();
        let time = now.since(std::mem::replace(&mut self.looked, now)) as f64;
        let before = std::mem::replace(&mut self.before, ticks);
        let (all, tracing) = (ticks.all - before.all, ticks.at_breakpoints - before.at_breakpoints);
        // One that was nearly found is not none.
        let own = (all.saturating_sub(tracing) as f64).max(0.5);
        (Overhead::of(tracing as f64 * period, own * period, time), all)
    }

    /// In percent, the first time that it is worth saying.
    pub fn worth_saying(&mut self, overhead: Overhead) -> Option<u32> {
        let percent = overhead.in_percent();
        let is_new = percent > WORTH_SAYING && !self.is_said;
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
        let mut look = |all, at_breakpoints| {
            let (overhead, ticks) = notice.look(Ticks { all, at_breakpoints }, 1e6);
            (overhead.in_percent().round(), ticks)
        };
        assert_eq!(look(1_000, 200), (25.0, 1_000));
        assert_eq!(look(1_000, 200), (0.0, 0));
        assert_eq!(look(2_000, 1_200), (200_000.0, 1_000));
    }

    #[test]
    fn what_is_worth_saying_is_said_once() {
        let mut notice = Notice::new();
        let percent = |percent| Overhead::percent(percent);
        assert_eq!(notice.worth_saying(percent(49.0)), None);
        assert_eq!(notice.worth_saying(percent(80.4)), Some(80));
        assert_eq!(notice.worth_saying(percent(10.0)), None);
        assert_eq!(notice.worth_saying(percent(90.0)), None);
    }
}
