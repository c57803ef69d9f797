//! The loop between keys, state and screen.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::Event;
use rustix::time::{ClockId, clock_gettime};

use crate::app::{Fate, Outside};
use crate::dashboard::Dashboard;
use crate::live::Handle;
use crate::state::State;
use crate::term::Screen;
use crate::theme::Theme;

/// Time from one look at the recording to the next.
const TICK: Duration = Duration::from_millis(250);
/// A look that takes more than this part of its time makes the next one come later, at most so much.
const PART: u32 = 40;
const LONGEST_TICK: Duration = Duration::from_secs(2);
/// The least time from one answer to keys to the next, however fast they come.
const FRAME: Duration = Duration::from_millis(50);
/// Time between two looks at the size of the recording.
const SIZE_PERIOD: Duration = Duration::from_secs(2);

/// What a view asks of those who show it.
pub trait Host {
    /// Size of the recording in bytes, where it is known.
    fn size(&self) -> Option<u64>;

    /// What may become of the recording when the user leaves; one fate needs no question.
    fn fates(&self) -> &[Fate];
}

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows the recording until the user leaves, or `stop` is set.
///
/// Blocks the calling thread; the terminal is as before when it returns.
///
/// # Errors
/// The terminal cannot be used, has gone, or was given back because another thread panicked.
pub fn run(handle: &Handle, host: &dyn Host, stop: &AtomicBool) -> io::Result<Fate> {
    let mut screen = Screen::take()?;
    let theme = Theme::of_environment(|name| std::env::var(name).ok());
    let mut show = ShownView {
        handle,
        host,
        dashboard: Dashboard::new(handle.target(), theme),
        frozen: None,
        sized: None,
        answered: None,
    };
    show.dashboard.app.fates = host.fates().to_vec();
    show.dashboard.app.ranks = handle.ranks().clone();
    let mut looked: Option<Instant> = None;
    let mut tick = TICK;
    while !stop.load(Ordering::Relaxed) {
        if screen.is_lost() {
            return Err(io::Error::other("the live view ended by a panic elsewhere"));
        }
        let begun = cpu_time();
        let is_due = looked.is_none_or(|then| then.elapsed() >= tick);
        if is_due {
            show.tick();
            looked = Some(Instant::now());
        }
        screen.draw(|frame| show.look(|dashboard, state| dashboard.draw(frame, state)))?;
        if is_due {
            tick = (cpu_time().saturating_sub(begun) * PART).clamp(TICK, LONGEST_TICK);
        }
        show.freeze();
        let until = looked.map_or(tick, |then| tick.saturating_sub(then.elapsed()));
        if let Outside::End(fate) = show.wait(&screen, until)? {
            return Ok(fate);
        }
    }
    Ok(Fate::Keep)
}

/// CPU time that this thread has taken, whatever else the machine does.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// A view while it is shown.
struct ShownView<'a> {
    handle: &'a Handle,
    host: &'a dyn Host,
    dashboard: Dashboard,
    /// The state when the user paused; its copy is made, and given up, after the key was answered.
    frozen: Option<Box<State>>,
    sized: Option<Instant>,
    /// When keys were last drawn.
    answered: Option<Instant>,
}

impl ShownView<'_> {
    fn look<T>(&mut self, at: impl FnOnce(&mut Dashboard, &State) -> T) -> T {
        match &self.frozen {
            Some(state) if self.dashboard.app.paused => at(&mut self.dashboard, state),
            _ => self.handle.look(|state| at(&mut self.dashboard, state)),
        }
    }

    fn tick(&mut self) {
        if self.sized.is_none_or(|then| then.elapsed() >= SIZE_PERIOD) {
            self.dashboard.app.size = self.host.size();
            self.sized = Some(Instant::now());
        }
        self.dashboard.app.set_stored(self.handle.stored());
        if !self.dashboard.app.paused {
            self.look(Dashboard::arrange);
        }
    }

    /// Takes keys until it is time to draw again: a tick after the last one, or at once where a key
    /// or a new size changed what is seen, but a frame after the last time.
    fn wait(&mut self, screen: &Screen, tick: Duration) -> io::Result<Outside> {
        let drawn = Instant::now();
        let mut until = drawn + tick;
        let mut is_asked = false;
        while let Some(event) = screen.event(until.saturating_duration_since(Instant::now()))? {
            is_asked = true;
            until = self.answered.map_or(drawn, |then| then + FRAME);
            let flow = self.look(|dashboard, state| match event {
                Event::Key(key) => dashboard.press(key, state),
                _ => Outside::Continue,
            });
            match flow {
                Outside::End(fate) => return Ok(Outside::End(fate)),
                Outside::Pause => self.dashboard.app.paused = !self.dashboard.app.paused,
                Outside::Look(range) => {
                    self.handle.want(range);
                    self.dashboard.app.set_stored(self.handle.stored());
                }
                Outside::Continue => {}
            }
            if drawn.elapsed() >= FRAME {
                break;
            }
        }
        if is_asked {
            self.answered = Some(Instant::now());
        }
        Ok(Outside::Continue)
    }

    fn freeze(&mut self) {
        match &self.frozen {
            None if self.dashboard.app.paused => self.frozen = Some(Box::new(self.handle.look(State::snapshot))),
            Some(_) if !self.dashboard.app.paused => self.frozen = None,
            _ => {}
        }
    }
}
