//! The line of progress of a recording without a live view.

use std::collections::HashMap;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rtrace_model::{Batch, Event, EventKind, LocationId, PathId, PathProfile, Sink, SinkError, Summary, slowdown};

use super::message::tell;

/// A sink that counts, on standard error; silent where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    /// Calls with a record.
    recorded: u64,
    /// Calls by call path, where they are folded; they include those with a record.
    paths: HashMap<(LocationId, PathId), u64>,
    lost: u64,
}

impl Progress {
    /// A line about the recording of `target`, which is a description for people.
    pub fn new(target: &str) -> Progress {
        let bar = ProgressBar::new_spinner().with_prefix(rtrace_model::escape(target).into_owned());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed}").expect("the template is valid"),
        );
        bar.set_message("attaching");
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar, recorded: 0, paths: HashMap::new(), lost: 0 }
    }

    fn show(&self) {
        let calls = if self.paths.is_empty() { self.recorded } else { self.paths.values().sum() };
        self.bar.set_message(format!("{} calls, {} lost", HumanCount(calls), HumanCount(self.lost)));
    }
}

impl Sink for Progress {
    fn calls(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.recorded += batch.len() as u64;
        Ok(())
    }

    fn profile(&mut self, paths: &[PathProfile]) -> Result<(), SinkError> {
        self.paths.extend(paths.iter().map(|path| ((path.location, path.path), path.calls)));
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        match &event.kind {
            EventKind::Loss(loss) => self.lost += loss.count,
            EventKind::Armed => self.show(),
            EventKind::Slowdown { percent } => self.bar.suspend(|| {
                tell!("{}", slowdown(*percent));
            }),
            _ => {}
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), SinkError> {
        self.show();
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<(), SinkError> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
