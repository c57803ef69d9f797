//! A recording from beginning to end, for whoever wants to record from a program of their own.
//!
//! Each phase is a type: [`FoundTarget`] knows the libraries of a program and what is to be counted; [`Planned`] knows the
//! probes; [`Ready`] has the process that will execute a command. [`Ready::record`] attaches, arms, reads and detaches.
//! Nothing here talks to people: what they should know is asked of the phases.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use rtrace_bpf::Mechanism;
use rtrace_code::arrival::Keeps;
use rtrace_code::instruction::Emulation;
use rtrace_model::{MetricId, RegionId, Sink, Summary, text_of_os};
use rtrace_plan as plan;
use rtrace_plan::Plan;
use rtrace_signatures::{Book, Request};
use rtrace_symbolizer::{Image, linker};

use crate::counters::{self, Counters};
use crate::host;
use crate::limits;
pub use crate::options::Options;
use crate::rank;
use crate::record::guard::Guard;
use crate::record::late_loads::LateLoads;
use crate::record::recorder::{self, Extras, Loaded, Setup, Subject};
use crate::record::signatures;
use crate::record::values;
use crate::samples::{Samplers, plugin};
use crate::stubs::{self, NoStubs, Stubs};
use crate::suggestions;
use crate::target::command::{Inherited, Waiting};
use crate::target::mapped_files::MappedFiles;
use crate::target::privilege;
use crate::target::source_files;
use crate::target::user::User;
use crate::target::{self, Target};
use crate::watch::{self, Watches};

/// What is traced.
#[derive(Clone, Copy, Debug)]
pub enum TracedProgram<'a> {
    /// Processes that run.
    Running(&'a [u32]),
    /// A command with its arguments.
    Command(&'a [OsString]),
}

impl<'a> TracedProgram<'a> {
    /// The processes that run.
    pub fn pids(self) -> &'a [u32] {
        match self {
            TracedProgram::Running(pids) => pids,
            TracedProgram::Command(_) => &[],
        }
    }

    /// The words of a command.
    fn words(self) -> &'a [OsString] {
        match self {
            TracedProgram::Running(_) => &[],
            TracedProgram::Command(words) => words,
        }
    }

    /// Its libraries that are wanted.
    ///
    /// # Errors
    /// It must not be traced, cannot be looked at, or has no such library.
    pub fn target(self, options: &Options) -> Result<Target, target::Error> {
        let wanted = target::LibraryChoice { patterns: &options.libraries, statics: options.plan.statics };
        match self {
            TracedProgram::Running(pids) => target::of_processes(pids, wanted),
            TracedProgram::Command(words) => target::of_command(words, wanted),
        }
    }
}

impl TracedProgram<'_> {
    /// The files that are executed.
    fn executables(self) -> Vec<PathBuf> {
        match self {
            TracedProgram::Running(pids) => {
                let mut met = HashSet::new();
                let paths = pids.iter().map(|pid| PathBuf::from(format!("/proc/{pid}/exe")));
                let mut is_new = |path: &PathBuf| fs::metadata(path).is_ok_and(|of| met.insert((of.dev(), of.ino())));
                paths.filter(|path| is_new(path)).collect()
            }
            TracedProgram::Command(words) => {
                let path = target::environment().path;
                linker::resolve_command(target::word_of(words), path.as_deref()).unwrap_or_default()
            }
        }
    }

    /// Whether it leaves calls by jumps of its own, of which no probe tells: a panic of Go that began in C, `raise` of
    /// OCaml.
    fn leaves_frames(self) -> bool {
        let leaves = |image: Image| plan::jump::of(&image).is_empty() && rtrace_code::tails::leaves_frames(&image);
        self.executables().iter().any(|path| Image::open(path).is_ok_and(leaves))
    }
}

