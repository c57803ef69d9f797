//! What of a count is tracing's own part.

use rtrace_model::counter::{self, Source, Unit};

/// How much of what calls count comes from the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPart {
    /// Nothing: the probes do not do what is counted.
    Nothing,
    /// All their time, as they run on the CPU of the thread.
    Time,
    /// Something that is not measured.
    Unknown,
}

impl OwnPart {
    /// Of the counter or watched variable of that name, as `metrics.parquet` has it.
    pub fn of(name: &str) -> OwnPart {
        // Watched variables; no counter's name ends so.
        if name.ends_with(":w") || name.ends_with(":rw") {
            return OwnPart::Nothing;
        }
        match counter::find(name) {
            Some(known) if known.unit == Unit::NANOSECONDS => OwnPart::Time,
            Some(known) => match known.source {
                Source::Kernel(_) => OwnPart::Nothing,
                Source::Software(_) | Source::Hardware(_) => OwnPart::Unknown,
            },
            None => OwnPart::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_a_cpu_has_all_and_what_the_kernel_counts_nothing() {
        for name in ["task-clock", "cpu-clock"] {
            assert_eq!(OwnPart::of(name), OwnPart::Time, "{name}");
        }
        for name in ["page-faults", "faults", "context-switches", "migrations", "total:w", "libz.so:x:rw"] {
            assert_eq!(OwnPart::of(name), OwnPart::Nothing, "{name}");
        }
        for name in ["cycles", "instructions:u", "cpu-clock:u", "msr/tsc/", "r01c2", "sched:sched_switch"] {
            assert_eq!(OwnPart::of(name), OwnPart::Unknown, "{name}");
        }
    }
}
