//! `rtrace run`: runs a command and traces it from its first instruction.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Context as _;
use rtrace::record::guard::Guard;
use rtrace::session::{self, FoundTarget, TracedProgram};
use rtrace::target::command::shell_status;
use rtrace::target::user::User;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::Run;
use super::record::{Show, completeness, record, say_unknown_sources};
use super::{Outcome, message};

/// Time between two looks whether the user insists on leaving.
const PATIENCE: Duration = Duration::from_millis(5);

/// Records the command until it and what it has left running ends, and ends as it did.
pub fn run(options: &Run, verbose: bool) -> anyhow::Result<Outcome> {
    let guard = Guard::start()?;
    let recording = &options.recording;
    let how = session::Options {
        stubs: options.stubs.reach,
        user: options.user.as_deref().map(User::named).transpose()?,
        ..recording.options(&options.selection, true, None)?
    };
    let found = FoundTarget::find(&guard, &how, TracedProgram::Command(&options.command))?;
    say_unknown_sources(found.without_sources());
    found.remarks().iter().for_each(|remark| message::tell!("{remark}"));
    if recording.leaves_children(&how) {
        message::tell!("with --budget, only the first process is recorded; --follow records those that it starts, too");
    }
    let ready = found.plan()?.start()?;
    let pid = ready.pids().first().copied().context("failed to start the command")?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupts = Interrupts::handle(pid, Arc::clone(&stop))?;
    let name = session::name_of(&options.command);
    let directory = recording.directory(&name, pid);
    let show = Show {
        directory: &directory,
        sinks: &recording.sinks,
        keep: &recording.keep,
        listen: recording.listen,
        target: &format!("{name} ({pid})"),
        // The command's own output would run through a live view on the same terminal.
        live: false,
        stop: &stop,
    };
    let mut ended = None;
    let recorded = record(ready, &show, |first| {
        ended = first.map(|first| interrupts.reap(first)).transpose()?;
        Ok(())
    });
    let Some(ended) = ended else { return recorded.map(|_| Outcome::Unable) };
    if let Err(error) = &recorded {
        // The command may go on for long: say at once that it does so unrecorded.
        message::print(error, verbose);
    }
    let status = wait(&ended, &interrupts)?;
    let Ok(recorded) = recorded else { return Ok(Outcome::Unable) };
    recorded.conclude(&directory)?;
    Ok(match (completeness(&recorded.summary, recording), status) {
        (Outcome::Incomplete, _) => Outcome::Incomplete,
        (_, Some(status)) => Outcome::Command(status),
        (_, None) => Outcome::Command(128 + SIGINT as u8),
    })
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