/// Why a recording cannot be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No way to place probes works here.
    #[error("{0}")]
    NoMechanism(String),
    /// A process is the one that would record.
    #[error("failed to trace process {0}: it is rtrace itself")]
    Itself(u32),
    /// Stubs and a budget exclude each other.
    #[error("failed to combine --stubs and --budget: probes on stubs cannot be taken out alone")]
    StubsWithBudget,
    /// Ring buffers of this size take too much memory.
    #[error(
        "failed to use ring buffers of {0} bytes: at most {max} are allowed without CAP_SYS_PTRACE",
        max = limits::RING_BYTES
    )]
    RingsForbidden(u32),
    /// Parts of what was asked of arguments and results name no function that is traced.
    #[error("failed to find a traced function for `--args {0}`")]
    NoSuchValues(String),
    /// Nothing would ever be recorded: no function that is timed is among those within which calls are.
    #[error("failed to find a traced function for `--within`")]
    NothingWithin,
    /// No function is probed.
    #[error("no function of the libraries can be probed")]
    NothingToProbe,
    /// A plug-in cannot be used.
    #[error(transparent)]
    Plugin(#[from] plugin::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NoMechanism(_) => Some("rtrace doctor"),
            Error::Itself(_) => None,
            Error::StubsWithBudget => Some("omit one of them"),
            Error::RingsForbidden(_) => Some("--buffer 8M"),
            Error::NoSuchValues(_) => Some("`rtrace plan --args` lists the functions whose signature is known"),
            Error::NothingWithin => Some(
                "name a function of the libraries that --lib names, whose returns are detected; `rtrace plan` lists them",
            ),
            Error::NothingToProbe => Some("`rtrace plan` shows why each function is not probed"),
            Error::Plugin(_) => Some(
                "the first line must read `metrics NAME:SCOPE:UNIT …`; examples/metric_plugin.py is one that works",
            ),
        }
    }
}

/// Refuses early what cannot work.
///
/// # Errors
/// Privileges are missing, or one of the processes cannot be traced.
pub fn check(pids: &[u32]) -> anyhow::Result<()> {
    privilege::check_capabilities()?;
    privilege::check_namespace()?;
    for &pid in pids {
        privilege::check_process(pid)?;
        if pid == std::process::id() {
            return Err(Error::Itself(pid).into());
        }
    }
    Ok(())
}

/// Refuses what a caller may not take of the machine who may not ptrace every process.
fn check_limits(options: &Options) -> Result<(), Error> {
    match options.ring_bytes {
        Some(bytes) if bytes > limits::RING_BYTES => Err(Error::RingsForbidden(bytes)),
        _ => Ok(()),
    }
}

/// The best way to place probes that this kernel has.
///
/// # Errors
/// None works.
pub fn mechanism() -> Result<Mechanism, Error> {
    rtrace_bpf::best_mechanism().map_err(Error::NoMechanism)
}

/// How the functions selected are planned, to be probed by this mechanism if one works; without stubs.
pub fn plan_options(options: &Options, mechanism: Option<Mechanism>, program: TracedProgram<'_>) -> plan::PlanOptions {
    let emulated = match mechanism.map(|_| rtrace_bpf::nops()) {
        Some(Ok(nops)) => {
            // With probes for each of several processes or ranks at a place, none is alone there.
            let may_be_alone = options.follow || program.pids().len() <= 1;
            let is_alone = may_be_alone && rank::from_environment().is_none();
            let steps = is_alone && rtrace_bpf::may_step().is_ok();
            Emulation { long_nops: nops.long_ones_are_emulated, steps }
        }
        _ => Emulation::of_release(&rustix::system::uname().release().to_string_lossy()),
    };
    plan::PlanOptions {
        emulated,
        keeps_accesses: !options.watches.is_empty(),
        keeps_frame: options.levels > 0,
        leaves_frames: program.leaves_frames(),
        ..options.plan.clone()
    }
}

/// What all phases know.
struct Basis<'a> {
    guard: &'a Guard,
    options: &'a Options,
    program: TracedProgram<'a>,
    counters: Counters,
    watches: Watches,
    mechanism: Mechanism,
    plan_options: plan::PlanOptions,
    /// What is known of functions, if values are recorded.
    book: Option<Arc<Book>>,
    /// Words of values that a call has at most.
    words: u32,
    /// What is read of them when it returns.
    at_return: Keeps,
    /// What a command will load.
    command_files: Vec<PathBuf>,
    /// Libraries that are asked for, and known only when the command loads them.
    awaited: Vec<String>,
}

