//! One unit for all times of a column, so that the eye can put them in order.

use crate::grouped;

/// Units of time, from the largest: name and nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Digits that a typical small value has at least, and digits after the point at most.
const DIGITS: usize = 3;

/// Digits after the point of times that change.
const HUNDREDTHS: usize = 2;

/// A unit, and how exactly times are shown in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its symbol.
    pub name: &'static str,
    nanoseconds: u64,
    decimals: usize,
}

impl Unit {
    /// The unit in which most of these times, in nanoseconds, have three digits; zeros do not count. Only the
    /// smallest quarter may be shown with fewer.
    pub fn of(times: impl Iterator<Item = u64>) -> Unit {
        let mut times: Vec<u64> = times.filter(|&time| time > 0).collect();
        times.sort_unstable();
        let small = times.get(times.len() / 4).copied().unwrap_or(0);
        let largest = times.last().copied().unwrap_or(0);
        // A tenth still has three digits after the point.
        let is_fit = |&&(_, unit): &&(&str, u64)| small >= unit.div_ceil(10) && largest >= unit;
        let &(name, nanoseconds) = UNITS.iter().find(is_fit).unwrap_or(&UNITS[UNITS.len() - 1]);
        let before_point = (small / nanoseconds).checked_ilog10().map_or(0, |digits| digits as usize + 1);
        let decimals = if nanoseconds == 1 { 0 } else { DIGITS.saturating_sub(before_point) };
        Unit { name, nanoseconds, decimals }
    }

    /// A time without the unit; what rounds to zero and is none is shown as less than the last digit.
    pub fn show(&self, time: u64, is_grouped: bool) -> String {
        let scale = 10_u128.pow(self.decimals as u32);
        let nanoseconds = u128::from(self.nanoseconds);
        let digits = (u128::from(time) * scale + nanoseconds / 2) / nanoseconds;
        if time == 0 {
            return "0".to_owned();
        }
        if digits == 0 {
            return format!("<{}", self.decimal(1, scale, is_grouped));
        }
        self.decimal(digits, scale, is_grouped)
    }

    /// The unit for times that change and stand in so many cells: the one before while it still suits them, so that the
    /// eye finds numbers where they were. Fractions have two digits.
    pub fn steady(before: Option<Unit>, times: &[u64], cells: usize) -> Unit {
        let unit = Unit::of(times.iter().copied());
        // One that is too small for the cells gives way to the next larger one.
        let from = UNITS.iter().position(|&(name, _)| name == unit.name).unwrap_or(0);
        let fresh = (0..=from).rev().map(Unit::with_hundredths).find(|unit| unit.fits(times, cells));
        before.filter(|unit| unit.suits(times, cells)).or(fresh).unwrap_or_else(|| Unit::with_hundredths(0))
    }

    fn with_hundredths(place: usize) -> Unit {
        let (name, nanoseconds) = UNITS[place];
        Unit { name, nanoseconds, decimals: if nanoseconds == 1 { 0 } else { HUNDREDTHS } }
    }

    fn fits(&self, times: &[u64], cells: usize) -> bool {
        times.iter().max().is_none_or(|&largest| self.show(largest, true).len() <= cells)
    }

    /// Whether most of the times can be read in this unit.
    fn suits(&self, times: &[u64], cells: usize) -> bool {
        let is_read = |time: u64| time >= self.nanoseconds.div_ceil(100) && time / self.nanoseconds < 10_000;
        let (read, all) = times
            .iter()
            .filter(|&&time| time > 0)
            .fold((0, 0), |(read, all), &time| (read + usize::from(is_read(time)), all + 1));
        4 * read >= 3 * all && self.fits(times, cells)
    }

    fn decimal(&self, digits: u128, scale: u128, is_grouped: bool) -> String {
        let whole = u64::try_from(digits / scale).unwrap_or(u64::MAX);
        let whole = if is_grouped { grouped(whole) } else { whole.to_string() };
        match self.decimals {
            0 => whole,
            decimals => format!("{whole}.{:0decimals$}", digits % scale),
        }
    }
}

/// A time with three digits and its own unit, all of one width behind their digits.
pub fn brief(time: u64) -> String {
    let place = UNITS.iter().position(|&(_, unit)| time >= unit).unwrap_or(UNITS.len() - 1);
    let shown = |place: usize| {
        let (name, nanoseconds) = UNITS[place];
        let before_point = (time / nanoseconds).checked_ilog10().map_or(1, |digits| digits as usize + 1);
        let decimals = if nanoseconds == 1 { 0 } else { DIGITS.saturating_sub(before_point) };
        (Unit { name, nanoseconds, decimals }.show(time, true), name)
    };
    // What is rounded up to a thousand has a larger unit.
    let is_full = |(text, _): &(String, &str)| text != "1,000" && text != "1,000.0";
    let (text, name) = Some(shown(place)).filter(is_full).unwrap_or_else(|| shown(place.saturating_sub(1)));
    format!("{text} {name:<2}")
}

