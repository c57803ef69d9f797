//! What `attach` and `run` share: from what the user named to a recording on disk.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use rtrace::attach;
use rtrace::counters::{self, Counters};
use rtrace::guard::Guard;
use rtrace::newcomers::Newcomers;
use rtrace::privilege::{self, shell_quote};
use rtrace::rank;
use rtrace::recorder::{self, Loaded, Subject};
use rtrace::samples::Samplers;
use rtrace::stubs::{self, Reach};
use rtrace::target::{self, Target};
use rtrace::translated;
use rtrace::user::{self, User};
use rtrace::watch::{Watch, Watches};
use rtrace_bpf::Mechanism;
use rtrace_code::instruction::Emulation;
use rtrace_exporters::{Consumer, Delivery, TraceWriter};
use rtrace_model::{ExitPolicy, MetricId, RegionId, Sink, SinkError, Summary, escape};
use rtrace_plan as plan;
use rtrace_plan::Plan;

use super::Outcome;
use super::args::{Recording, Selection};
use super::derive::derive;
use super::message::{Hint as _, tell};
use super::progress::{Leftovers, Progress};
use super::trace_host::TraceHost;

/// How the functions selected are planned, to be probed by this mechanism if one works, in so many
/// processes; `children`: those of the target are traced too.
pub fn plan_options(
    selection: &Selection,
    mechanism: Option<Mechanism>,
    processes: usize,
    children: bool,
) -> plan::Options {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let emulated = match mechanism.map(|_| rtrace_bpf::nops()) {
        Some(Ok(nops)) => {
            // With probes for each of several processes or ranks at a place, none is alone there.
            let is_alone = (children || processes <= 1) && rank::from_environment().is_none();
            let steps = is_alone && rtrace_bpf::may_step().is_ok();
            Emulation { long_nops: nops.long_ones_are_emulated, steps }
        }
        _ => Emulation::of_release(&release),
    };
    if selection.exit == ExitPolicy::Uretprobe
        && let Some(hazard) = plan::hazards::of_kernel(&release)
    {
        tell!("{hazard}; `--exit return-site` replaces none");
    }
    plan::Options {
        include: selection.functions.clone(),
        exclude: selection.exclude.clone(),
        exit: Some(selection.exit),
        emulated,
        keeps_accesses: false,
        stubs: false,
    }
}

/// How far the stubs of a command may reach; `None`, with a word on why, where it can have none.
pub fn stub_reach(wanted: Option<Reach>, command: &[OsString]) -> Option<Reach> {
    let reach = wanted?;
    stubs::check(command)
        .inspect_err(|obstacle| tell!("stubs unavailable, so some functions stay expensive to trace: {obstacle}"))
        .ok()
        .map(|()| reach)
}

/// Plans the probes of a target while the kernel side is made ready.
pub fn plan_and_load(
    target: Target,
    plan_options: &plan::Options,
    options: &recorder::Options,
) -> (Plan, Result<Loaded, rtrace_bpf::Error>) {
    std::thread::scope(|scope| {
        let planning = scope.spawn(|| plan(target, plan_options));
        let loaded = recorder::load(options);
        (planning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), loaded)
    })
}

/// Plans the probes of a target.
pub fn plan(target: Target, options: &plan::Options) -> Plan {
    plan::plan(&target.libraries, options, RegionId(0))
}

/// The best mechanism that this kernel has.
pub fn mechanism() -> anyhow::Result<Mechanism> {
    rtrace_bpf::best_mechanism().map_err(anyhow::Error::msg).hint("rtrace doctor")
}

/// What is to be counted on every call, ready to be read; of the variables among it the ids of their
/// values follow.
pub fn counters(
    recording: &Recording,
    selection: &Selection,
    watches: Vec<Watch>,
) -> anyhow::Result<(Counters, Watches)> {
    let mut counters = counters::open(&recording.counters.0, &rtrace_bpf::online_cpus()?)?;
    counters.watch(&watches)?;
    let watches = Watches::new(watches, selection.libraries.clone(), metric_id(counters.metrics.len()));
    Ok((counters, watches))
}

fn metric_id(place: usize) -> MetricId {
    MetricId(u32::try_from(place).expect("metrics are few"))
}

