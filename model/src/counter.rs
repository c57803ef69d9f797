//! The counters that have a name everywhere: a row adds one.
//!
//! Names and aliases are those of `perf list`, numbers of events those of `perf_event_open(2)`.

/// The unit of one value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterUnit {
    /// The unit without a prefix.
    pub name: &'static str,
    /// One count is ten to this power of it.
    pub exponent: i32,
}

impl CounterUnit {
    /// Plain numbers.
    pub const COUNT: CounterUnit = CounterUnit { name: "#", exponent: 0 };
    /// Nanoseconds.
    pub const NANOSECONDS: CounterUnit = CounterUnit { name: "s", exponent: -9 };
}

/// Where a counter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// What the kernel knows of every thread.
    Kernel(KernelCount),
    /// A performance event of the kernel.
    Software(Software),
    /// A performance event of the CPU.
    Hardware(Hardware),
}

/// What the kernel knows of every thread without a performance event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCount {
    /// Nanoseconds on a CPU.
    CpuTime,
    /// Page faults of both kinds.
    PageFaults,
    /// Those without disk access.
    MinorFaults,
    /// Those with disk access.
    MajorFaults,
    /// Times it left a CPU.
    ContextSwitches,
    /// Moves to another CPU.
    Migrations,
}

/// Events of the kernel, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table says what they count")]
pub enum Software {
    CpuClock = 0,
    AlignmentFaults = 7,
    EmulationFaults = 8,
}

/// Events of the CPU, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table says what they count")]
pub enum Hardware {
    CpuCycles = 0,
    Instructions = 1,
    CacheReferences = 2,
    CacheMisses = 3,
    BranchInstructions = 4,
    BranchMisses = 5,
    BusCycles = 6,
    StalledCyclesFrontend = 7,
    StalledCyclesBackend = 8,
    RefCpuCycles = 9,
}

/// A counter with a name of its own.
#[derive(Clone, Copy, Debug)]
pub struct NamedCounter {
    /// Its name.
    pub name: &'static str,
    /// Another name.
    pub alias: Option<&'static str>,
    /// What it counts, for people.
    pub what: &'static str,
    /// In which unit.
    pub unit: CounterUnit,
    /// Where it is read.
    pub source: CounterSource,
}

/// The counter of that name or alias.
pub fn find(name: &str) -> Option<&'static NamedCounter> {
    TABLE.iter().find(|known| known.name == name || known.alias == Some(name))
}

const fn kernel(name: &'static str, what: &'static str, count: KernelCount) -> NamedCounter {
    NamedCounter { name, alias: None, what, unit: CounterUnit::COUNT, source: CounterSource::Kernel(count) }
}

const fn software(name: &'static str, what: &'static str, event: Software) -> NamedCounter {
    NamedCounter { name, alias: None, what, unit: CounterUnit::COUNT, source: CounterSource::Software(event) }
}

const fn hardware(name: &'static str, what: &'static str, event: Hardware) -> NamedCounter {
    NamedCounter { name, alias: None, what, unit: CounterUnit::COUNT, source: CounterSource::Hardware(event) }
}

impl NamedCounter {
    const fn or(self, alias: &'static str) -> NamedCounter {
        NamedCounter { alias: Some(alias), ..self }
    }

    const fn in_nanoseconds(self) -> NamedCounter {
        NamedCounter { unit: CounterUnit::NANOSECONDS, ..self }
    }
}

/// All of them.
pub const TABLE: &[NamedCounter] = &[
    kernel("task-clock", "time on a CPU", KernelCount::CpuTime).in_nanoseconds(),
    kernel("page-faults", "page faults", KernelCount::PageFaults).or("faults"),
    kernel("minor-faults", "page faults without disk access", KernelCount::MinorFaults),
    kernel("major-faults", "page faults with disk access", KernelCount::MajorFaults),
    kernel("context-switches", "times the thread left a CPU", KernelCount::ContextSwitches).or("cs"),
    kernel("cpu-migrations", "moves to another CPU", KernelCount::Migrations).or("migrations"),
    software("cpu-clock", "time on a CPU, by the scheduler's clock", Software::CpuClock).in_nanoseconds(),
    software("alignment-faults", "unaligned accesses that the kernel mended", Software::AlignmentFaults),
    software("emulation-faults", "instructions that the kernel emulated", Software::EmulationFaults),
    hardware("cpu-cycles", "cycles of the CPU's clock", Hardware::CpuCycles).or("cycles"),
    hardware("instructions", "instructions retired", Hardware::Instructions),
    hardware("cache-references", "accesses to the last cache", Hardware::CacheReferences),
    hardware("cache-misses", "accesses that missed the last cache", Hardware::CacheMisses),
    hardware("branch-instructions", "branches retired", Hardware::BranchInstructions).or("branches"),
    hardware("branch-misses", "branches predicted wrong", Hardware::BranchMisses),
    hardware("bus-cycles", "cycles of the bus", Hardware::BusCycles),
    hardware("ref-cycles", "cycles at constant frequency", Hardware::RefCpuCycles),
    hardware("stalled-cycles-frontend", "cycles without a new instruction", Hardware::StalledCyclesFrontend),
    hardware("stalled-cycles-backend", "cycles that waited for a result", Hardware::StalledCyclesBackend),
];
