//! Calls without a record, where a budget keeps tracing cheap.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::{LocationId, RegionId, grouped, words};

words! {
    /// How calls of a region are recorded, where a budget decides.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Level {
        /// As without a budget.
        Full = "full",
        /// No probe is in place but for short windows, from which their number is estimated.
        Off = "off",
    }
}

/// The calls of one region on one location that have no record, so far. Calls with a record, or in
/// the profile, are none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// The thread.
    pub location: LocationId,
    /// The function.
    pub region: RegionId,
    /// Calls that were counted, exactly.
    pub counted: u64,
    /// Calls that were not seen, as windows tell; `None` where nothing is known of their number.
    pub estimated: Option<u64>,
    /// The true number is within so many of that, 95 times of 100; `None`: there were at least `estimated`.
    pub margin: Option<u64>,
}

impl Estimate {
    /// The calls that were not seen.
    pub fn missed(&self) -> Missed {
        Missed {
            estimated: self.estimated.unwrap_or(0),
            margin: self.margin.unwrap_or(0),
            has_unknown: self.margin.is_none(),
        }
    }
}

/// What is known of calls that were not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// How many there were.
    pub estimated: u64,
    /// By how many that may be wrong: sums of intervals of 95 %.
    pub margin: u64,
    /// There may be more, of which nothing is known.
    pub has_unknown: bool,
}

/// How much is known of a number of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// There were no fewer.
    AtLeast(u64),
    /// It is within a margin of this one.
    About(u64),
}

impl AddAssign for Missed {
    fn add_assign(&mut self, other: Missed) {
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.margin = self.margin.saturating_add(other.margin);
        self.has_unknown = self.has_unknown || other.has_unknown;
    }
}

impl Missed {
    /// The sum of these.
    pub fn of(estimates: impl IntoIterator<Item = Estimate>) -> Missed {
        let mut sum = Missed::default();
        estimates.into_iter().for_each(|estimate| sum += estimate.missed());
        sum
    }

    /// What may be said of their number.
    pub fn known(self) -> Known {
        match (self.estimated.saturating_sub(self.margin), self.has_unknown) {
            (0, true) => Known::Nothing,
            (least, true) => Known::AtLeast(least),
            (_, false) => Known::About(self.estimated),
        }
    }

    /// The margin as a part of so many calls.
    pub fn margin_of(self, calls: u64) -> String {
        let percent = self.margin as f64 * 100.0 / calls.max(1) as f64;
        if percent < 1.0 { "\u{b1}1 %".to_owned() } else { format!("\u{b1}{percent:.0} %") }
    }
}

/// As people are told it.
impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Known::Nothing => write!(f, "an unknown number more unseen"),
            Known::AtLeast(calls) => write!(f, "at least {} more unseen", grouped(calls)),
            Known::About(calls) => write!(f, "about {} ({}) more unseen", grouped(calls), self.margin_of(calls)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_zero() {
        let known = Missed { estimated: 3_000, margin: 420, has_unknown: false };
        assert_eq!(known.to_string(), "about 3,000 (\u{b1}14 %) more unseen");
        let unknown = Estimate::default().missed();
        assert_eq!(unknown.to_string(), "an unknown number more unseen");
        let mut both = known;
        both += unknown;
        assert_eq!(both.to_string(), "at least 2,580 more unseen");
    }
}
