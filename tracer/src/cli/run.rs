//! `rtrace run`: runs a command and traces it from its first instruction.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Context as _;
use rtrace::command::{Given, Waiting, shell_status};
use rtrace::guard::Guard;
use rtrace::recorder::{self, Options, Subject};
use rtrace::stubs::{Reach, Stubs};
use rtrace::user::User;
use rtrace::{target, watch};
use rtrace_plan as plan;
use rtrace_plan::Plan;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::Run;
use super::message::{Hint as _, tell};
use super::record::{
    Session, check_processes, completeness, conclude, counters, how_to_record, mechanism, plan, plan_options, samplers,
    stub_reach,
};
use super::{Outcome, message};

/// Time between two looks whether the user insists on leaving.
const PATIENCE: Duration = Duration::from_millis(5);

/// Records the command until it and what it has left running ends, and ends as it did.
pub fn run(options: &Run, verbose: bool) -> anyhow::Result<Outcome> {
    let guard = Guard::start()?;
    check_processes(&[])?;
    let user = options.user.as_deref().map(User::named).transpose()?;
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
    let waiting =
        Waiting::spawn(&options.command, given, recording.follow(true) && !recording.everywhere, user.as_ref())
            .with_context(|| format!("failed to run `{name}`"))?;
    let pid = waiting.pid();
    let stop = Arc::new(AtomicBool::new(false));
    let interrupts = Interrupts::handle(pid, Arc::clone(&stop))?;
    let directory = recording.directory(&name, pid);
    let mut ended = None;
    let how = how_to_record(recording, &guard, Subject::Command(pid), mechanism, &plan_options, &counters, &watches)?;
    let how = Options {
        stubs: stubs.as_ref(),
        command_files: &command_files,
        observer: user.as_ref().map(User::observer).or(how.observer),
        ..how
    };
    let recorded = Session {
        loaded: recorder::load(&how),
        plan: &plan,
        libraries: &options.selection.libraries,
        options: how,
        plan_options,
        samplers,
        directory: &directory,
        sinks: &recording.sinks,
        helper_user: recording.helper_user()?,
        target: &format!("{name} ({pid})"),
        // The command's own output would run through a live view on the same terminal.
        live: false,
        stop: &stop,
    }
    .record(|| {
        let first = waiting.release().with_context(|| format!("failed to run `{name}`"))?;
        ended = Some(interrupts.reap(first)?);
        Ok(())
    });
    let Some(ended) = ended else { return recorded.map(|_| Outcome::Unable) };
    if let Err(error) = &recorded {
        // The command may go on for long: say at once that it does so unrecorded.
        message::print(error, verbose);
    }
    let status = wait(&ended, &interrupts)?;
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
        Ok(None) => Some("no function needs a stub, or none can have one".to_owned()),
        Err(error) => Some(format!("failed to create an executable file in memory: {error}")),
    };
    if let Some(reason) = reason {
        tell!("stubs unavailable: {reason}");
    }
    written.ok().flatten()
}

fn program(options: &Run) -> String {
    let word = options.command.first().cloned().unwrap_or_default();
    Path::new(&word).file_name().unwrap_or(&word).to_string_lossy().into_owned()
}

/// Waits for the command, unless the user has insisted on leaving; it then goes on untraced.
fn wait(ended: &Receiver<io::Result<ExitStatus>>, interrupts: &Interrupts) -> anyhow::Result<Option<u8>> {
    loop {
        match ended.recv_timeout(PATIENCE) {
            Ok(status) => {
                return status.map(|status| Some(shell_status(status))).context("failed to wait for the command");
            }
            Err(RecvTimeoutError::Timeout) if !interrupts.insisted.load(Ordering::SeqCst) => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Signals while a command runs. The terminal sends its own to the command too, so the first of them only waits for
/// the command's first process to end, and for no other then; a second one ends the recording and the waiting.
#[derive(Default)]
struct Interrupts {
    asked: AtomicBool,
    insisted: AtomicBool,
    first_has_ended: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl Interrupts {
    fn handle(pid: u32, stop: Arc<AtomicBool>) -> anyhow::Result<Arc<Interrupts>> {
        let interrupts = Arc::new(Interrupts { stop, ..Interrupts::default() });
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("failed to handle signals")?;
        let process = open_process(pid)?;
        let told = Arc::clone(&interrupts);
        std::thread::spawn(move || {
            for number in signals.forever() {
                if let Some(signal) = Signal::from_named_raw(number).filter(|_| number != SIGINT) {
                    // It may have ended.
                    let _ = pidfd_send_signal(process.as_fd(), signal);
                }
                told.hear();
            }
        });
        Ok(interrupts)
    }

    fn hear(&self) {
        if self.asked.swap(true, Ordering::SeqCst) || self.first_has_ended.load(Ordering::SeqCst) {
            self.insisted.store(true, Ordering::SeqCst);
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Waits for a process at once when it ends, though others are recorded: these may wait for it to be gone.
    fn reap(self: &Arc<Self>, mut first: Child) -> anyhow::Result<Receiver<io::Result<ExitStatus>>> {
        let (sender, ended) = channel();
        let interrupts = Arc::clone(self);
        let process = open_process(first.id())?;
        std::thread::spawn(move || {
            // To wait for it at once would take away what is told of it to who holds it for a time.
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None).is_err_and(|error| error == Errno::INTR) {}
            let status = first.wait();
            interrupts.first_has_ended.store(true, Ordering::SeqCst);
            if interrupts.asked.load(Ordering::SeqCst) {
                interrupts.stop.store(true, Ordering::SeqCst);
            }
            // Nobody waits for it where the user has insisted on leaving.
            let _ = sender.send(status);
        });
        Ok(ended)
    }
}

/// A process, whose id may be another's when it has ended.
fn open_process(pid: u32) -> anyhow::Result<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed()).context("failed to find the command")?;
    pidfd_open(pid, PidfdFlags::empty()).context("failed to find the command")
}
