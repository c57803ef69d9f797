//! The line of progress of a recording without a live view.

use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rtrace_model::{Batch, Event, EventKind, Sink, SinkError, Summary};

/// A sink that counts, on standard error; silent where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    calls: u64,
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
        Progress { bar, calls: 0, lost: 0 }
    }

    fn show(&self) {
        self.bar.set_message(format!("{} calls, {} lost", HumanCount(self.calls), HumanCount(self.lost)));
    }
}

impl Sink for Progress {
    fn calls(&mut self, batch: &Batch) -> Result<(), SinkError> {
        self.calls += batch.len() as u64;
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        match &event.kind {
            EventKind::Loss(loss) => self.lost += loss.count,
            EventKind::Armed => self.show(),
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