/// What measures beside the calls; ids of its metrics follow those of the counters and values.
pub fn samplers(recording: &Recording, counters: &Counters, watches: &Watches) -> anyhow::Result<Samplers> {
    let first = metric_id(counters.metrics.len() + watches.metrics().count());
    let user = recording.helper_user()?;
    Samplers::start(first, recording.sample_metrics(), &recording.metric_plugins, user.as_ref())
        .hint("the first line must read `metrics NAME:SCOPE:UNIT …`; examples/metric_plugin.py is one that works")
}

/// How to record, as the user said, what is planned so; without stubs.
pub fn how_to_record<'a>(
    recording: &'a Recording,
    guard: &'a Guard,
    subject: Subject<'a>,
    mechanism: Mechanism,
    plan_options: &plan::Options,
    counters: &'a Counters,
    watches: &'a Watches,
) -> Result<recorder::Options<'a>, privilege::Error> {
    Ok(recorder::Options {
        subject,
        observer: privilege::observer()?,
        mechanism,
        hooks: plan_options.exit() == plan::Exit::Uretprobe,
        emulated: plan_options.emulated,
        ring_bytes: recording.buffer,
        follow: recording.follow(matches!(subject, Subject::Command(_))),
        ends_with_first: recording.first,
        everywhere: recording.everywhere,
        profile: recording.profile(),
        fold: &recording.fold,
        duration: recording.duration,
        budget: recording.budget,
        counters,
        watches,
        stubs: None,
        guard,
        command_files: &[],
    })
}

/// A recording that is ready to begin.
pub struct Session<'a> {
    /// The kernel side.
    pub loaded: Result<Loaded, rtrace_bpf::Error>,
    /// What is probed.
    pub plan: &'a Plan,
    /// The libraries it is about, as the user named them.
    pub libraries: &'a [String],
    /// How libraries that are loaded later are planned.
    pub plan_options: plan::Options,
    /// The options of the recording.
    pub options: recorder::Options<'a>,
    /// What measures beside the calls.
    pub samplers: Samplers,
    /// Where it is written.
    pub directory: &'a Path,
    /// Programs that get the calls while they happen.
    pub sinks: &'a [String],
    /// As whom they run, if not as rtrace does.
    pub helper_user: Option<User>,
    /// What is recorded, for people.
    pub target: &'a str,
    /// Whether a live view may use the terminal.
    pub live: bool,
    /// Ends the recording when set.
    pub stop: &'a AtomicBool,
}

