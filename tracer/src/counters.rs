//! Counters on every call: from the names that a user gives to what the programs read.
//!
//! [`counter`] knows those that have a name everywhere, `pmu` what the machine's performance monitoring units
//! offer, `name` turns a name into one of them, and [`open`] makes all of them ready or none.

mod cache;
mod error;
mod name;
mod pmu;
mod survey;
mod tracepoint;

use perf_event_open_sys::bindings::{PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, perf_event_attr};
use rtrace_bpf::wire::CountCode;
use rtrace_bpf::{Counter, MAX_COUNTERS};
use rtrace_model::counter::{self, KernelCount};
use rtrace_model::{Base, Metric, MetricId, Scope, Span};

use crate::perf;
use crate::watch::Watch;
pub use error::Error;
pub use survey::{CounterGroup, Finding, survey};

/// Where a counter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CounterEvent {
    /// What the kernel knows of every thread.
    Kernel(CountCode),
    /// A performance event.
    Event(EventCode),
}

impl From<counter::CounterSource> for CounterEvent {
    fn from(source: counter::CounterSource) -> CounterEvent {
        match source {
            counter::CounterSource::Kernel(count) => CounterEvent::Kernel(code(count)),
            counter::CounterSource::Software(event) => {
                CounterEvent::Event(EventCode::new(PERF_TYPE_SOFTWARE, event as u64))
            }
            counter::CounterSource::Hardware(event) => {
                CounterEvent::Event(EventCode::new(PERF_TYPE_HARDWARE, event as u64))
            }
        }
    }
}

/// The programs' word for what the kernel knows of every thread.
fn code(count: KernelCount) -> CountCode {
    match count {
        KernelCount::CpuTime => CountCode::RT_COUNT_CPU_TIME,
        KernelCount::PageFaults => CountCode::RT_COUNT_PAGE_FAULTS,
        KernelCount::MinorFaults => CountCode::RT_COUNT_MINOR_FAULTS,
        KernelCount::MajorFaults => CountCode::RT_COUNT_MAJOR_FAULTS,
        KernelCount::ContextSwitches => CountCode::RT_COUNT_CONTEXT_SWITCHES,
        KernelCount::Migrations => CountCode::RT_COUNT_MIGRATIONS,
    }
}

/// A performance event as `perf_event_open(2)` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EventCode {
    kind: u32,
    config: u64,
    config1: u64,
    config2: u64,
    /// Whether it leaves out what happens in user or kernel mode.
    exclude_user: bool,
    exclude_kernel: bool,
}

impl EventCode {
    const fn new(kind: u32, config: u64) -> EventCode {
        EventCode { kind, config, config1: 0, config2: 0, exclude_user: false, exclude_kernel: false }
    }

    fn open(self, cpu: u32) -> std::io::Result<std::os::fd::OwnedFd> {
        let mut attributes = perf_event_attr { type_: self.kind, config: self.config, ..perf_event_attr::default() };
        attributes.__bindgen_anon_3.config1 = self.config1;
        attributes.__bindgen_anon_4.config2 = self.config2;
        attributes.set_exclude_user(self.exclude_user.into());
        attributes.set_exclude_kernel(self.exclude_kernel.into());
        perf::open(attributes, perf::PerfSubject::Cpu(cpu))
    }
}

/// Counters that are ready to be read.
#[derive(Debug, Default)]
pub struct Counters {
    /// What they are called and in which units they count; ids count up from 0.
    pub metrics: Vec<Metric>,
    /// Where they are read, in the order of the metrics.
    pub sources: Vec<Counter>,
}

/// Makes the counters of these names ready on the CPUs given, or none of them.
///
/// # Errors
/// [`Error`] names the first counter that does not work, and why.
pub fn open(names: &[String], cpus: &[u32]) -> Result<Counters, Error> {
    if names.len() > MAX_COUNTERS {
        return Err(Error::TooMany { count: names.len() });
    }
    let mut counters = Counters::default();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(Error::Twice { name: name.clone() });
        }
        let (source, unit) = name::parse(name)?;
        let source = match source {
            CounterEvent::Kernel(code) => Counter::Kernel(code),
            CounterEvent::Event(event) => Counter::Event(open_everywhere(name, event, cpus)?),
        };
        counters.sources.push(source);
        counters.metrics.push(Metric {
            id: MetricId(u32::try_from(index).expect("there are few")),
            name: name.clone(),
            unit: unit.name.to_owned(),
            base: Base::Decimal,
            exponent: unit.exponent,
            scope: Scope::Call,
            span: Span::SinceStart,
        });
    }
    Ok(counters)
}

