//! From the reader of the rings to the sinks.
//!
//! Each sink runs on a thread of its own behind a bounded channel, and sinks do not see each other.
//! If a sink is too slow, the thread that feeds it waits. What is read meanwhile waits in memory up to a limit; then the rings
//! fill and count what they cannot take, so nothing is lost in silence and no traced program is held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rtrace_model::{Item, Sink, SinkError, Summary};

use crate::host;

/// Items that may wait in front of a sink.
const WAITING: usize = 16;

/// The sinks of a recording.
pub struct Pipeline {
    stages: Vec<Stage>,
    failed: Arc<AtomicBool>,
    wants_running: bool,
}

struct Stage {
    sender: SyncSender<Arc<Item>>,
    thread: JoinHandle<Result<(), SinkError>>,
}

impl Pipeline {
    /// Starts a thread for each sink.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> Pipeline {
        let failed = Arc::new(AtomicBool::new(false));
        let wants_running = sinks.iter().any(|sink| sink.wants_running());
        let stages = sinks.into_iter().map(|sink| Stage::start(sink, Arc::clone(&failed))).collect();
        Pipeline { stages, failed, wants_running }
    }

    /// Whether a sink has failed; [`finish`](Pipeline::finish) tells why.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether a sink wants to know what runs.
    pub fn wants_running(&self) -> bool {
        self.wants_running
    }

    /// Tells every sink, unless there is nothing to tell.
    pub fn send(&self, item: Item) {
        if item.is_empty() {
            return;
        }
        let item = Arc::new(item);
        for stage in &self.stages {
            // A sink that has failed takes nothing more; its error is told at the end.
            let _ = stage.sender.send(Arc::clone(&item));
        }
    }

    /// The recording has ended: waits for every sink to take in what was sent.
    ///
    /// # Errors
    /// The first error of a sink.
    pub fn finish(mut self, summary: Summary) -> Result<(), SinkError> {
        self.send(Item::Finish(summary));
        let mut ended = self.join().into_iter();
        ended.try_for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Waits for the end of each sink.
    fn join(&mut self) -> Vec<thread::Result<Result<(), SinkError>>> {
        let end = |stage: Stage| {
            drop(stage.sender);
            stage.thread.join()
        };
        std::mem::take(&mut self.stages).into_iter().map(end).collect()
    }
}

/// A recording that does not come to its end: sinks take back what they have made for nothing.
impl Drop for Pipeline {
    fn drop(&mut self) {
        self.join();
    }
}

impl Stage {
    fn start(mut sink: Box<dyn Sink>, failed: Arc<AtomicBool>) -> Stage {
        let (sender, receiver) = sync_channel::<Arc<Item>>(WAITING);
        let thread = thread::spawn(move || {
            let _ahead = host::run_first();
            for item in receiver {
                let taken = sink.take(&item);
                if let Err(error) = taken {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        });
        Stage { sender, thread }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    struct Full;

    impl Sink for Full {
        fn take(&mut self, item: &Item) -> Result<(), SinkError> {
            match item {
                Item::Calls(_) => Err(SinkError::new("write `calls`", std::io::Error::other("disk full"))),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_sink_that_fails_is_noticed_and_holds_nobody_up() {
        let call = rtrace_model::Call {
            location: rtrace_model::LocationId(1),
            duration: Some(1),
            ..rtrace_model::Call::default()
        };
        let pipeline = Pipeline::start(vec![Box::new(Full)]);
        for _ in 0..10 * WAITING {
            pipeline.send(Item::Calls(vec![call].into()));
        }
        assert!(pipeline.has_failed());
        let error = pipeline.finish(Summary::default()).unwrap_err();
        assert_eq!(error.to_string(), "failed to write `calls`: disk full");
    }
}
