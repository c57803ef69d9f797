//! What `attach` and `run` share: what they say of a recording, and where it goes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rtrace::actions::RegionAction;
use rtrace::flight::{self, Flight, WindowLog};
use rtrace::rank;
use rtrace::session::Ready;
use rtrace::suggestions;
use rtrace::target::privilege::{self, shell_quote};
use rtrace::target::user::{self, User};
use rtrace_exporters::{Consumer, Delivery, OpenMetrics, TraceWriter};
use rtrace_model::{Sink, SinkError, Summary, counted, escape, grouped};
use rtrace_plan::Plan;
use rtrace_tui::Fate;
use signal_hook::consts::SIGUSR1;
use signal_hook::flag;

use super::Outcome;
use super::args::{Keep, RecordingArgs};
use super::derive::derive;
use super::message::{Hint as _, tell};
use super::progress::{Lingering, Progress};
use super::silence::Silence;
use super::trace_host::TraceHost;

/// Tells of libraries of whose functions the source files are not known.
pub fn say_unknown_sources(libraries: &[String]) {
    for library in libraries {
        tell!("{library} has no debug information: none of its functions is selected by its source file");
    }
}

/// Where a recording goes, and how it is shown.
pub struct Show<'a> {
    /// Where it is written.
    pub directory: &'a Path,
    /// Programs that get the calls while they happen.
    pub sinks: &'a [String],
    /// What is kept until something happens.
    pub keep: &'a Keep,
    /// Where figures are served to Prometheus.
    pub listen: Option<SocketAddr>,
    /// What is recorded, for people.
    pub target: &'a str,
    /// Whether a live view may use the terminal.
    pub live: bool,
    /// Ends the recording when set.
    pub stop: &'a Arc<AtomicBool>,
}

/// What was recorded.
pub struct Recorded {
    /// The whole recording.
    pub summary: Summary,
    /// Why it may be empty.
    silence: Silence,
    /// The parts of it that were written, where not all is.
    windows: Option<WindowLog>,
    /// Whether the user wants its trace.
    is_kept: bool,
}

/// Says what the user should know, and records; the live view, if there is one, runs on this thread. Gives also what
/// explains a recording without calls.
pub fn record(
    ready: Ready<'_>,
    show: &Show<'_>,
    armed: impl FnOnce(Option<Child>) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Recorded> {
    ready.check().with_context(|| format!("failed to trace {}", show.target))?;
    if ready.awaited().is_empty() {
        suggestions::check_triggers(ready.plan(), &show.keep.triggers)?;
        suggestions::check_actions(ready.plan(), &ready.options().actions)?;
    }
    if let Some(reason) = ready.no_stubs() {
        tell!("{reason}");
    }
    say_what_is_untimed(ready.plan());
    let silence = Silence::of(&ready, show.target);
    let (is_folded, is_timed) = (ready.options().profile.is_some(), ready.options().duration.is_some());
    let metrics = show.listen.map(|address| listen(address, is_folded)).transpose()?;
    let (writer, windows) = writer(show).hint("choose another directory with --output DIR")?;
    let consumers = consumers(show.sinks, ready.options().helper_user.as_ref())?;
    let lingering = ready.options().outlasts_first().then(|| Lingering::of(ready.pids(), ready.is_command()));
    let actions = ready.options().actions.clone();
    let deliveries: Vec<Delivery> = consumers.iter().map(Consumer::delivery).collect();
    let mut sinks = vec![writer];
    sinks.extend(metrics.map(|metrics| Box::new(metrics) as Box<dyn Sink>));
    if !(show.live && consumers.is_empty() && windows.is_none() && rtrace_tui::is_possible()) {
        sinks.push(Box::new(Progress::new(show.target, lingering, windows.clone())));
        sinks.extend(consumers.into_iter().map(|consumer| Box::new(consumer) as Box<dyn Sink>));
        let recorded = ready.record(sinks, show.stop, armed);
        actions.iter().for_each(say_outcome);
        let news = windows.iter().flat_map(WindowLog::take_news);
        for line in deliveries.iter().flat_map(Delivery::warnings).chain(news) {
            tell!("{line}");
        }
        return recorded.map(|summary| Recorded { summary, silence, windows, is_kept: true }).map_err(explain);
    }
    let (sink, handle) = rtrace_tui::live(show.target, is_folded, derive);
    sinks.push(Box::new(sink));
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            let recorded = ready.record(sinks, show.stop, armed);
            // A target that has ended can still be looked at.
            if recorded.is_err() || is_timed {
                show.stop.store(true, Ordering::Relaxed);
            }
            recorded
        });
        let shown = rtrace_tui::run(&handle, &TraceHost::recording(show.directory), show.stop);
        let fate = *shown.as_ref().unwrap_or(&Fate::Keep);
        if fate == Fate::GoOn {
            handle.close();
            tell!("the recording of {} goes on; Ctrl-C ends it", escape(show.target));
        } else {
            show.stop.store(true, Ordering::Relaxed);
        }
        let recorded = recording.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        shown.context("failed to show the live view")?;
        actions.iter().for_each(say_outcome);
        let summary = recorded.map_err(explain)?;
        Ok(Recorded { summary, silence, windows: None, is_kept: fate != Fate::Delete })
    })
}

/// Serves the figures, and says where.
fn listen(address: SocketAddr, is_folded: bool) -> anyhow::Result<OpenMetrics> {
    let metrics = OpenMetrics::listen(address, is_folded)
        .with_context(|| format!("failed to listen on `{address}`"))
        .hint("choose another port with --listen PORT; 0 is one that is free")?;
    tell!("metrics are at http://{}/metrics", metrics.address());
    Ok(metrics)
}