impl Session<'_> {
    /// Starts the programs that get the calls.
    fn consumers(&self) -> anyhow::Result<Vec<Consumer>> {
        let start = |command: &String| {
            Consumer::start(command, user::shell(command, self.helper_user.as_ref()))
                .with_context(|| format!("failed to start the sink `{command}`"))
        };
        self.sinks.iter().map(start).collect()
    }

    /// Ranks of a parallel job write into one directory, each a trace.
    fn writer(&self) -> Result<TraceWriter, rtrace_exporters::Error> {
        let owner = privilege::invoker();
        match rank::from_environment() {
            Some(_) => TraceWriter::create_member(self.directory, owner),
            None => TraceWriter::create(self.directory, owner),
        }
    }

    /// A budget has no hold over functions whose probes cannot be taken out alone.
    fn say_what_stays(&self) {
        let regions: usize = self.plan.libraries.iter().map(|library| library.regions.len()).sum();
        let most = attach::most_apart(self.options.subject.pids().len());
        if self.options.budget.is_some() && regions > most {
            tell!(
                "--budget can throttle only the {most} smallest of these {regions} functions; select fewer with --func"
            );
        }
    }

    /// What may keep the recording going.
    fn leftovers(&self) -> Option<Leftovers> {
        self.options.outlasts_first().then(|| Leftovers::of(self.options.subject))
    }

    /// With probes everywhere, others pay for a recording that is not about them; those under a translator would die.
    fn say_who_pays(&self) -> Result<(), translated::Error> {
        for library in self.plan.libraries.iter().filter(|_| self.options.everywhere) {
            let path = &library.library.path;
            translated::check_users(path)?;
            let users = target::users(&library.library);
            tell!("{users} running processes use {path}: each call to it costs them 1 us or more");
        }
        Ok(())
    }

    /// Names the libraries whose functions are not timed, though it was asked for.
    fn say_what_is_untimed(&self) {
        for planned in &self.plan.libraries {
            let mut reasons = planned.regions.iter().filter_map(|region| region.untimed);
            if let Some(reason) = reasons.next() {
                let (count, path) = (reasons.count() + 1, escape(&planned.library.path));
                let functions = if count == 1 { "function" } else { "functions" };
                tell!("{count} {functions} of {path} are counted, not timed: {reason}");
            }
        }
    }

    /// Records; the live view, if there is one, runs on this thread.
    pub fn record(self, armed: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<Summary> {
        if self.plan.libraries.iter().all(|library| library.regions.is_empty()) {
            return Err(anyhow::anyhow!("failed to find a function to probe in {}", self.target))
                .hint("`rtrace plan` shows why each function is not probed");
        }
        self.say_what_stays();
        self.say_who_pays().hint("omit --everywhere, so that this process gets no breakpoints")?;
        self.say_what_is_untimed();
        let writer = self.writer().hint("choose another directory with --output DIR")?;
        let consumers = self.consumers()?;
        let leftovers = self.leftovers();
        let loaded = self.loaded?;
        let deliveries: Vec<Delivery> = consumers.iter().map(Consumer::delivery).collect();
        let newcomers =
            Newcomers::beyond(self.plan, self.libraries, self.plan_options, !self.options.watches.watches.is_empty());
        let beside = recorder::Beside { newcomers, samplers: self.samplers };
        if !(self.live && consumers.is_empty() && rtrace_tui::is_possible()) {
            let progress = Progress::new(self.target, leftovers);
            let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(writer), Box::new(progress)];
            sinks.extend(consumers.into_iter().map(|consumer| Box::new(consumer) as Box<dyn Sink>));
            let recorded = recorder::record(loaded, self.plan, &self.options, beside, sinks, self.stop, armed);
            for warning in deliveries.iter().flat_map(Delivery::warnings) {
                tell!("{warning}");
            }
            return recorded.map_err(explain);
        }
        let (sink, handle) = rtrace_tui::live(self.target, self.options.profile.is_some(), derive);
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(writer), Box::new(sink)];
        std::thread::scope(|scope| {
            let record = || {
                let recorded = recorder::record(loaded, self.plan, &self.options, beside, sinks, self.stop, armed);
                // A target that has ended can still be looked at.
                if recorded.is_err() || self.options.duration.is_some() {
                    self.stop.store(true, Ordering::Relaxed);
                }
                recorded
            };
            let recording = scope.spawn(record);
            let shown = rtrace_tui::run(&handle, &TraceHost(self.directory), self.stop);
            self.stop.store(true, Ordering::Relaxed);
            let recorded = recording.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            shown.context("failed to show the live view")?;
            recorded.map_err(explain)
        })
    }
}

/// A sink that fails has kept what it wrote.
fn explain(error: anyhow::Error) -> anyhow::Error {
    if error.is::<SinkError>() {
        let hint =
            "what was written so far is readable; free some disk space, or choose another directory with --output DIR";
        return Err::<(), _>(error).hint(hint).expect_err("it is an error");
    }
    error
}

/// Ends the talk: the one honest line, where the trace is, and what to do next.
pub fn conclude(summary: &Summary, directory: &Path) {
    tell!("{summary}");
    let shown = shell_quote(&directory.display().to_string());
    tell!("trace saved in {shown}; open it with `rtrace report {shown}` or `rtrace tui {shown}`");
}

/// The outcome of a recording under `--strict`.
pub fn completeness(summary: &Summary, recording: &Recording) -> Outcome {
    if recording.strict && !summary.is_complete() { Outcome::Incomplete } else { Outcome::Complete }
}

/// Refuses early what cannot work.
pub fn check_processes(pids: &[u32]) -> anyhow::Result<()> {
    privilege::check_capabilities()?;
    privilege::check_namespace()?;
    for &pid in pids {
        privilege::check_process(pid)?;
        if pid == std::process::id() {
            bail!("failed to trace process {pid}: it is rtrace itself");
        }
    }
    Ok(())
}