impl Basis<'_> {
    fn setup<'s>(&'s self, subject: Subject<'s>, stubs: Option<&'s Stubs>) -> Result<Setup<'s>, privilege::Error> {
        let caller = privilege::observer()?;
        let is_limited = caller.is_some();
        let observer = self.options.user.as_ref().map(User::observer).or(caller);
        Ok(Setup {
            how: self.options,
            subject,
            observer,
            is_limited,
            mechanism: self.mechanism,
            emulated: self.plan_options.emulated,
            counters: &self.counters,
            watches: &self.watches,
            words: self.words,
            at_return: self.at_return,
            stubs,
            guard: self.guard,
            command: self.program.words(),
            command_files: &self.command_files,
        })
    }

    fn samplers(&self) -> Result<Samplers, Error> {
        let first = metric_id(self.counters.metrics.len() + self.watches.metrics().count());
        let Options { samples, plugins, helper_user, .. } = self.options;
        Ok(Samplers::start(first, *samples, plugins, helper_user.as_ref())?)
    }
}

/// A program whose libraries are found, and counters that work.
pub struct FoundTarget<'a> {
    basis: Basis<'a>,
    target: Target,
    without_sources: Vec<String>,
    remarks: Vec<String>,
}

impl<'a> FoundTarget<'a> {
    /// Finds the libraries of a program, and makes ready what is counted.
    ///
    /// # Errors
    /// Privileges are missing, a library or counter is not there, or the program must not be traced.
    pub fn find(guard: &'a Guard, options: &'a Options, program: TracedProgram<'a>) -> anyhow::Result<FoundTarget<'a>> {
        check(program.pids())?;
        if options.stubs && options.budget.is_some() {
            return Err(Error::StubsWithBudget.into());
        }
        if privilege::observer()?.is_some() {
            check_limits(options)?;
        }
        let libraries = &options.libraries;
        let (target, able) = thread::scope(|scope| {
            let finding = scope.spawn(|| program.target(options));
            let able = mechanism().map(|mechanism| (mechanism, plan_options(options, Some(mechanism), program)));
            (finding.join().unwrap_or_else(|panic| resume_unwind(panic)), able)
        });
        let mut target = target?;
        let watches = match program {
            TracedProgram::Running(pids) => watch::of_processes(&options.watches, libraries, pids)?,
            TracedProgram::Command(words) => watch::of_command(&options.watches, libraries, words)?,
        };
        let (mechanism, plan_options) = able?;
        let without_sources = source_files::read(&mut target.libraries, &plan_options)?;
        let remarks = suggestions::check(&target, &plan_options)?;
        let awaited = std::mem::take(&mut target.awaited);
        let mut counters = counters::open(&options.counters, &rtrace_bpf::online_cpus()?)?;
        let request = options.values.as_ref().map(|request| Request { stubs: options.stubs, ..request.clone() });
        let book = request.as_ref().map(Book::open).transpose()?.map(Arc::new);
        if let Some(book) = &book {
            let callers = signatures::callers(program.pids(), &target.files);
            signatures::capture(book, &mut target.libraries, &plan_options, &callers)?;
            counters.add_up(values::metrics(&target.libraries, metric_id(counters.metrics.len())))?;
        }
        // Of a library that is loaded later, nobody knows how many a call has.
        let (words, at_return) = match values::words(&target.libraries) {
            0 if book.is_some() => (rtrace_bpf::MAX_WORDS as u32, Keeps::READABLE),
            words => (words, values::read_at_return(&target.libraries)),
        };
        counters.watch(&watches)?;
        let watches = Watches::new(watches, libraries.clone(), metric_id(counters.metrics.len()));
        let command_files = std::mem::take(&mut target.files);
        let basis = Basis {
            guard,
            options,
            program,
            counters,
            watches,
            mechanism,
            plan_options,
            book,
            words,
            at_return,
            command_files,
            awaited,
        };
        Ok(FoundTarget { basis, target, without_sources, remarks })
    }

    /// The libraries.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Libraries that have no debug information, where functions are selected by their source files.
    pub fn without_sources(&self) -> &[String] {
        &self.without_sources
    }

    /// What people should know of what was asked for: patterns that match nothing, libraries that are not known yet.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Plans the probes and starts the plug-ins. What a command needs is written; for running processes the kernel side
    /// is loaded meanwhile.
    ///
    /// # Errors
    /// A plug-in cannot be used.
    pub fn plan(self) -> anyhow::Result<Planned<'a>> {
        let FoundTarget { basis, target, .. } = self;
        let (plan, loaded, stubs) = match basis.program {
            TracedProgram::Running(pids) => {
                let setup = basis.setup(Subject::Processes(pids), None)?;
                let loading = || {
                    if basis.options.budget.is_some() {
                        host::run_behind();
                    }
                    recorder::load(&setup)
                };
                let (plan, loaded) = thread::scope(|scope| {
                    let loading = scope.spawn(loading);
                    let plan = plan::plan(&target.libraries, &basis.plan_options, RegionId(0));
                    (plan, loading.join().unwrap_or_else(|panic| resume_unwind(panic)))
                });
                (plan, Some(loaded), Ok(None))
            }
            TracedProgram::Command(words) => {
                let wanted = basis.options.stubs.then(|| stubs::check(words)).transpose();
                let options = plan::PlanOptions { stubs: matches!(wanted, Ok(Some(()))), ..basis.plan_options.clone() };
                let plan = plan::plan(&target.libraries, &options, RegionId(0));
                let write = |()| Stubs::write(&plan)?.ok_or(NoStubs::NoFunction);
                let stubs = wanted.map_err(NoStubs::from).and_then(|wanted| wanted.map(write).transpose());
                (plan, None, stubs)
            }
        };
        let samplers = basis.samplers()?;
        Ok(Planned { basis, plan, loaded, stubs, samplers })
    }
}

