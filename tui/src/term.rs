//! The terminal: taken on entry, given back whatever happens.
//!
//! The view is drawn on standard error, because standard output is for data.

use std::io::{self, BufWriter, Read as _, Stderr};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossterm::cursor::Show;
use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGWINCH;
use signal_hook::low_level::pipe;

/// A frame is written at once, so that none is seen half drawn.
const FRAME_BYTES: usize = 1 << 18;

/// Longest wait for a key, after which it is asked whether a view has the terminal still.
const PATIENCE: Duration = Duration::from_millis(50);

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while the view has it; dropping it gives the terminal back.
///
/// The library's own drop would panic where the terminal has gone.
#[derive(Debug)]
pub struct Screen(ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stderr>>>>);

impl Screen {
    /// Takes the terminal: own screen, keys as they are pressed.
    pub fn take() -> io::Result<Screen> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        take().inspect_err(|_| give_back())
    }

    /// The next key or the like, if one comes within that time.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn event(&self, timeout: Duration) -> io::Result<Option<Event>> {
        let events = heard().lock().unwrap_or_else(PoisonError::into_inner);
        let event = match events.recv_timeout(timeout) {
            Ok(event) => Some(event?),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        };
        wait(Duration::ZERO, None)?;
        Ok(event)
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
    execute!(io::stderr(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stderr())))
        .map(|terminal| Screen(ManuallyDrop::new(terminal)))
}

/// Keys and the like, since a view has had the terminal for the first time.
fn heard() -> &'static Mutex<Receiver<io::Result<Event>>> {
    static HEARD: OnceLock<Mutex<Receiver<io::Result<Event>>>> = OnceLock::new();
    HEARD.get_or_init(|| {
        let (sender, events) = channel();
        // Nobody waits for its end: the library waits while a key has come in part, and for ever if the terminal goes meanwhile.
        thread::spawn(move || hear(&sender));
        Mutex::new(events)
    })
}

/// Hands on what comes while a view has the terminal.
fn hear(events: &Sender<io::Result<Event>>) {
    // The library is to know of a new size before whoever is told of it here.
    let resized = event::poll(Duration::ZERO).and_then(|_| resizes()).ok();
    loop {
        if !TAKEN.load(Ordering::SeqCst) {
            thread::sleep(PATIENCE);
            continue;
        }
        let heard = has_event(PATIENCE, resized.as_ref())
            .and_then(|has_event| has_event.then(event::read).transpose())
            .transpose();
        let Some(heard) = heard else { continue };
        let is_over = heard.is_err();
        if events.send(heard).is_err() || is_over {
            break;
        }
    }
}

/// What can be read once the terminal has a new size. Of a key that comes before the library has told of the size, it would
/// tell only with the next one.
fn resizes() -> io::Result<UnixStream> {
    let (resized, sender) = UnixStream::pair()?;
    resized.set_nonblocking(true)?;
    pipe::register(SIGWINCH, sender)?;
    Ok(resized)
}

/// Waits for a key or a new size of the terminal, for so long at most.
///
/// # Errors
/// The terminal has gone. The library that reads events would read its end for ever, so it is asked
/// only while there is a terminal.
fn has_event(timeout: Duration, resized: Option<&UnixStream>) -> io::Result<bool> {
    wait(Duration::ZERO, None)?;
    if event::poll(Duration::ZERO)? {
        return Ok(true);
    }
    wait(timeout, resized)?;
    event::poll(Duration::ZERO)
}

/// Waits for something to read, or a new size, for so long.
///
/// # Errors
/// The terminal has gone.
fn wait(timeout: Duration, resized: Option<&UnixStream>) -> io::Result<()> {
    let stdin = io::stdin();
    let mut fds = vec![PollFd::new(&stdin, PollFlags::IN)];
    fds.extend(resized.map(|resized| PollFd::new(resized, PollFlags::IN)));
    let timeout = Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(mut resized) = resized {
        // What was told is read, if there is something.
        let _ = resized.read(&mut [0; 64]);
    }
    let is_gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    if is_gone { Err(gone()) } else { Ok(()) }
}

fn gone() -> io::Error {
    io::Error::other("the terminal has gone")
}

/// Gives the terminal back once, however often it is called. What fails here fails because the
/// terminal has gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
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