/// Starts the programs that get the calls.
fn consumers(commands: &[String], user: Option<&User>) -> anyhow::Result<Vec<Consumer>> {
    let start = |command: &String| {
        Consumer::start(command, user::shell(command, user))
            .with_context(|| format!("failed to start the sink `{command}`"))
    };
    commands.iter().map(start).collect()
}

/// What stores the recording: all of it, or windows of it. Ranks of a parallel job write into one directory, each a
/// trace.
fn writer(show: &Show<'_>) -> anyhow::Result<(Box<dyn Sink>, Option<WindowLog>)> {
    let (directory, owner) = (show.directory, privilege::invoker());
    let rank = rank::from_environment();
    let Some(before) = show.keep.keep else {
        let writer = match rank {
            Some(_) => TraceWriter::create_member(directory, owner),
            None => TraceWriter::create(directory, owner),
        };
        return Ok((Box::new(writer?), None));
    };
    let asked = Arc::default();
    flag::register(SIGUSR1, Arc::clone(&asked)).context("failed to handle signals")?;
    let around = directory.parent().filter(|_| rank.is_some()).unwrap_or(directory);
    let flight = Flight::new(flight::Settings {
        directory: around.to_owned(),
        prefix: rank.map(|rank| format!("{}-", rank::directory_name(&rank))).unwrap_or_default(),
        owner,
        before,
        after: show.keep.keep_after,
        most_bytes: show.keep.keep_memory as usize,
        most_windows: show.keep.windows,
        triggers: show.keep.triggers.clone(),
        asked,
        stop: Arc::clone(show.stop),
    })?;
    let log = flight.log();
    Ok((Box::new(flight), Some(log)))
}

/// Names the libraries whose functions are not timed, though it was asked for.
fn say_what_is_untimed(plan: &Plan) {
    for planned in &plan.libraries {
        let mut reasons = planned.regions.iter().filter_map(|region| region.untimed.as_ref());
        if let Some(reason) = reasons.next() {
            let (count, path) = (reasons.count() + 1, escape(&planned.library.path));
            let functions = if count == 1 { "function" } else { "functions" };
            tell!("{count} {functions} of {path} are counted, not timed: {reason}");
        }
    }
}

/// Says what came of an action, and how long after the moment it was done.
fn say_outcome(action: &RegionAction) {
    let mut outcome = action.outcome();
    outcome.delays.sort_unstable();
    let at = |part: f64| outcome.delays.get(((outcome.delays.len() as f64 - 1.0) * part) as usize).copied();
    let delay = at(0.5).zip(at(0.99)).map_or_else(String::new, |(median, most)| {
        format!(", {} us after it (median; 99 %: {} us)", grouped(median / 1000), grouped(most / 1000))
    });
    let some = |count: u64, what: &str| if count > 0 { format!("; {} {what}", grouped(count)) } else { String::new() };
    let failed = some(outcome.failed, "ended with an error");
    let skipped = some(outcome.skipped, "skipped, as the command still ran");
    let missed = some(outcome.missed, "moments missed, as they came too fast");
    let error = outcome.error.map_or_else(String::new, |error| format!("; failed: {error}"));
    tell!(
        "--on {}: acted {}{delay}{failed}{skipped}{missed}{error}",
        escape(&action.text()),
        counted(outcome.done, "time")
    );
}

/// A sink that fails has kept what it wrote.
fn explain(error: anyhow::Error) -> anyhow::Error {
    if error.is::<SinkError>() {
        let hint = "what was written so far is readable; free some disk space, raise `ulimit -f`, or choose another directory with --output DIR";
        return Err::<(), _>(error).hint(hint).expect_err("it is an error");
    }
    error
}

impl Recorded {
    /// Ends the talk: the one honest line, why it is empty if it is, where the trace is, and what to do next.
    ///
    /// # Errors
    /// The trace is not wanted, and cannot be deleted.
    pub fn conclude(&self, directory: &Path) -> anyhow::Result<()> {
        tell!("{}", self.summary);
        self.silence.explain(&self.summary);
        if let Some(log) = &self.windows {
            tell_windows(log);
            return Ok(());
        }
        let shown = shell_quote(directory);
        if !self.is_kept {
            // The recording has made this directory: it would not have begun in one that was there.
            fs::remove_dir_all(directory).with_context(|| format!("failed to delete {shown}"))?;
            tell!("trace deleted, as you asked: {shown}");
            return Ok(());
        }
        tell!("trace saved in {shown}; open it with `rtrace report {shown}` or `rtrace tui {shown}`");
        Ok(())
    }
}

/// Where the windows are.
fn tell_windows(log: &WindowLog) {
    let (met, windows) = (counted(log.met(), "trigger"), log.windows());
    match windows.as_slice() {
        [] => tell!("no trigger was met: nothing is saved"),
        [first, ..] => {
            let (count, shown) = (counted(windows.len() as u64, "window"), shell_quote(first));
            tell!("{met} met, {count} saved; open one with `rtrace report {shown}` or `rtrace tui {shown}`");
        }
    }
}

/// The outcome of a recording under `--strict`.
pub fn completeness(summary: &Summary, recording: &RecordingArgs) -> Outcome {
    if recording.strict && !summary.is_complete() { Outcome::Incomplete } else { Outcome::Complete }
}
