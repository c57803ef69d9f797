//! The terminal: taken on entry, given back whatever happens.
//!
//! The view is drawn on standard error, because standard output is for data.

use std::io::{self, BufWriter, Stderr};
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while the view has it; dropping it gives the terminal back.
#[derive(Debug)]
pub struct Screen(Terminal<CrosstermBackend<BufWriter<Stderr>>>);

impl Screen {
    /// Takes the terminal: own screen, keys as they are pressed.
    pub fn take() -> io::Result<Screen> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        take().inspect_err(|_| give_back())
    }

    /// Whether the terminal had to be given back because some thread panicked.
    pub fn is_lost(&self) -> bool {
        !TAKEN.load(Ordering::SeqCst)
    }
}

impl Deref for Screen {
    type Target = Terminal<CrosstermBackend<BufWriter<Stderr>>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<Screen> {
    enable_raw_mode()?;
    execute!(io::stderr(), EnterAlternateScreen, EnableMouseCapture)?;
    Terminal::new(CrosstermBackend::new(BufWriter::new(io::stderr()))).map(Screen)
}

/// Gives the terminal back once, however often it is called. What fails here fails because the
/// terminal has gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stderr(), DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// A panic of any thread would print into the view and be lost with it.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
    });
}
