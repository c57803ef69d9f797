//! Signals while a command runs: they are the command's first of all.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Signals while a command runs. The terminal sends its own to the command too, so the first of them only waits for
/// the command's first process to end, and for no other then; a second one ends the recording and the waiting.
#[derive(Default)]
pub struct Interrupts {
    asked: AtomicBool,
    pub insisted: AtomicBool,
    first_has_ended: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl Interrupts {
    /// Hands signals on to the command from now on.
    ///
    /// # Errors
    /// The system refuses to handle signals, or the process has ended.
    pub fn handle(pid: u32, stop: Arc<AtomicBool>) -> anyhow::Result<Arc<Interrupts>> {
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
    pub fn reap(self: &Arc<Self>, mut first: Child) -> anyhow::Result<Receiver<io::Result<ExitStatus>>> {
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
