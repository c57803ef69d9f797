//! Times and sizes as people write them on a command line: `500ms`, `1.5s`, `8M`, `1%`.

use std::time::Duration;

use rtrace_model::Percent;
use rtrace_report::Min;

const LONGEST_HOURS: u64 = 24 * 365;
const SMALLEST_BUFFER: u64 = 64 << 10;
const LARGEST_BUFFER: u64 = 1 << 30;

/// Reads a time with its unit: `ns`, `us`, `ms`, `s`, `m` or `h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// The same of a time that has passed since something, which may be 0, also without a unit.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let seconds_per_unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" if number == "0" => return Ok(Duration::ZERO),
        "" => return Err("a unit is missing: ns, us, ms, s, m or h, as in `2s`".to_owned()),
        _ => return Err(format!("`{unit}` is not a unit of time: use ns, us, ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "expected a number and a unit, as in `2s`".to_owned())?;
    let duration = Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|error| error.to_string())?;
    if duration.as_secs() > LONGEST_HOURS * 3600 {
        return Err(format!("must be at most {LONGEST_HOURS}h"));
    }
    Ok(duration)
}

/// A limit of the overhead, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub Option<Percent>);

/// Reads a part of the CPU time in `%`, or `none`.
pub fn parse_budget(text: &str) -> Result<Budget, String> {
    if text == "none" {
        return Ok(Budget(None));
    }
    let number = text.strip_suffix('%').ok_or("expected a share of the CPU time, as in `5%`, or `none`")?;
    let percent: f64 = number.parse().map_err(|_| "expected a number and `%`, as in `5%`, or `none`".to_owned())?;
    if !(0.1..=90.0).contains(&percent) {
        return Err("must be from 0.1% to 90%".to_owned());
    }
    Ok(Budget(Some(Percent((percent * 1_000.0).round() as u32))))
}

/// Reads a size in bytes, with `K`, `M` or `G` for powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let bytes_per_unit: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return Err(format!("`{unit}` is not a unit of size: use K, M or G")),
    };
    let number: u64 = number.parse().map_err(|_| "expected a whole number, as in `8M`".to_owned())?;
    Ok(number.saturating_mul(bytes_per_unit))
}

/// The same of a ring buffer.
pub fn parse_buffer_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    if !(SMALLEST_BUFFER..=LARGEST_BUFFER).contains(&bytes) {
        return Err("must be from 64K to 1G".to_owned());
    }
    Ok(u32::try_from(bytes).expect("the largest buffer fits in 32 bits"))
}

/// Reads the least time of a row: a time from `ns` to `s`, or a share of the whole in `%`.
pub fn parse_min(text: &str) -> Result<Min, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic() || c == '%').unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| "expected a number and a unit, as in `1ms` or `1%`".to_owned())?;
    let ns_per_unit = match unit {
        "%" if (0.0..=100.0).contains(&number) => return Ok(Min::Share(number / 100.0)),
        "%" => return Err("must be from 0% to 100%".to_owned()),
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("expected a unit: ns, us, ms, s or %".to_owned()),
    };
    if number < 0.0 { Err("must not be negative".to_owned()) } else { Ok(Min::Time((number * ns_per_unit) as u64)) }
}

fn split_unit(text: &str) -> (&str, &str) {
    let number_ends = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    text.split_at(number_ends)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_duration("1h").unwrap(), Duration::from_secs(3600));
    }

    #[test]
    fn times_may_be_zero() {
        assert_eq!(["0", "0s", "0ms"].map(|text| parse_time(text).unwrap()), [Duration::ZERO; 3]);
        assert_eq!(parse_time("1.5s").unwrap(), Duration::from_millis(1500));
        assert!(["5", "-1s", ""].iter().all(|text| parse_time(text).is_err()));
    }

    #[test]
    fn durations_that_make_no_sense_are_refused() {
        for text in ["", "2", "s", "-1s", "0s", "2 days", "2µs", "1e300h", "9999999h", "nan s", "infs", "1.2.3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_least_time_is_a_time_or_a_share() {
        assert_eq!(parse_min("1.5us"), Ok(Min::Time(1_500)));
        assert_eq!(parse_min("2s"), Ok(Min::Time(2_000_000_000)));
        assert_eq!(parse_min("0.5%"), Ok(Min::Share(0.005)));
        for text in ["", "5", "%", "101%", "-1ms", "1m", "nan%"] {
            assert!(parse_min(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        assert_eq!(parse_buffer_size("8M").unwrap(), 8 << 20);
        assert_eq!(parse_buffer_size("64k").unwrap(), 64 << 10);
        assert_eq!(parse_buffer_size("1G").unwrap(), 1 << 30);
        assert_eq!(parse_buffer_size("65536").unwrap(), 65536);
        for text in ["", "M", "4K", "2G", "-8M", "1.5M", "8MiB", "99999999999999999999M", "18446744073709551615G"] {
            assert!(parse_buffer_size(text).is_err(), "{text}");
        }
    }
}
