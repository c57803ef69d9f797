//! What a recording is given, and the kernel side that is made ready for it.

use std::ffi::OsString;
use std::path::PathBuf;

use rtrace_bpf::{LoadOptions, Mechanism, Observer, Programs};
use rtrace_code::arrival::Keeps;
use rtrace_code::instruction::Emulation;
use rtrace_model::{CallCost, SAMPLE_PERIOD, Sink};

use crate::counters::Counters;
use crate::host;
use crate::limits;
use crate::options::Options;
use crate::perf::clocks;
use crate::record::calibration::calibrate;
use crate::record::guard::Guard;
use crate::record::late_loads::LateLoads;
use crate::samples::Samplers;
use crate::stubs::Stubs;
use crate::watch::Watches;

/// Whose calls are recorded.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Running processes.
    Processes(&'a [u32]),
    /// A process that waits to execute the command to trace.
    Command(u32),
}

impl Subject<'_> {
    /// The processes that are named.
    pub fn pids(&self) -> &[u32] {
        match self {
            Subject::Processes(pids) => pids,
            Subject::Command(pid) => std::slice::from_ref(pid),
        }
    }
}

/// How to record, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// What was asked for.
    pub how: &'a Options,
    /// Whose calls.
    pub subject: Subject<'a>,
    /// Who may look at the result, unless he may look at every process.
    pub observer: Option<Observer>,
    /// Whether no more is taken of the machine than [`limits`] says.
    pub is_limited: bool,
    /// How probes are attached.
    pub mechanism: Mechanism,
    /// What the kernel and the programs do without a single step, as plans were told.
    pub emulated: Emulation,
    /// What is counted on every call.
    pub counters: &'a Counters,
    /// The variables that are watched, whose accesses are the last of the counters.
    pub watches: &'a Watches,
    /// Words of values that a call has at most; 0 where none has any.
    pub words: u32,
    /// What is read of them when it returns.
    pub at_return: Keeps,
    /// The stubs that the command gets; their sites are of the plan's regions.
    pub stubs: Option<&'a Stubs>,
    /// Who puts things in order if this process is killed.
    pub guard: &'a Guard,
    /// The words of the command, as they were asked for.
    pub command: &'a [OsString],
    /// The files that the command will load, in the order of the dynamic linker.
    pub command_files: &'a [PathBuf],
}

/// What goes on beside the calls.
pub struct Extras {
    /// Looks out for libraries that are loaded later.
    pub late_loads: LateLoads,
    /// Measures processes and machine; ids of its metrics follow those of the counters.
    pub samplers: Samplers,
    /// Who is told everything.
    pub sinks: Vec<Box<dyn Sink>>,
}

/// The kernel side, ready for probes.
pub struct Loaded {
    pub(super) programs: Programs,
    /// What a call costs here; empty where that is not known.
    pub(super) costs: Vec<CallCost>,
}

/// Makes the kernel side ready, for which it need not be known what is probed. A command that is traced has been
/// started: its limits stay.
///
/// # Errors
/// The kernel refuses the programs.
pub fn load(setup: &Setup<'_>) -> Result<Loaded, rtrace_bpf::Error> {
    let load = LoadOptions {
        mechanism: setup.mechanism,
        ring_bytes: setup.how.ring_bytes.unwrap_or(limits::RING_BYTES),
        follow_children: setup.how.follow,
        profile: setup.how.profile,
        counters: &setup.counters.sources,
        is_governed: setup.how.budget.is_some(),
        words: setup.words,
        levels: setup.how.levels,
        steps: setup.emulated.steps,
    };
    let first_kept = host::first_kept_descriptor();
    let mut programs = Programs::load(&load)?;
    programs.keep_descriptors(first_kept);
    // A governor knows what tracing costs. Where the kernel refuses clocks, that is not known.
    if setup.how.budget.is_none()
        && let Ok(clocks) = clocks::of_all_cpus(SAMPLE_PERIOD)
    {
        programs.count_ticks(clocks)?;
    }
    let costs = calibrate(&programs, setup.emulated.steps);
    // What calibration calls has no contexts worth having, and is within no function.
    programs.walk_stacks();
    if !setup.how.plan.within.is_empty() {
        programs.record_within();
    }
    if setup.is_limited {
        programs.limit(limits::PROBES);
    }
    setup.observer.into_iter().for_each(|observer| programs.guard(observer));
    Ok(Loaded { programs, costs })
}
