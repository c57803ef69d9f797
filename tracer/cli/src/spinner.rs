//! That something takes longer than expected, on standard error.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown of what takes less.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two pictures of the line.
const TICK: Duration = Duration::from_millis(200);

/// Does the work. A line shows that these traces are read, and for how long, where standard error is a terminal; it is
/// gone when the work is done.
pub fn reading<T>(traces: &[&Path], work: impl FnOnce() -> T) -> T {
    let names: Vec<String> = traces.iter().map(|path| path.display().to_string()).collect();
    let style = ProgressStyle::with_template("{spinner} reading {msg} ({elapsed})").expect("the template is valid");
    let line = ProgressBar::hidden().with_style(style).with_message(names.join(" and "));
    let (is_done, waiting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let begun = Instant::now();
        let shown = line.clone();
        // Where no more threads may be started, the work is done without a line.
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                shown.set_elapsed(begun.elapsed());
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
                let _ = waiting.recv();
                shown.finish_and_clear();
            }
        });
        let done = work();
        drop(is_done);
        done
    })
}
