//! A flight recorder: the last calls are kept in memory, and written when something happens.
//!
//! A window is a trace like any other. It holds the calls of some time before a trigger was met, and of some time after it.
//! No call is in two windows, so that several can be read as one trace. A window states its beginning, its end, and what
//! triggered it, so it is known what was not kept.
//!
//! Nothing is encoded until a window is written, on a thread of its own, so that waiting costs a copy of each call.

mod buffer;
#[cfg(test)]
mod tests;
mod trigger;
mod window;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rtrace_exporters::{Owner, TraceWriter};
use rtrace_model::{
    Batch, Call, CallSite, Definition, Header, Item, LocationId, Sink, SinkError, Summary, Timestamp, Window, counted,
    format_ns,
};

use self::buffer::KeptCalls;
use self::trigger::Triggers;
pub use self::trigger::{Trigger, TriggerError};
use self::window::WindowPart;
use crate::host;

/// What is told of calls that run comes four times a second. Where it does not come, a window does not wait for it.
const PATIENCE_NS: u64 = 2_000_000_000;

/// What is kept, and when it is written.
#[derive(Debug)]
pub struct Settings {
    /// The windows are directories in this one.
    pub directory: PathBuf,
    /// What the names of the windows begin with.
    pub prefix: String,
    /// To whom they belong.
    pub owner: Option<Owner>,
    /// For how long before a trigger calls are kept,
    pub before: Duration,
    /// and for how long after it.
    pub after: Duration,
    /// Bytes that the calls may take in memory.
    pub most_bytes: usize,
    /// Stop after this many windows.
    pub most_windows: u32,
    /// What asks for a window.
    pub triggers: Vec<Trigger>,
    /// Set to ask for a window.
    pub asked: Arc<AtomicBool>,
    /// Set to end the recording.
    pub stop: Arc<AtomicBool>,
}

/// What has become of the windows; complete when the recording has ended.
#[derive(Clone, Debug, Default)]
pub struct WindowLog(Arc<Mutex<WindowEntries>>);

#[derive(Debug, Default)]
struct WindowEntries {
    news: Vec<String>,
    windows: Vec<PathBuf>,
    met: u64,
}

impl WindowLog {
    /// What has happened since the last call, for people.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut self.entries().news)
    }

    /// The windows that were written.
    pub fn windows(&self) -> Vec<PathBuf> {
        self.entries().windows.clone()
    }

    /// How often a trigger was met.
    pub fn met(&self) -> u64 {
        self.entries().met
    }

    fn entries(&self) -> MutexGuard<'_, WindowEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What asked for a window.
struct WindowCause {
    trigger: String,
    time: Timestamp,
    call: Option<Call>,
}

/// A window that calls are still added to.
struct PendingWindow {
    cause: WindowCause,
    /// Until then.
    until: Timestamp,
    /// What ran at its end, once that is known.
    end: Option<(Timestamp, Vec<Call>)>,
}

/// The sink.
pub struct Flight {
    settings: Settings,
    log: WindowLog,
    header: Header,
    triggers: Triggers,
    kept: KeptCalls,
    pending: Option<PendingWindow>,
    /// Calls that have met a trigger while they ran, and when they ran last.
    met_running: HashMap<(LocationId, u64), Timestamp>,
    /// For the next window: whether it can be written is known long before.
    next: Option<TraceWriter>,
    writing: Option<JoinHandle<Result<TraceWriter, SinkError>>>,
    written: Vec<TraceWriter>,
    named: Vec<CallSite>,
    number: u32,
    is_checked: bool,
}

impl Flight {
    /// Makes ready for the first window.
    ///
    /// # Errors
    /// Its directory cannot be made.
    pub fn new(mut settings: Settings) -> Result<Flight, rtrace_exporters::Error> {
        let triggers = Triggers::new(std::mem::take(&mut settings.triggers));
        let next = Some(TraceWriter::create_member(&place(&settings, 1), settings.owner)?);
        Ok(Flight {
            log: WindowLog::default(),
            header: Header::default(),
            triggers,
            kept: KeptCalls::new(settings.most_bytes),
            pending: None,
            met_running: HashMap::new(),
            next,
            writing: None,
            written: Vec::new(),
            named: Vec::new(),
            number: 1,
            is_checked: false,
            settings,
        })
    }

