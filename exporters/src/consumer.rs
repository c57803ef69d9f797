//! A program of the user's that gets the calls while they happen, on its standard input.
//!
//! Whatever it does, recording goes on: calls wait in a bounded queue, and what finds it full is
//! counted and not delivered. A program that ends early, or never ends, is worth a line at the end
//! and is no failure. Calls have ids without holes, so it can tell for itself what it missed.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use rtrace_model::{Batch, Header, Item, Sink, SinkError, counted};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::stream::{StreamEncoder, Writer};

/// Calls that wait for the program; they take about 80 MB.
const WAITING_CALLS: u64 = 1 << 20;

/// What is said around the calls of a batch takes memory, too: a small one counts as so many calls.
const SMALL_BATCH: u64 = 256;

/// How long the program may take to read what waits and to end, once the recording has.
const GRACE: Duration = Duration::from_secs(5);

/// How long it may take to end when it is told to.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Time between two looks whether it has ended.
const PATIENCE: Duration = Duration::from_millis(5);

/// The sink that feeds a program.
pub struct Consumer {
    child: Child,
    input: Option<ChildStdin>,
    encoder: Option<StreamEncoder>,
    queue: Option<Sender<RecordBatch>>,
    writer: Option<JoinHandle<()>>,
    /// Calls in the queue.
    waiting: Arc<AtomicU64>,
    /// Set when the program takes nothing more.
    gone: Arc<AtomicBool>,
    delivery: Delivery,
}

/// What came of feeding a program; complete when its [`Consumer`] has finished or is dropped.
#[derive(Clone, Debug)]
pub struct Delivery(Arc<SharedConsumer>);

#[derive(Debug)]
struct SharedConsumer {
    command: String,
    missed: AtomicU64,
    end: Mutex<Option<End>>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Itself(ExitStatus),
    Killed,
    /// It cannot be waited for.
    Unknown,
}

impl Consumer {
    /// Starts a program in a process group of its own. So it gets no signals that the terminal sends to rtrace: it
    /// ends when its input does. `command` is what people know it by.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &str, mut program: Command) -> io::Result<Consumer> {
        let mut child = program.stdin(Stdio::piped()).process_group(0).spawn()?;
        let shared = SharedConsumer { command: command.to_owned(), missed: AtomicU64::new(0), end: Mutex::new(None) };
        Ok(Consumer {
            input: child.stdin.take(),
            child,
            encoder: None,
            queue: None,
            writer: None,
            waiting: Arc::default(),
            gone: Arc::default(),
            delivery: Delivery(Arc::new(shared)),
        })
    }

    /// Tells, at the end, what came of it.
    pub fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    fn enqueue(&mut self, batch: &Batch) {
        let (Some(queue), Some(encoder)) = (&self.queue, &mut self.encoder) else { return };
        let calls = batch.len() as u64;
        let weight = calls.max(SMALL_BATCH);
        let is_full = self.waiting.load(Ordering::Relaxed) + weight > WAITING_CALLS;
        self.waiting.fetch_add(weight, Ordering::Relaxed);
        if is_full || self.gone.load(Ordering::Relaxed) || queue.send(encoder.batch(batch)).is_err() {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            self.delivery.0.missed.fetch_add(calls, Ordering::Relaxed);
        }
    }

    /// Closes the program's input and sees it end, by force if need be.
    fn close(&mut self) {
        if self.delivery.end().is_some() {
            return;
        }
        if let (Some(queue), Some(encoder)) = (&self.queue, &mut self.encoder) {
            // A stream without calls is a stream, too.
            self.waiting.fetch_add(SMALL_BATCH, Ordering::Relaxed);
            let _ = queue.send(encoder.batch(&Batch::default()));
        }
        self.queue = None;
        self.input = None;
        let end = self.wait(GRACE).unwrap_or_else(|| {
            self.signal(Signal::TERM);
            if self.wait(LAST_WORDS).is_none() {
                self.signal(Signal::KILL);
                // Nothing can refuse that signal.
                let _ = self.child.wait();
            }
            End::Killed
        });
        *self.delivery.0.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        // Without a reader a write fails, and the writer counts what is left. A program may have left its input to one
        // that lives on: then the writer is left, too, and nobody gets what waits.
        let begin = Instant::now();
        let is_writing = |writer: &JoinHandle<()>| !writer.is_finished();
        while self.writer.as_ref().is_some_and(is_writing) && begin.elapsed() < LAST_WORDS {
            std::thread::sleep(PATIENCE);
        }
        match self.writer.take() {
            Some(writer) if writer.is_finished() => _ = writer.join(),
            Some(_) => _ = self.delivery.0.missed.fetch_add(self.waiting.load(Ordering::Relaxed), Ordering::Relaxed),
            None => {}
        }
    }

    /// Waits for the end of program and writer.
    fn wait(&mut self, patience: Duration) -> Option<End> {
        let begin = Instant::now();
        loop {
            let has_written = self.writer.as_ref().is_none_or(JoinHandle::is_finished);
            match self.child.try_wait() {
                Ok(Some(status)) if has_written => return Some(End::Itself(status)),
                Ok(_) if begin.elapsed() < patience => std::thread::sleep(PATIENCE),
                Ok(_) => return None,
                Err(_) => return Some(End::Unknown),
            }
        }
    }

    /// To the program and what it started: they are a process group.
    fn signal(&self, signal: Signal) {
        // It may have ended just now.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    fn start_feed(&mut self, header: &Header) {
        let encoder = StreamEncoder::new(header);
        let (queue, batches) = channel();
        let input = self.input.take().expect("a recording begins once");
        let feed =
            Feed { waiting: Arc::clone(&self.waiting), gone: Arc::clone(&self.gone), delivery: self.delivery.clone() };
        self.writer = Some(std::thread::spawn(move || feed.run(input, &batches)));
        self.queue = Some(queue);
        self.encoder = Some(encoder);
    }
}

