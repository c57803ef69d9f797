//! How long a site that was taken out stays away where functions are throttled.
//!
//! Each time it is twice as long: many sites that come and go would take as much of the budget as they like. One that
//! stayed in place for long has proved its worth, and begins anew.

use std::time::{Duration, Instant};

/// The first time, and at most.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// It begins anew after so many times its last length in place.
const PROVEN: u32 = 4;

/// How long the site of a place stays away.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    length: Duration,
    end: Instant,
}

impl Hold {
    /// Of a site that is taken out now, after this last time.
    pub fn after(last: Option<Hold>, now: Instant) -> Hold {
        let length = match last {
            Some(Hold { length, end }) if now < end + length * PROVEN => (length * 2).min(LONGEST),
            _ => FIRST,
        };
        Hold { length, end: now + length }
    }

    /// Whether the site may come back.
    pub fn is_over(self, now: Instant) -> bool {
        now >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_comes_and_goes_stays_away_longer_each_time() {
        let mut now = Instant::now();
        let mut hold = Hold::after(None, now);
        let mut away = Duration::ZERO;
        for _ in 0..10 {
            assert!(!hold.is_over(now));
            away += hold.length;
            now = hold.end + Duration::from_millis(50);
            assert!(hold.is_over(now));
            hold = Hold::after(Some(hold), now);
        }
        assert_eq!((away, hold.length), (Duration::from_secs(2 + 4 + 8 + 16 + 32 + 5 * 60), LONGEST));
        assert_eq!(Hold::after(Some(hold), hold.end + LONGEST * PROVEN).length, FIRST);
    }
}