    /// Tells what becomes of the windows.
    pub fn log(&self) -> WindowLog {
        self.log.clone()
    }

    fn met(&mut self, cause: WindowCause) {
        self.log.entries().met += 1;
        // What comes while a window is open is in it.
        if self.pending.is_none() && self.next.is_some() {
            let until = Timestamp(cause.time.0.saturating_add(nanoseconds(self.settings.after)));
            self.pending = Some(PendingWindow { cause, until, end: None });
        }
    }

    fn asked(&mut self) {
        if self.settings.asked.swap(false, Ordering::Relaxed) {
            let time = self.kept.now;
            self.met(WindowCause { trigger: "SIGUSR1".to_owned(), time, call: None });
        }
    }

    /// Forgets what no window will have.
    fn forget(&mut self) {
        let from = self.pending.as_ref().map_or(self.kept.now, |pending| pending.cause.time);
        self.kept.forget_before(Timestamp(from.0.saturating_sub(nanoseconds(self.settings.before))));
    }

    /// Writes the window that is open, as the recording was at `end`.
    fn write(&mut self, end: Timestamp, running: Vec<Call>) -> Result<(), SinkError> {
        let (Some(PendingWindow { cause, .. }), Some(mut writer)) = (self.pending.take(), self.next.take()) else {
            return Ok(());
        };
        self.join()?;
        let number = self.number;
        let window = Window {
            number,
            trigger: cause.trigger.clone(),
            time: cause.time,
            location: cause.call.map(|call| call.location),
            call: cause.call.map(|call| call.id),
            is_cut: false,
        };
        let function = cause.call.and_then(|call| self.kept.definitions.region(call.region));
        let about = match (function, cause.call.and_then(|call| call.duration)) {
            (Some(region), Some(duration)) => {
                format!("{}: {} took {}", cause.trigger, region.name, format_ns(duration))
            }
            _ => cause.trigger,
        };
        let (header, taken, log) = (self.header.clone(), self.kept.take(), self.log.clone());
        let path = place(&self.settings, number);
        let is_last = number >= self.settings.most_windows;
        self.writing = Some(std::thread::spawn(move || {
            let part = WindowPart::new(&header, window, taken, end, running);
            part.write(&mut writer)?;
            let mut log = log.entries();
            log.news.push(said(&path, &about, &part));
            log.windows.push(path);
            if is_last {
                let windows = counted(u64::from(number), "window");
                log.news.push(format!("{windows} written: the recording ends (--windows)"));
            }
            Ok(writer)
        }));
        if is_last {
            self.settings.stop.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.number += 1;
        let next = TraceWriter::create_member(&place(&self.settings, self.number), self.settings.owner);
        self.next = Some(next.map_err(|error| SinkError::new("make the next window", error))?);
        Ok(())
    }

    /// Waits for the window that is being written.
    fn join(&mut self) -> Result<(), SinkError> {
        if let Some(writing) = self.writing.take() {
            self.written.push(writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(())
    }

    fn can_write(&self) -> bool {
        self.writing.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn learn(&mut self, definition: &Definition) {
        match definition {
            Definition::Region(region) => self.triggers.learn(region),
            // Names come when the recording ends.
            Definition::CallSite(site) if !self.written.is_empty() || self.writing.is_some() => {
                self.named.push(site.clone())
            }
            _ => {}
        }
        self.kept.define(definition);
    }

    fn ended(&mut self, batch: &Batch) {
        self.kept.calls(batch);
        for call in &**batch {
            let Some(trigger) = self.triggers.met(call) else { continue };
            if self.met_running.remove(&(call.location, call.id)).is_some() {
                continue;
            }
            let (trigger, time) = (trigger.text().to_owned(), call.known_until());
            self.met(WindowCause { trigger, time, call: Some(*call) });
        }
    }

    /// A window ends when this is told: then it is known what runs at its end. What ended just before may come a little later,
    /// so it is written the next time.
    fn running(&mut self, time: Timestamp, calls: &[Call]) -> Result<(), SinkError> {
        self.kept.advance(time);
        for call in calls {
            let Some(trigger) = self.triggers.met(call) else { continue };
            if self.met_running.insert((call.location, call.id), time).is_none() {
                let trigger = trigger.text().to_owned();
                self.met(WindowCause { trigger, time, call: Some(*call) });
            }
        }
        // The record of one that has ended may still be on its way, or be lost.
        self.met_running.retain(|_, last| time.since(*last) < PATIENCE_NS);
        self.asked();
        self.forget();
        let can_write = self.can_write();
        match &mut self.pending {
            Some(PendingWindow { end: Some(end), .. }) => {
                let (end, running) = std::mem::take(end);
                self.write(end, running)
            }
            // While another one is being written it goes on.
            Some(PendingWindow { end: end @ None, until, .. }) if time >= *until && can_write => {
                *end = Some((time, calls.to_vec()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), SinkError> {
        if !std::mem::replace(&mut self.is_checked, true) {
            let unknown = self
                .triggers
                .without_function()
                .map(|trigger| format!("no traced function matches the trigger `{}` so far", trigger.text()));
            self.log.entries().news.extend(unknown);
        }
        self.asked();
        let late = |pending: &PendingWindow| host::now().since(pending.until) > PATIENCE_NS && pending.end.is_none();
        match self.pending.as_ref().is_some_and(late) && self.can_write() {
            true => self.write(self.kept.now, Vec::new()),
            false => Ok(()),
        }
    }

    fn end(&mut self, summary: &Summary) -> Result<(), SinkError> {
        self.kept.advance(summary.end.monotonic);
        self.asked();
        self.forget();
        self.write(summary.end.monotonic, Vec::new())?;
        self.join()?;
        for writer in &mut self.written {
            let named = writer.name_call_sites(self.named.iter());
            named.map_err(|error| SinkError::new("name call sites", error))?;
        }
        Ok(())
    }
}

impl Sink for Flight {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Begin(header) => {
                self.header = header.clone();
                self.kept.begin(header.begin.monotonic);
            }
            Item::Define(definitions) => definitions.iter().for_each(|definition| self.learn(definition)),
            Item::Calls(batch) => self.ended(batch),
            Item::Values(batches) => self.kept.values(batches),
            Item::Samples(samples) => self.kept.samples(samples),
            Item::Running(time, calls) => return self.running(*time, calls),
            Item::Event(event) => self.kept.event(event),
            Item::Tick => return self.check(),
            Item::Finish(summary) => return self.end(summary),
            Item::Profile(_) | Item::Estimates(_) => {}
        }
        Ok(())
    }

    fn wants_running(&self) -> bool {
        true
    }
}

/// A directory without windows goes.
impl Drop for Flight {
    fn drop(&mut self) {
        self.next = None;
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
        // One that holds something stays.
        let _ = std::fs::remove_dir(&self.settings.directory);
    }
}

fn place(settings: &Settings, number: u32) -> PathBuf {
    settings.directory.join(format!("{}window-{number:04}", settings.prefix))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What is said of a window that was written.
fn said(path: &Path, about: &str, part: &WindowPart) -> String {
    let length = part.summary.end.monotonic.since(part.header.begin.monotonic);
    let is_cut = part.header.window.as_ref().is_some_and(|window| window.is_cut);
    let cut = if is_cut { "; earlier calls did not fit into memory (--keep-memory)" } else { "" };
    let calls = counted(part.summary.calls, "call");
    format!("window `{}`: {calls} in {} ({about}){cut}", path.display(), format_ns(length))
}