/// A program whose probes are planned.
pub struct Planned<'a> {
    basis: Basis<'a>,
    plan: Plan,
    /// Later for a command: its process inherits no limits that loading raises.
    loaded: Option<Result<Loaded, rtrace_bpf::Error>>,
    stubs: Result<Option<Stubs>, NoStubs>,
    samplers: Samplers,
}

impl<'a> Planned<'a> {
    /// Makes the process that will execute a command, and waits until it may. Nothing of the kind for running ones.
    ///
    /// # Errors
    /// The system refuses a process.
    pub fn start(self) -> anyhow::Result<Ready<'a>> {
        let Options { follow, user, .. } = self.basis.options;
        let waiting = match self.basis.program {
            TracedProgram::Running(_) => None,
            TracedProgram::Command(words) => {
                let stubs = self.stubs.as_ref().ok().and_then(Option::as_ref);
                let inherited =
                    stubs.map(|stubs| Inherited { environment: stubs.environment(), descriptor: stubs.descriptor() });
                Some(Waiting::spawn(words, inherited, *follow, user.as_ref()).with_context(|| failed_to_run(words))?)
            }
        };
        Ok(Ready { planned: self, waiting, mapped: MappedFiles::default() })
    }
}

/// A program that can be recorded.
pub struct Ready<'a> {
    planned: Planned<'a>,
    waiting: Option<Waiting>,
    mapped: MappedFiles,
}