/// A round time with its own unit, such as a step of a histogram.
pub fn round(time: u64) -> String {
    let (name, unit) = UNITS.into_iter().find(|&(_, unit)| time >= unit).unwrap_or(("ns", 1));
    let thousandths = u128::from(time) * 1_000 / u128::from(unit);
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    let rest = format!(".{rest:03}");
    format!("{whole}{} {name}", rest.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(times: &[u64]) -> (&'static str, Vec<String>) {
        let unit = Unit::of(times.iter().copied());
        (unit.name, times.iter().map(|&time| unit.show(time, true)).collect())
    }

    fn are(unit: &'static str, times: &[&str]) -> (&'static str, Vec<String>) {
        (unit, times.iter().map(|&time| time.to_owned()).collect())
    }

    #[test]
    fn most_times_have_three_digits() {
        assert_eq!(shown(&[2_522_000_000, 261_901_000]), are("s", &["2.522", "0.262"]));
        assert_eq!(shown(&[226_716, 79_625, 10_611, 3_888]), are("us", &["226.7", "79.6", "10.6", "3.9"]));
        assert_eq!(shown(&[27_343, 992, 601]), are("us", &["27.343", "0.992", "0.601"]));
        assert_eq!(shown(&[12, 7]), are("ns", &["12", "7"]));
    }

    #[test]
    fn one_long_time_does_not_hide_the_others() {
        let times = [1_000_000_000, 300, 310, 320];
        assert_eq!(shown(&times), are("us", &["1,000,000.000", "0.300", "0.310", "0.320"]));
    }

    #[test]
    fn what_is_too_small_is_not_shown_as_nothing() {
        let mut times = vec![5_000_000_000; 8];
        times.extend([1_000, 0]);
        let (unit, shown) = shown(&times);
        assert_eq!((unit, shown[0].as_str(), shown[8].as_str(), shown[9].as_str()), ("s", "5.00", "<0.01", "0"));
    }

    #[test]
    fn no_times_and_all_times_have_a_unit() {
        assert_eq!(Unit::of([].into_iter()).name, "ns");
        assert_eq!(Unit::of([0, 0].into_iter()).show(0, true), "0");
        let longest = Unit::of([u64::MAX].into_iter());
        assert_eq!((longest.name, longest.show(u64::MAX, true)), ("s", "18,446,744,074".to_owned()));
        assert_eq!(longest.show(u64::MAX, false), "18446744074");
    }

    #[test]
    fn a_unit_stays_while_it_suits() {
        let unit = |before, times: &[u64], cells| Unit::steady(before, times, cells);
        let ms = unit(None, &[12_345_678, 950_000], 10);
        assert_eq!((ms.name, ms.show(12_345_678, true).as_str()), ("ms", "12.35"));
        assert_eq!(unit(None, &[1_400_000_000, 1_100_000_000], 10).name, "s");
        assert_eq!(unit(Some(ms), &[1_400_000_000, 1_100_000_000], 10), ms);
        assert_eq!(unit(Some(ms), &[1_400_000_000, 1_100_000_000], 7).name, "s", "it must fit");
        assert_eq!(unit(Some(ms), &[900, 700, 0], 10).name, "ns", "nothing could be read");
        assert_eq!(unit(None, &[9_000_000_000_000, 20, 30, 40], 8).name, "s");
        assert_eq!(unit(None, &[], 8).name, "ns");
        assert_eq!(unit(None, &[u64::MAX], 3).name, "s");
    }

    #[test]
    fn brief_times_have_three_digits() {
        let times = [0, 7, 999, 1_000, 12_345, 999_949, 999_999, 124_479_210, 9_999_000_000, 5_000_000_000_000];
        let expected =
            ["0 ns", "7 ns", "999 ns", "1.00 us", "12.3 us", "1.00 ms", "1.00 ms", "124 ms", "10.00 s ", "5,000 s "];
        assert_eq!(times.map(brief), expected);
    }

    #[test]
    fn round_times_are_short() {
        assert_eq!(
            [0, 1, 200, 1_000, 1_024, 50_000_000].map(round),
            ["0 ns", "1 ns", "200 ns", "1 us", "1.024 us", "50 ms"]
        );
    }
}
