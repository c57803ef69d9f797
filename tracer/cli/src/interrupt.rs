//! Signals that end a recording of running processes: the first one ends it in order, a later one ends rtrace.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::message::tell;

/// Signals that come so soon after the first one are no second thought: a terminal and a launcher may both send one.
const TOGETHER: Duration = Duration::from_millis(500);

/// How long the end of a recording may take before that is worth a line.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    End,
    Nothing,
    EndAtOnce,
}

/// `first`: when the first signal came.
fn meaning(first: Option<Instant>, now: Instant) -> Meaning {
    match first {
        None => Meaning::End,
        Some(first) if now.duration_since(first) < TOGETHER => Meaning::Nothing,
        Some(_) => Meaning::EndAtOnce,
    }
}

/// Sets `stop` at the first signal. A later one ends this process, and its guard takes the probes out.
///
/// # Errors
/// The system does not let signals be handled.
pub fn handle(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("failed to handle signals")?;
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            match meaning(first, Instant::now()) {
                Meaning::End => {
                    first = Some(Instant::now());
                    stop.store(true, Ordering::Relaxed);
                    thread::spawn(tell_patience);
                }
                Meaning::Nothing => {}
                // Fails for signals without a default alone.
                Meaning::EndAtOnce => _ = emulate_default_handler(signal),
            }
        }
    });
    Ok(())
}

fn tell_patience() {
    thread::sleep(PATIENCE);
    if stderr().is_terminal() {
        tell!("the probes are being taken out; a second Ctrl-C ends rtrace at once and leaves that to its guard");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thought_ends_at_once() {
        let first = Instant::now();
        assert_eq!(meaning(None, first), Meaning::End);
        assert_eq!(meaning(Some(first), first + TOGETHER / 2), Meaning::Nothing);
        assert_eq!(meaning(Some(first), first + TOGETHER), Meaning::EndAtOnce);
    }
}
