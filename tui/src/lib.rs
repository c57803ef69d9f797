//! The live view of rtrace in a terminal.
//!
//! [`live()`] gives two ends of one state: a [`LiveSink`] that the recording feeds, and a [`Handle`]
//! that [`run()`] draws from; [`stored()`] gives a handle into which a stored trace is replayed. The
//! recording never waits for the terminal, and only drawing knows what a screen is: `state` is what
//! is known, `app` what the user has done that all views share, `panel` what a view is, `view` the views
//! on a `canvas`, `dashboard` all of them with their keys, `term` the terminal.

mod app;
mod canvas;
mod colours;
#[cfg(test)]
mod cost;
mod dashboard;
mod key;
mod list;
mod live;
mod panel;
mod pick;
mod run;
mod state;
mod term;
#[cfg(test)]
mod testing;
mod text;
mod theme;
mod view;

pub use app::Fate;
pub use canvas::Align;
pub use live::{Handle, LiveSink, Range, live, stored};
pub use pick::{PickEntries, PickEntry, Question, pick};
pub use run::{Host, is_possible, run};
pub use state::counters::{Derive, Derived};
