//! Instants and durations, and how they are shown.

use serde::{Deserialize, Serialize};

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Nanoseconds from `earlier` to this instant; 0 where `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One instant read on both clocks, so that monotonic times can be shown as wall-clock times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// The instant on `CLOCK_MONOTONIC`.
    pub monotonic: Timestamp,
    /// The same instant on `CLOCK_REALTIME`: nanoseconds since 1970-01-01 UTC.
    pub realtime_ns: u64,
}

/// Shows a duration in nanoseconds with the largest unit that keeps a digit before the point.
///
/// ```
/// assert_eq!(rtrace_model::format_ns(999), "999 ns");
/// assert_eq!(rtrace_model::format_ns(1_234_567), "1.235 ms");
/// ```
pub fn format_ns(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}