impl Ready<'_> {
    /// What the processes map while they are recorded; it is known when the recording has ended.
    pub fn mapped_files(&self) -> MappedFiles {
        self.mapped.clone()
    }

    /// Whose calls will be recorded; of a command, the process that will execute it.
    pub fn pids(&self) -> Vec<u32> {
        self.waiting.as_ref().map_or_else(|| self.planned.basis.program.pids().to_vec(), |waiting| vec![waiting.pid()])
    }

    /// Whether a command is traced, and not what runs already.
    pub fn is_command(&self) -> bool {
        self.waiting.is_some()
    }

    /// Refuses early what would record nothing.
    ///
    /// # Errors
    /// No function is probed.
    pub fn check(&self) -> Result<(), Error> {
        let probes_none = self.plan().libraries.iter().all(|library| library.regions.is_empty());
        match probes_none && self.planned.basis.awaited.is_empty() {
            true => Err(Error::NothingToProbe),
            false if self.is_never_within() => Err(Error::NothingWithin),
            false => self.check_values(),
        }
    }

    /// Whether calls are recorded only within those of functions of which there is none, nor will be.
    fn is_never_within(&self) -> bool {
        let mut regions = self.plan().libraries.iter().flat_map(|library| &library.regions);
        let basis = &self.planned.basis;
        !basis.options.plan.within.is_empty() && basis.awaited.is_empty() && !regions.any(|planned| planned.opens)
    }

    fn check_values(&self) -> Result<(), Error> {
        let book = self.planned.basis.book.as_ref();
        let unmatched = book.map(|book| signatures::unmatched(book, self.plan())).unwrap_or_default();
        match unmatched.is_empty() {
            true => Ok(()),
            false => Err(Error::NoSuchValues(unmatched.join("; "))),
        }
    }

    /// The probes.
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    /// Libraries that are asked for, and known only when the command loads them.
    pub fn awaited(&self) -> &[String] {
        &self.planned.basis.awaited
    }

    /// What is recorded, and how.
    pub fn options(&self) -> &Options {
        self.planned.basis.options
    }

    /// Why there are no stubs, though they are wanted.
    pub fn no_stubs(&self) -> Option<&NoStubs> {
        self.planned.stubs.as_ref().err()
    }

    /// Attaches, records until one of the reasons to stop, and detaches: `stop` is set, the duration is over, every
    /// process named and every child that is followed has ended, or a sink fails. `armed` is called once calls are being
    /// recorded, with the process of the command, which nobody else waits for.
    ///
    /// # Errors
    /// The kernel refuses programs or probes, a process has ended before it was to be recorded, the command cannot be
    /// executed, or a sink fails; probes are gone in any case.
    pub fn record(
        self,
        sinks: Vec<Box<dyn Sink>>,
        stop: &AtomicBool,
        armed: impl FnOnce(Option<Child>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Summary> {
        self.check()?;
        let Ready { planned: Planned { basis, plan, loaded, stubs, samplers }, waiting, mapped } = self;
        let subject = match (basis.program, &waiting) {
            (_, Some(waiting)) => Subject::Command(waiting.pid()),
            (program, None) => Subject::Processes(program.pids()),
        };
        let setup = basis.setup(subject, stubs.as_ref().ok().and_then(Option::as_ref))?;
        let loaded = loaded.unwrap_or_else(|| recorder::load(&setup))?;
        let tells_mappings = !basis.watches.watches.is_empty();
        let late_loads = LateLoads::beyond(&plan, &basis.options.libraries, basis.plan_options.clone(), tells_mappings)
            .with_values(basis.book.clone(), basis.program.pids())
            .telling(mapped);
        recorder::record(loaded, &plan, &setup, Extras { late_loads, samplers, sinks }, stop, || {
            let released = waiting.map(Waiting::release).transpose();
            armed(released.with_context(|| match basis.program {
                TracedProgram::Command(words) => failed_to_run(words),
                TracedProgram::Running(_) => unreachable!("what runs does not wait"),
            })?)
        })
    }
}

/// The command's name without its folder.
pub fn name_of(words: &[OsString]) -> String {
    let word = words.first().cloned().unwrap_or_default();
    let path = PathBuf::from(word);
    text_of_os(path.file_name().unwrap_or(path.as_os_str())).into_owned()
}

/// Says that a command could not be run.
pub fn failed_to_run(words: &[OsString]) -> String {
    format!("failed to run `{}`", text_of_os(words.first().map(OsString::as_os_str).unwrap_or_default()))
}

fn metric_id(place: usize) -> MetricId {
    MetricId(u32::try_from(place).expect("metrics are few"))
}
