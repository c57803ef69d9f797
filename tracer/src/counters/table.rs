//! The counters that have a name everywhere: a row adds one.
//!
//! Names, aliases and codes of performance events are those of `perf list` and
//! `perf_event_open(2)`.

use perf_event_open_sys::bindings as perf;
use rtrace_bpf::wire::CountCode;

use super::{EventCode, Source, Unit};

/// A counter with a name of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) alias: Option<&'static str>,
    /// What it counts, for people.
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) source: Source,
}

/// The counter of that name or alias.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    TABLE.iter().find(|known| known.name == name || known.alias == Some(name))
}

const fn kernel(name: &'static str, what: &'static str, code: CountCode) -> Known {
    Known { name, alias: None, what, unit: Unit::COUNT, source: Source::Kernel(code) }
}

const fn software(name: &'static str, what: &'static str, config: perf::perf_sw_ids) -> Known {
    let event = EventCode::new(perf::PERF_TYPE_SOFTWARE, config as u64);
    Known { name, alias: None, what, unit: Unit::COUNT, source: Source::Event(event) }
}

const fn hardware(name: &'static str, what: &'static str, config: perf::perf_hw_id) -> Known {
    let event = EventCode::new(perf::PERF_TYPE_HARDWARE, config as u64);
    Known { name, alias: None, what, unit: Unit::COUNT, source: Source::Event(event) }
}

impl Known {
    const fn or(self, alias: &'static str) -> Known {
        Known { alias: Some(alias), ..self }
    }

    const fn in_nanoseconds(self) -> Known {
        Known { unit: Unit::NANOSECONDS, ..self }
    }
}

pub(super) const TABLE: &[Known] = &[
    kernel("task-clock", "time on a CPU", CountCode::RT_COUNT_CPU_TIME).in_nanoseconds(),
    kernel("page-faults", "page faults", CountCode::RT_COUNT_PAGE_FAULTS).or("faults"),
    kernel("minor-faults", "page faults without disk access", CountCode::RT_COUNT_MINOR_FAULTS),
    kernel("major-faults", "page faults with disk access", CountCode::RT_COUNT_MAJOR_FAULTS),
    kernel("context-switches", "times the thread left a CPU", CountCode::RT_COUNT_CONTEXT_SWITCHES).or("cs"),
    kernel("cpu-migrations", "moves to another CPU", CountCode::RT_COUNT_MIGRATIONS).or("migrations"),
    software("cpu-clock", "time on a CPU, by the scheduler's clock", perf::PERF_COUNT_SW_CPU_CLOCK).in_nanoseconds(),
    software("alignment-faults", "unaligned accesses that the kernel mended", perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    software("emulation-faults", "instructions that the kernel emulated", perf::PERF_COUNT_SW_EMULATION_FAULTS),
    hardware("cpu-cycles", "cycles of the CPU's clock", perf::PERF_COUNT_HW_CPU_CYCLES).or("cycles"),
    hardware("instructions", "instructions retired", perf::PERF_COUNT_HW_INSTRUCTIONS),
    hardware("cache-references", "accesses to the last cache", perf::PERF_COUNT_HW_CACHE_REFERENCES),
    hardware("cache-misses", "accesses that missed the last cache", perf::PERF_COUNT_HW_CACHE_MISSES),
    hardware("branch-instructions", "branches retired", perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS).or("branches"),
    hardware("branch-misses", "branches predicted wrong", perf::PERF_COUNT_HW_BRANCH_MISSES),
    hardware("bus-cycles", "cycles of the bus", perf::PERF_COUNT_HW_BUS_CYCLES),
    hardware("ref-cycles", "cycles at constant frequency", perf::PERF_COUNT_HW_REF_CPU_CYCLES),
    hardware(
        "stalled-cycles-frontend",
        "cycles without a new instruction",
        perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    hardware("stalled-cycles-backend", "cycles that waited for a result", perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
];
