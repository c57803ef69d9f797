//! `rtrace run`: runs a command and traces it from its first instruction.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use rtrace::record::guard::Guard;
use rtrace::session::{self, FoundTarget, TracedProgram};
use rtrace::target::command::shell_status;
use rtrace::target::user::User;
use signal_hook::consts::SIGINT;

use super::args::Run;
use super::command_signals::Interrupts;
use super::record::{Show, completeness, record, say_unknown_sources};
use super::{Outcome, message, totals};

/// Time between two looks whether the user insists on leaving.
const PATIENCE: Duration = Duration::from_millis(5);

/// Records the command until it and what it has left running ends, and ends as it did.
pub fn run(options: &Run, verbose: bool) -> anyhow::Result<Outcome> {
    if options.selection.libraries.is_empty() {
        return totals::run(options);
    }
    let guard = Guard::start()?;
    let recording = &options.recording;
    let how = session::Options {
        stubs: options.stubs.stubs,
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
