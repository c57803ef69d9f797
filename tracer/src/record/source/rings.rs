//! The thread that empties the rings, and does nothing else: whatever a recording is busy with, they do not fill up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

use rtrace_bpf::{Error, Programs, Records, RingReader};

use crate::host;

/// Time between two looks at the rings. A ring of the default size holds what a thread that does nothing but call
/// fills in some tens of it.
const PERIOD: Duration = Duration::from_millis(5);

/// Bytes of records that may wait for who takes them. With more, the rings are left to fill up, and count what they
/// cannot take.
const MOST_WAITING: usize = 128 << 20;

/// What the reading thread tells.
enum Read {
    /// What the rings held.
    Records(Records),
    /// They can be read; or they held nothing after they had been [asked for](Rings::ask).
    Empty,
    /// They cannot be read.
    Failed(Error),
}

/// What the rings hold, as another thread reads it. That thread ends when this is dropped.
pub struct Rings {
    read: Receiver<Read>,
    /// Records that were taken, to be filled again.
    taken: Sender<Records>,
    asks: Sender<()>,
    waiting: Arc<Waiting>,
}

/// What was read and not yet taken.
#[derive(Default)]
struct Waiting {
    portions: AtomicUsize,
    /// Of records that were not given back, either.
    bytes: AtomicUsize,
}

/// The other ends.
struct Ends {
    read: Sender<Read>,
    taken: Receiver<Records>,
    asks: Receiver<()>,
    waiting: Arc<Waiting>,
}

impl Rings {
    /// Starts to read.
    ///
    /// # Errors
    /// The rings cannot be read.
    pub fn read<'scope>(scope: &'scope Scope<'scope, '_>, programs: &'scope Programs) -> Result<Rings, Error> {
        let (read_sender, read) = channel();
        let (taken, taken_receiver) = channel();
        let (asks, asks_receiver) = channel();
        let waiting = Arc::<Waiting>::default();
        let ends =
            Ends { read: read_sender, taken: taken_receiver, asks: asks_receiver, waiting: Arc::clone(&waiting) };
        scope.spawn(move || {
            let _ahead = host::run_first();
            if let Err(error) = programs.reader().and_then(|reader| ends.read_until_closed(reader)) {
                ends.tell(Read::Failed(error));
            }
        });
        let rings = Rings { read, taken, asks, waiting };
        rings.next()?;
        Ok(rings)
    }

    /// How many portions of records wait.
    pub fn waiting(&self) -> usize {
        self.waiting.portions.load(Ordering::Acquire)
    }

    /// Asks for all that the rings hold now, behind which they are told to be empty.
    pub fn ask(&self) {
        // The thread ends before this end only with an error, which it tells.
        let _ = self.asks.send(());
    }

    /// The next records; waits for them. `None`: the rings were asked for, and are empty.
    ///
    /// # Errors
    /// A ring cannot be read.
    pub fn next(&self) -> Result<Option<Records>, Error> {
        let read = self.read.recv();
        self.waiting.portions.fetch_sub(usize::from(read.is_ok()), Ordering::Relaxed);
        match read {
            Ok(Read::Records(records)) => Ok(Some(records)),
            Ok(Read::Failed(error)) => Err(error),
            // Behind an error, nothing more comes.
            Ok(Read::Empty) | Err(_) => Ok(None),
        }
    }

    /// Records have been taken.
    pub fn give_back(&self, records: Records) {
        self.waiting.bytes.fetch_sub(records.bytes(), Ordering::Relaxed);
        // The thread may have ended.
        let _ = self.taken.send(records);
    }
}

impl Ends {
    fn tell(&self, read: Read) {
        // Counted first: what was taken is never counted later.
        self.waiting.portions.fetch_add(1, Ordering::Release);
        // Nobody listens any more once the recording is over.
        let _ = self.read.send(read);
    }

    fn read_until_closed(&self, mut reader: RingReader<'_>) -> Result<(), Error> {
        self.tell(Read::Empty);
        loop {
            match self.asks.recv_timeout(PERIOD) {
                Ok(()) => {
                    while self.read_once(&mut reader)? {}
                    self.tell(Read::Empty);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.waiting.bytes.load(Ordering::Relaxed) < MOST_WAITING {
                        self.read_once(&mut reader)?;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Tells what the rings hold; returns whether that was anything.
    fn read_once(&self, reader: &mut RingReader<'_>) -> Result<bool, Error> {
        let mut records = self.taken.try_recv().unwrap_or_default();
        reader.read(&mut records)?;
        let has_any = records.bytes() > 0 || records.bad_records > 0;
        if has_any {
            self.waiting.bytes.fetch_add(records.bytes(), Ordering::Relaxed);
            self.tell(Read::Records(records));
        }
        Ok(has_any)
    }
}
