//! One recording from load to detach.
//!
//! load → attach → arm → read → disarm → drain → detach → finish. Nothing is recorded before
//! `arm`, so a slow attach leaves no half-traced beginning; after `disarm` nothing changes, so what
//! is read last is all there is. Probes are gone before the sinks finish: a full disk does not keep
//! them in the traced program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rtrace_bpf::{LoadOptions, Mechanism, Programs};
use rtrace_model::{Definition, Event, EventKind, Sink, Summary};

use crate::attach::{self, Attachment, Scope};
use crate::host;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::source::Source;

/// Time between two looks at the rings. A ring of the default size holds a hundred times as much
/// as a thread can fill in it.
const READ_PERIOD: Duration = Duration::from_millis(5);

/// Time between two ticks of the sinks.
const TICK_PERIOD: Duration = Duration::from_secs(1);

/// Whose calls are recorded.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Running processes.
    Processes(&'a [u32]),
    /// A process that waits to execute the command to trace.
    Command(u32),
}

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Whose calls.
    pub subject: Subject<'a>,
    /// How probes are attached.
    pub mechanism: Mechanism,
    /// Size of each CPU's ring in bytes.
    pub ring_bytes: u32,
    /// Whether children are recorded too.
    pub follow: bool,
    /// When to stop, from arming on.
    pub duration: Option<Duration>,
}

/// Records until one of the reasons to stop: `stop` is set, the duration is over, every process
/// named has ended, or a sink fails. `stop` is set when it returns.
///
/// `armed` is called once calls are being recorded.
///
/// # Errors
/// The kernel refuses programs or probes, or a sink fails; probes are gone in any case.
pub fn record(
    plan: &Plan,
    options: &Options<'_>,
    sinks: Vec<Box<dyn Sink>>,
    stop: &AtomicBool,
    armed: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let load =
        LoadOptions { mechanism: options.mechanism, ring_bytes: options.ring_bytes, follow_children: options.follow };
    let programs = Programs::load(&load)?;
    let attachment = attach_all(&programs, plan, options)?;
    let pipeline = Pipeline::start(sinks);
    announce(&pipeline, plan, &attachment, options.mechanism);

    let drained = read_until_stopped(&programs, &pipeline, options, stop, armed);
    let regions = attachment.regions.len() as u64;
    let refused = refusals(plan, &attachment);
    drop(attachment);
    stop.store(true, Ordering::Relaxed);

    let mut summary = drained?;
    summary.regions = regions;
    summary.refused = refused;
    pipeline.finish(summary.clone())?;
    Ok(summary)
}

fn attach_all(programs: &Programs, plan: &Plan, options: &Options<'_>) -> anyhow::Result<Attachment> {
    let scope = match options.subject {
        Subject::Processes(pids) => {
            for &pid in pids {
                programs.trace(pid)?;
            }
            if options.follow { Scope::All } else { Scope::Processes(pids) }
        }
        Subject::Command(pid) => {
            programs.trace_from_exec(pid)?;
            Scope::All
        }
    };
    attach::attach(programs, plan, scope).context("failed to attach")
}

fn refusals(plan: &Plan, attachment: &Attachment) -> u64 {
    let planned: usize = plan.libraries.iter().map(|library| library.refused.len()).sum();
    (planned + attachment.refused.len()) as u64
}

/// Tells the sinks what calls will refer to, and what was left out.
fn announce(pipeline: &Pipeline, plan: &Plan, attachment: &Attachment, mechanism: Mechanism) {
    pipeline.begin(host::header(mechanism.name()));
    for library in &plan.libraries {
        pipeline.define(Definition::Library(library.library.clone()));
    }
    for region in &attachment.regions {
        pipeline.define(Definition::Region(region.clone()));
    }
    let time = host::now();
    let event = |kind| pipeline.event(Event { time, pid: None, tid: None, kind });
    for (index, planned) in plan.libraries.iter().enumerate() {
        let library = &planned.library;
        let regions = attachment.regions.iter().filter(|region| region.library == library.id).count() as u64;
        event(EventKind::Attached { library: library.path.clone(), regions });
        let by_kernel = attachment.refused.iter().filter(|(of, _)| *of == index).map(|(_, refusal)| refusal);
        for refusal in planned.refused.iter().chain(by_kernel) {
            event(EventKind::Refused {
                library: library.path.clone(),
                region: refusal.name.clone(),
                reason: refusal.reason.clone(),
            });
        }
    }
}

fn read_until_stopped(
    programs: &Programs,
    pipeline: &Pipeline,
    options: &Options<'_>,
    stop: &AtomicBool,
    armed: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let pids = match &options.subject {
        Subject::Processes(pids) => *pids,
        Subject::Command(pid) => std::slice::from_ref(pid),
    };
    let mut source = Source::new(programs, pipeline, pids)?;
    let state = |kind| pipeline.event(Event { time: host::now(), pid: None, tid: None, kind });

    programs.arm();
    state(EventKind::Armed);
    let begin = Instant::now();
    let released = armed();
    let mut ticks = 0;
    while released.is_ok() && !stop.load(Ordering::Relaxed) && !pipeline.has_failed() {
        std::thread::sleep(READ_PERIOD);
        source.pass()?;
        if begin.elapsed() >= TICK_PERIOD * (ticks + 1) {
            ticks += 1;
            source.tick()?;
        }
        let is_over = options.duration.is_some_and(|duration| begin.elapsed() >= duration);
        if is_over || pids.iter().all(|&pid| source.has_ended(pid)) {
            break;
        }
    }
    programs.disarm();
    state(EventKind::Disarmed);
    let summary = source.drain()?;
    released?;
    Ok(summary)
}
