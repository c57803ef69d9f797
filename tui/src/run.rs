//! The loop between keys, state and screen.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};

use crate::app::{App, Flow};
use crate::live::Handle;
use crate::term::Screen;
use crate::view;

/// Time from one look at the recording to the next.
const TICK: Duration = Duration::from_millis(100);
/// The least time from one drawing to the next, however fast keys come.
const FRAME: Duration = Duration::from_millis(50);

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows the recording until the user leaves, which sets `stop`, or `stop` is set elsewhere.
///
/// Blocks the calling thread; the terminal is as before when it returns.
///
/// # Errors
/// The terminal cannot be used, has gone, or was given back because another thread panicked.
/// `stop` is then left as it is.
pub fn run(handle: &Handle, stop: &AtomicBool) -> io::Result<()> {
    let mut screen = Screen::take()?;
    let mut app = App::new(handle.target());
    let mut first_row = 0;
    let mut looked: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        if screen.is_lost() {
            return Err(io::Error::other("the live view ended by a panic elsewhere"));
        }
        if !app.paused() && looked.is_none_or(|then| then.elapsed() >= TICK) {
            app.update(handle.snapshot(), handle.elapsed());
            looked = Some(Instant::now());
        }
        screen.draw(|frame| view::draw(frame, &app, &mut first_row))?;
        if wait(&mut app)? == Flow::Quit {
            stop.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Takes keys until it is time to draw again: a tick after the last drawing, or a frame after it
/// where a key or a new size changed what is seen.
fn wait(app: &mut App) -> io::Result<Flow> {
    let drawn = Instant::now();
    let mut until = TICK;
    while event::poll(until.saturating_sub(drawn.elapsed()))? {
        until = FRAME;
        if let Event::Key(key) = event::read()?
            && app.press(key) == Flow::Quit
        {
            return Ok(Flow::Quit);
        }
        if drawn.elapsed() >= FRAME {
            break;
        }
    }
    Ok(Flow::Continue)
}
