//! What `/proc/PID` reports about a process: a row adds a metric.

use rtrace_model::{Scope, Span};

use super::MetricKind;
use crate::target::proc_files::Stat;

/// Bytes of a page, in which `statm` counts.
const PAGE_BYTES: f64 = 4096.0;

/// A metric of processes.
pub(super) struct ProcessMetric {
    pub(super) kind: MetricKind,
    /// The file in `/proc/PID`.
    file: &'static str,
    /// Takes the value from the file's content.
    take: fn(Vec<u8>) -> Option<f64>,
}

impl ProcessMetric {
    /// The value now; none if the process is gone or does not show it.
    pub(super) fn value(&self, pid: u32) -> Option<f64> {
        (self.take)(std::fs::read(format!("/proc/{pid}/{}", self.file)).ok()?)
    }
}

const fn kind(name: &'static str, unit: &'static str, exponent: i32, span: Span) -> MetricKind {
    MetricKind { name, unit, exponent, scope: Scope::Process, span }
}

/// All metrics of processes. What the fields mean: `proc(5)`.
pub(super) const METRICS: [ProcessMetric; 5] = [
    ProcessMetric {
        kind: kind("process/resident", "B", 0, Span::Point),
        file: "statm",
        take: |statm| Some(str::from_utf8(&statm).ok()?.split(' ').nth(1)?.parse::<f64>().ok()? * PAGE_BYTES),
    },
    ProcessMetric {
        // Clock ticks, of which there are 100 a second on every architecture that rtrace knows.
        kind: kind("process/cpu-time", "s", -2, Span::SinceStart),
        file: "stat",
        take: |stat| {
            let stat = Stat::from_bytes(stat);
            Some((stat.number(14)? + stat.number(15)?) as f64)
        },
    },
    ProcessMetric {
        kind: kind("process/threads", "#", 0, Span::Point),
        file: "stat",
        take: |stat| Some(Stat::from_bytes(stat).number(20)? as f64),
    },
    ProcessMetric {
        kind: kind("process/read", "B", 0, Span::SinceStart),
        file: "io",
        take: |io| io_field(&io, "read_bytes"),
    },
    ProcessMetric {
        kind: kind("process/written", "B", 0, Span::SinceStart),
        file: "io",
        take: |io| io_field(&io, "write_bytes"),
    },
];

fn io_field(io: &[u8], name: &str) -> Option<f64> {
    str::from_utf8(io).ok()?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(name: &str, text: &[u8]) -> Option<f64> {
        METRICS.iter().find(|metric| metric.kind.name == name).and_then(|metric| (metric.take)(text.to_vec()))
    }

    #[test]
    fn fields_are_those_of_proc() {
        let stat = b"7 (a\xff) b) S 1 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 100 1000 200\n";
        assert_eq!(take("process/cpu-time", stat), Some(154.0));
        assert_eq!(take("process/threads", stat), Some(9.0));
        assert_eq!(take("process/resident", b"100 3 2 1 0 10 0\n"), Some(12288.0));
        let io = b"rchar: 1\nread_bytes: 4096\nwrite_bytes: 5\ncancelled_write_bytes: 6\n";
        assert_eq!(take("process/read", io), Some(4096.0));
        assert_eq!(take("process/written", io), Some(5.0));
        for metric in &METRICS {
            assert_eq!((metric.take)(Vec::new()), None);
            assert_eq!((metric.take)(b"7 (x".to_vec()), None);
        }
    }
}