impl Sink for Consumer {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Begin(header) => self.start_feed(header),
            Item::Define(definitions) => {
                let encoder = self.encoder.iter_mut();
                encoder.for_each(|encoder| definitions.iter().for_each(|definition| encoder.define(definition)));
            }
            Item::Calls(batch) => self.enqueue(batch),
            Item::Finish(_) => self.close(),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the writing thread needs.
struct Feed {
    waiting: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
    delivery: Delivery,
}

impl Feed {
    fn run(self, input: ChildStdin, batches: &Receiver<RecordBatch>) {
        let mut input = Some(input);
        let mut writer = None;
        for batch in batches {
            let calls = batch.num_rows() as u64;
            if let Some(input) = input.take() {
                writer = Writer::begin(input, &batch.schema()).ok();
            }
            if writer.as_mut().is_none_or(|writer| writer.write(&batch).is_err()) {
                writer = None;
                self.gone.store(true, Ordering::Relaxed);
                self.delivery.0.missed.fetch_add(calls, Ordering::Relaxed);
            }
            self.waiting.fetch_sub(calls.max(SMALL_BATCH), Ordering::Relaxed);
        }
        if let Some(writer) = writer {
            // It has all calls; whether it takes in the mark of the end is its affair.
            let _ = writer.finish();
        }
    }
}

impl Delivery {
    fn end(&self) -> Option<End> {
        *self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that the program did not get.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    /// What the user should know; nothing where all went well.
    pub fn warnings(&self) -> Vec<String> {
        let command = &self.0.command;
        let missed = match self.missed() {
            0 => None,
            missed => {
                let missed = counted(missed, "call");
                // What lay in the pipe when it was killed has not been read, either.
                let least = if matches!(self.end(), Some(End::Killed)) { "at least " } else { "" };
                Some(format!("sink `{command}` did not get {least}{missed}: it was too slow, or ended early"))
            }
        };
        let end = match self.end() {
            Some(End::Killed) => Some(format!("sink `{command}` was killed: it did not end in {} s", GRACE.as_secs())),
            Some(End::Itself(status)) if !status.success() => {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("status {code}"),
                    (None, signal) => format!("signal {}", signal.unwrap_or_default()),
                };
                Some(format!("sink `{command}` ended with {how}"))
            }
            _ => None,
        };
        missed.into_iter().chain(end).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Call, LocationId, Summary, Timestamp};

    use super::*;

    fn batch(calls: u64) -> Batch {
        let call =
            |id| Call { location: LocationId(1), id, start: Timestamp(id), duration: Some(1), ..Call::default() };
        (1..=calls).map(call).collect::<Vec<_>>().into()
    }

    /// Feeds `command` with so many batches of 1,000 calls; how long a batch took at most, and what
    /// came of it.
    fn feed(command: &str, batches: u64) -> (Duration, Delivery) {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]);
        let mut consumer = Consumer::start(command, shell).unwrap();
        let delivery = consumer.delivery();
        consumer.begin(&Header::default()).unwrap();
        let mut longest = Duration::ZERO;
        for _ in 0..batches {
            let begin = Instant::now();
            consumer.calls(&batch(1_000)).unwrap();
            longest = longest.max(begin.elapsed());
        }
        consumer.finish(&Summary::default()).unwrap();
        (longest, delivery)
    }

    #[test]
    fn a_program_that_reads_gets_the_whole_stream() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stream");
        let (_, delivery) = feed(&format!("cat >{}", file.display()), 3);
        assert_eq!(delivery.warnings(), [""; 0]);
        let reader = arrow_ipc::reader::StreamReader::try_new(std::fs::File::open(file).unwrap(), None).unwrap();
        assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 3_000);
    }

    #[test]
    fn a_program_that_never_reads_holds_nobody_up_and_is_killed() {
        let (longest, delivery) = feed("exec sleep 1000", 1_200);
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        // What lies in the pipe counts as delivered, and it holds 64 KiB.
        assert!((1_199_000..=1_200_000).contains(&delivery.missed()), "{}", delivery.missed());
        let command = "sink `exec sleep 1000`";
        assert_eq!(delivery.warnings()[1], format!("{command} was killed: it did not end in 5 s"));
    }

    /// It is stopped, or has left its input to another that is: what waits in the queue was not delivered.
    #[test]
    fn what_still_waits_when_a_program_ends_was_not_delivered() {
        for command in ["kill -STOP $$; cat >/dev/null", "sleep 9 <&0 & exit 0", "exec sleep 1000"] {
            let (_, delivery) = feed(command, 900);
            assert!((899_000..=900_000).contains(&delivery.missed()), "{command}: {}", delivery.missed());
            let said = &delivery.warnings()[0];
            assert!(said.contains("calls: it was too slow") && !said.contains("899000"), "{said}");
        }
    }

    #[test]
    fn a_program_that_ends_early_is_a_warning() {
        let (_, delivery) = feed("head -c 100 >/dev/null; exit 3", 300);
        assert!(delivery.missed() > 0);
        assert!(delivery.warnings()[1].ends_with("ended with status 3"), "{:?}", delivery.warnings());
    }
}
