//! The sink that keeps a state up to date, and the handle that looks at it.
//!
//! Both share one lock. The sink takes it once per batch, the view while it fills a frame in memory,
//! never while it writes to the terminal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrace_model::{Item, LocationId, Sink, SinkError, Timestamp};

use crate::state::counters::Derive;
use crate::state::{Span, State};

/// Makes the two ends of a live view of `target`, which is a description for people. Where `is_folded`,
/// figures are those of the call-path profile, which then has all calls. `derive` gives the figures
/// that follow from counters.
pub fn live(target: impl Into<String>, is_folded: bool, derive: Derive) -> (LiveSink, Handle) {
    let state = State::new(Span::Live, is_folded).deriving(derive);
    let state = Arc::new(Mutex::new(state));
    let is_closed = Arc::new(AtomicBool::new(false));
    let sink = LiveSink { state: Arc::clone(&state), is_closed: Arc::clone(&is_closed) };
    let (current, ranks) = (Mutex::new(state), BTreeMap::new());
    (sink, Handle { target: target.into(), derive, current, is_closed, stored: None, ranks })
}

/// A view of the stored recording of `target`; [`Handle::replay`] fills it. `derive` gives the
/// figures that follow from counters.
pub fn stored(target: impl Into<String>, whole: Range, derive: Derive) -> Handle {
    let state = State::new(Span::Range { from: whole.from, to: whole.to }, false);
    let stored = Stored { whole, wanted: whole, status: String::new() };
    Handle {
        target: target.into(),
        derive,
        current: Mutex::new(Arc::new(Mutex::new(state))),
        is_closed: Arc::default(),
        stored: Some(Mutex::new(stored)),
        ranks: BTreeMap::new(),
    }
}

/// A range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
}

impl Range {
    /// Its length in nanoseconds.
    pub fn length(self) -> u64 {
        self.to.since(self.from)
    }
}

/// What is said of a stored recording.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// From its first to its last call.
    pub(crate) whole: Range,
    /// What the user wants to look at.
    pub(crate) wanted: Range,
    /// What is being done, for people.
    pub(crate) status: String,
}

/// The end that a recording feeds.
#[derive(Debug)]
pub struct LiveSink {
    state: Arc<Mutex<State>>,
    /// Whether nobody will look at it any more.
    is_closed: Arc<AtomicBool>,
}

/// The end that the view looks through.
#[derive(Debug)]
pub struct Handle {
    target: String,
    derive: Derive,
    current: Mutex<Arc<Mutex<State>>>,
    is_closed: Arc<AtomicBool>,
    stored: Option<Mutex<Stored>>,
    ranks: BTreeMap<LocationId, u32>,
}

impl Handle {
    /// What is traced, for people; not escaped.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Looks at the state; the recording may have to wait meanwhile, so no longer than it takes to
    /// fill a frame.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        let state = Arc::clone(&lock(&self.current));
        let state = lock(&state);
        at(&state)
    }

    /// What is said of a stored recording; absent of a live one.
    pub(crate) fn stored(&self) -> Option<Stored> {
        self.stored.as_ref().map(|stored| lock(stored).clone())
    }

    /// Asks for another range of a stored recording.
    pub(crate) fn want(&self, range: Range) {
        if let Some(stored) = &self.stored {
            lock(stored).wanted = range;
        }
    }

    /// The range of a stored recording that the user wants to look at.
    pub fn wanted(&self) -> Option<Range> {
        self.stored.as_ref().map(|stored| lock(stored).wanted)
    }

    /// Tells the ranks of the threads of a parallel job.
    #[must_use]
    pub fn with_ranks(self, ranks: BTreeMap<LocationId, u32>) -> Handle {
        Handle { ranks, ..self }
    }

    pub(crate) fn ranks(&self) -> &BTreeMap<LocationId, u32> {
        &self.ranks
    }

    /// Nobody will look any more: the sink of a recording that goes on takes nothing in from now on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Shows what is being done; nothing, when the text is empty.
    pub fn say(&self, status: impl Into<String>) {
        if let Some(stored) = &self.stored {
            lock(stored).status = status.into();
        }
    }

    /// A stored recording has grown; who looked at the whole of it goes on to do so.
    pub fn grow(&self, whole: Range) {
        if let Some(stored) = &self.stored {
            let mut stored = lock(stored);
            if stored.wanted == stored.whole {
                stored.wanted = whole;
            }
            stored.whole = whole;
        }
    }

    /// Begins to show a range of a stored recording: the sink that takes its calls, in the order of
    /// their ends, and the call-path profile where it `is_folded`.
    pub fn replay(&self, range: Range, is_folded: bool) -> LiveSink {
        let span = Span::Range { from: range.from, to: range.to };
        let state = State::new(span, is_folded).deriving(self.derive);
        LiveSink { state: Arc::new(Mutex::new(state)), is_closed: Arc::clone(&self.is_closed) }
    }

    /// Begins to show the sums of a range of a stored recording, whose single calls are still to come.
    pub fn preview(&self, range: Range) -> LiveSink {
        let sink = self.replay(range, true);
        lock(&sink.state).awaits_calls = true;
        sink
    }

    /// Shows what a sink has taken from now on.
    pub fn show(&self, sink: &LiveSink) {
        *lock(&self.current) = Arc::clone(&sink.state);
    }
}

/// States are whole after every step, so a panic elsewhere does not spoil them.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for LiveSink {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        if !self.is_closed.load(Ordering::Relaxed) {
            lock(&self.state).take(item);
        }
        Ok(())
    }

    fn wants_running(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }
}
