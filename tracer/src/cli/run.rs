//! `rtrace run`: runs a command and traces it from its first instruction.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use rtrace::command::{Given, Waiting, shell_status};
use rtrace::plan::{self, Plan};
use rtrace::recorder::{self, Options, Subject};
use rtrace::stubs::{Reach, Stubs};
use rtrace::{target, watch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::Run;
use super::message::{Hint as _, tell};
use super::record::{
    Session, check_processes, completeness, conclude, counters, how_to_record, mechanism, plan, plan_options, samplers,
    stub_reach,
};
use super::{Outcome, message};

/// Records the command until it ends, and ends as it did.
pub fn run(options: &Run, verbose: bool) -> anyhow::Result<Outcome> {
    check_processes(&[])?;
    let mut target = target::of_command(&options.command, &options.selection.libraries)?;
    let command_files = std::mem::take(&mut target.files);
    let recording = &options.recording;
    if options.stubs.reach.is_some() && recording.budget.is_some() {
        return Err(anyhow::anyhow!(
            "failed to combine --stubs and --budget: probes on stubs cannot be taken out alone"
        ))
        .hint("leave one of them out");
    }
    let watches = watch::of_command(&recording.watches, &options.selection.libraries, &options.command)?;
    let (counters, watches) = counters(recording, &options.selection, watches)?;
    let mechanism = mechanism()?;
    let plan_options = plan::Options {
        keeps_accesses: !watches.watches.is_empty(),
        ..plan_options(&options.selection, Some(mechanism), 1, recording.follow(true))
    };
    let reach = stub_reach(options.stubs.reach, &options.command);
    let plan = plan(target, &plan::Options { stubs: reach.is_some(), ..plan_options.clone() });
    let stubs = reach.and_then(|reach| write_stubs(&plan, reach));
    let samplers = samplers(recording, &counters, &watches)?;

    let name = program(options);
    let given = stubs.as_ref().map(|stubs| Given { environment: stubs.environment(), descriptor: stubs.descriptor() });
    let waiting = Waiting::spawn(&options.command, given, recording.follow(true) && !recording.everywhere)
        .with_context(|| format!("failed to run `{name}`"))?;
    let pid = waiting.pid();
    let stop = Arc::new(AtomicBool::new(false));
    let signals = Interrupts::handle(pid, Arc::clone(&stop))?;
    let directory = recording.directory(&name, pid);
    let mut child = None;
    let how = how_to_record(recording, Subject::Command(pid), mechanism, &plan_options, &counters, &watches);
    let how = Options { stubs: stubs.as_ref(), command_files: &command_files, ..how };
    let recorded = Session {
        loaded: recorder::load(&how),
        plan: &plan,
        libraries: &options.selection.libraries,
        options: how,
        plan_options,
        samplers,
        directory: &directory,
        sinks: &recording.sinks,
        target: &format!("{name} ({pid})"),
        // The command's own output would run through a live view on the same terminal.
        live: false,
        stop: &stop,
    }
    .record(|| {
        child = Some(waiting.release().with_context(|| format!("failed to run `{name}`"))?);
        Ok(())
    });
    let Some(child) = child else { return recorded.map(|_| Outcome::Unable) };
    if let Err(error) = &recorded {
        // The command may go on for long: say at once that it does so unrecorded.
        message::print(error, verbose);
    }
    let status = wait(child, &signals)?;
    let Ok(summary) = recorded else { return Ok(Outcome::Unable) };
    conclude(&summary, &directory);
    Ok(match (completeness(&summary, recording), status) {
        (Outcome::Incomplete, _) => Outcome::Incomplete,
        (_, Some(status)) => Outcome::Command(status),
        (_, None) => Outcome::Command(128 + SIGINT as u8),
    })
}

/// The stubs of a plan in a file; `None`, with a word on why, where there are none.
fn write_stubs(plan: &Plan, reach: Reach) -> Option<Stubs> {
    let written = Stubs::write(plan, reach);
    let reason = match &written {
        Ok(Some(_)) => None,
        Ok(None) => Some("no function needs one, or none can have one".to_owned()),
        Err(error) => Some(format!("the system gives no file in memory that can be executed: {error}")),
    };
    if let Some(reason) = reason {
        tell!("no stubs: {reason}");
    }
    written.ok().flatten()
}

fn program(options: &Run) -> String {
    let word = options.command.first().cloned().unwrap_or_default();
    Path::new(&word).file_name().unwrap_or(&word).to_string_lossy().into_owned()
}

/// Waits for the command, unless the user has insisted on leaving; it then goes on untraced.
fn wait(mut child: Child, signals: &Interrupts) -> anyhow::Result<Option<u8>> {
    loop {
        if let Some(status) = child.try_wait().context("failed to wait for the command")? {
            return Ok(Some(shell_status(status)));
        }
        if signals.insisted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Signals while a command runs. The terminal sends its own to the command too, so the first of
/// them only waits for the command to end; a second one ends the recording and the waiting.
struct Interrupts {
    insisted: Arc<AtomicBool>,
}

impl Interrupts {
    fn handle(pid: u32, stop: Arc<AtomicBool>) -> anyhow::Result<Interrupts> {
        let insisted = Arc::new(AtomicBool::new(false));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("failed to handle signals")?;
        let told = Arc::clone(&insisted);
        std::thread::spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                if signal != SIGINT {
                    // SAFETY: sends a signal to our own child, which is not reaped before this thread's end.
                    unsafe { libc::kill(pid.cast_signed(), signal) };
                }
                if count > 0 {
                    told.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Interrupts { insisted })
    }
}
