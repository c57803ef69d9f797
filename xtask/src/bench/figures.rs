//! What many rounds say.

use std::fmt;

/// One ratio per round.
pub struct Ratios(pub Vec<f64>);

impl Ratios {
    /// The one in the middle, or between the two in the middle; of at least one.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
    }

    /// The lowest and the highest.
    pub fn range(&self) -> (f64, f64) {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }
}

/// The most that a ratio is to be.
pub struct Goal(pub f64);

impl Goal {
    /// Whether it is reached.
    pub fn verdict(&self, ratio: f64) -> &'static str {
        if ratio <= self.0 { "reached" } else { "**missed**" }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Ratios(vec![3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Ratios(vec![4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(Ratios(vec![4.0, 1.0, 2.0]).range(), (1.0, 4.0));
    }

    #[test]
    fn what_is_missed_is_said() {
        assert_eq!(Goal(0.5).verdict(0.5), "reached");
        assert_eq!(Goal(0.5).verdict(0.51), "**missed**");
    }
}