impl Counters {
    /// Counts what values of calls add up to, too.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn add_up(&mut self, metrics: Vec<Metric>) -> Result<(), Error> {
        let count = self.sources.len() + metrics.len();
        if count > MAX_COUNTERS {
            return Err(Error::TooMany { count });
        }
        self.sources.extend(metrics.iter().map(|_| Counter::Values));
        self.metrics.extend(metrics);
        Ok(())
    }

    /// Counts accesses to these variables, too.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn watch(&mut self, watches: &[Watch]) -> Result<(), Error> {
        let count = self.sources.len() + watches.len();
        if count > MAX_COUNTERS {
            return Err(Error::TooMany { count });
        }
        for (id, watch) in (self.metrics.len()..).zip(watches) {
            self.sources.push(watch.counter());
            self.metrics.push(watch.metric(MetricId(u32::try_from(id).expect("there are few"))));
        }
        Ok(())
    }
}

fn open_everywhere(name: &str, event: EventCode, cpus: &[u32]) -> Result<Vec<(u32, std::os::fd::OwnedFd)>, Error> {
    let open = |&cpu: &u32| Ok((cpu, event.open(cpu).map_err(|source| Error::refused(name, event, source))?));
    cpus.iter().map(open).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn counters_come_in_the_order_of_their_names() {
        let counters = open(&names(&["page-faults", "task-clock"]), &[]).unwrap();
        let [faults, clock] = counters.metrics.as_slice() else { panic!("{counters:?}") };
        assert_eq!((faults.id, faults.unit.as_str(), faults.exponent), (MetricId(0), "#", 0));
        assert_eq!((clock.id, clock.unit.as_str(), clock.exponent), (MetricId(1), "s", -9));
        assert!(matches!(counters.sources[1], Counter::Kernel(CountCode::RT_COUNT_CPU_TIME)));
    }

    #[test]
    fn numbers_of_events_are_the_kernels() {
        use perf_event_open_sys::bindings as perf;
        use rtrace_model::counter::{Hardware, Software};
        assert_eq!(Software::CpuClock as u32, perf::PERF_COUNT_SW_CPU_CLOCK);
        assert_eq!(Software::AlignmentFaults as u32, perf::PERF_COUNT_SW_ALIGNMENT_FAULTS);
        assert_eq!(Software::EmulationFaults as u32, perf::PERF_COUNT_SW_EMULATION_FAULTS);
        assert_eq!(Hardware::CpuCycles as u32, perf::PERF_COUNT_HW_CPU_CYCLES);
        assert_eq!(Hardware::Instructions as u32, perf::PERF_COUNT_HW_INSTRUCTIONS);
        assert_eq!(Hardware::CacheReferences as u32, perf::PERF_COUNT_HW_CACHE_REFERENCES);
        assert_eq!(Hardware::CacheMisses as u32, perf::PERF_COUNT_HW_CACHE_MISSES);
        assert_eq!(Hardware::BranchInstructions as u32, perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS);
        assert_eq!(Hardware::BranchMisses as u32, perf::PERF_COUNT_HW_BRANCH_MISSES);
        assert_eq!(Hardware::BusCycles as u32, perf::PERF_COUNT_HW_BUS_CYCLES);
        assert_eq!(Hardware::StalledCyclesFrontend as u32, perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND);
        assert_eq!(Hardware::StalledCyclesBackend as u32, perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND);
        assert_eq!(Hardware::RefCpuCycles as u32, perf::PERF_COUNT_HW_REF_CPU_CYCLES);
    }

    #[test]
    fn too_many_and_repeated_counters_are_refused() {
        let error = open(&names(&["task-clock"; 9]), &[]).unwrap_err();
        assert_eq!(error.to_string(), "failed to count 9 things on every call: 8 is the limit");
        let error = open(&names(&["task-clock", "task-clock"]), &[]).unwrap_err();
        assert_eq!(error.to_string(), "failed to count `task-clock`: it is named twice");
    }
}
